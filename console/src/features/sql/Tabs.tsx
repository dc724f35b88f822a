import { Plus, X } from "lucide-react";
import { type KeyboardEvent, useRef, useState } from "react";
import { type Tab, tabName } from "../../lib/work";
import { Dialog } from "../../ui/Dialog";
import { Button } from "../../ui/parts";

interface TabsProps {
  tabs: readonly Tab[];
  current: number;
  /** Those in which something runs. */
  running: ReadonlySet<number>;
  onShow: (id: number) => void;
  onAdd: () => void;
  onClose: (id: number) => void;
}

/** The texts that somebody works on; the arrows go from one to the next, Delete closes one. */
export function Tabs({ tabs, current, running, onShow, onAdd, onClose }: TabsProps) {
  const list = useRef<HTMLDivElement>(null);
  const [doubted, setDoubted] = useState<Tab | null>(null);
  const close = (tab: Tab) => (tab.text.trim() ? setDoubted(tab) : onClose(tab.id));
  const hear = (event: KeyboardEvent, at: number) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const tab = tabs[at];
    if (step) {
      const next = (at + step + tabs.length) % tabs.length;
      onShow(tabs[next]?.id ?? current);
      list.current?.querySelectorAll<HTMLElement>("[role=tab]")[next]?.focus();
    } else if (event.key === "Delete" && tab) close(tab);
    else return;
    event.preventDefault();
  };
  return (
    <div className="tabs">
      <div role="tablist" aria-label="Texts" ref={list}>
        {tabs.map((tab, at) => (
          <button
            key={tab.id}
            type="button"
            role="tab"
            id={`tab-${tab.id}`}
            aria-controls={`desk-${tab.id}`}
            aria-selected={tab.id === current}
            tabIndex={tab.id === current ? 0 : -1}
            title={tabs.length > 1 ? "Delete closes it" : undefined}
            onClick={() => onShow(tab.id)}
            onKeyDown={(event) => hear(event, at)}
          >
            {running.has(tab.id) && <span className="runs" role="img" aria-label="runs" />}
            {tabName(tab.text)}
          </button>
        ))}
      </div>
      {tabs.length > 1 && (
        <Button
          kind="bare"
          icon
          aria-label="Close this tab"
          title="Close this tab"
          onClick={() => tabs.filter(({ id }) => id === current).forEach(close)}
        >
          <X aria-hidden="true" />
        </Button>
      )}
      <Button kind="bare" icon aria-label="New tab" title="New tab" onClick={onAdd}>
        <Plus aria-hidden="true" />
      </Button>
      {doubted && (
        <Dialog
          title={`Close “${tabName(doubted.text)}”?`}
          does="Close it"
          isDangerous
          onDone={() => {
            onClose(doubted.id);
            setDoubted(null);
          }}
          onClose={() => setDoubted(null)}
        >
          <p>What was run is in the history; the rest of its text is lost.</p>
        </Dialog>
      )}
    </div>
  );
}
