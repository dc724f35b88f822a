import { type FormEvent, type ReactNode, useEffect, useId, useRef } from "react";
import { Button } from "./parts";

interface DialogProps {
  title: string;
  children: ReactNode;
  /** The word on the button that does it. */
  does: string;
  isDangerous?: boolean;
  isBusy?: boolean;
  /** Why it can't be done yet. */
  why?: string | undefined;
  onDone: () => void;
  onClose: () => void;
}

/** Asks something; Enter does it, Escape leaves everything as it was. */
export function Dialog({ title, children, does, isDangerous, isBusy, why, onDone, onClose }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const opened = dialog.current;
    opened?.showModal();
    // Enter does what was asked for, but nothing that can't be undone.
    const first = opened?.querySelector<HTMLElement>(isDangerous ? "input" : "input, select, textarea, [type=submit]");
    first?.focus();
    return () => opened?.close();
  }, [isDangerous]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!why && !isBusy) onDone();
  };
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <form onSubmit={submit} noValidate>
        <h1 id={id}>{title}</h1>
        {children}
        <div className="ends">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind={isDangerous ? "danger" : "main"} why={why} disabled={isBusy ?? false}>
            {does}
          </Button>
        </div>
      </form>
    </dialog>
  );
}
