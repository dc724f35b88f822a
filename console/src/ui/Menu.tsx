import { type KeyboardEvent, type ReactNode, useId, useRef } from "react";

interface MenuProps {
  /** What the button shows. */
  button: ReactNode;
  label: string;
  className?: string;
  children: ReactNode;
}

const GAP = 4;

/** A list that opens below its button: the browser's own popover, placed where there is room. */
export function Menu({ button, label, className = "button bare", children }: MenuProps) {
  const id = useId();
  const opener = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const items = () => [...(list.current?.querySelectorAll<HTMLElement>("a, button, input") ?? [])];
  const place = () => {
    const [from, box] = [opener.current?.getBoundingClientRect(), list.current];
    if (!from || !box) return;
    const { width, height } = box.getBoundingClientRect();
    const below = from.bottom + GAP + height <= innerHeight;
    box.style.top = `${below ? from.bottom + GAP : Math.max(GAP, from.top - GAP - height)}px`;
    box.style.left = `${Math.max(GAP * 2, Math.min(from.left, innerWidth - width - GAP * 2))}px`;
  };
  const move = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = items();
    const at = all.indexOf(document.activeElement as HTMLElement);
    all[(at + step + all.length) % all.length]?.focus();
  };
  return (
    <>
      <button
        type="button"
        ref={opener}
        className={className}
        popoverTarget={id}
        aria-label={label}
        onClick={(event) => event.stopPropagation()}
      >
        {button}
      </button>
      <div
        id={id}
        ref={list}
        popover="auto"
        className="menu"
        onToggle={(event) => {
          if (event.newState !== "open") return;
          place();
          items()[0]?.focus();
        }}
        onKeyDown={move}
        onClick={(event) => {
          event.stopPropagation();
          if ((event.target as HTMLElement).closest("a, button")) list.current?.hidePopover();
        }}
      >
        {children}
      </div>
    </>
  );
}
