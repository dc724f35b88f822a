import { type KeyboardEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { best } from "../lib/find";
import { type Entry, useEntries } from "./useEntries";
import type { Where } from "./where";

const SHOWN_MAX = 12;

/** Finds branches, projects and pages by a few letters. */
export function Palette({ where, onClose }: { where: Where; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const list = useId();
  useEffect(() => {
    const opened = dialog.current;
    opened?.showModal();
    return () => opened?.close();
  }, []);
  const entries = useEntries(where);
  const found = useMemo(() => best(entries, text, SHOWN_MAX), [entries, text]);
  const choose = (entry: Entry | undefined) => {
    if (!entry) return;
    onClose();
    entry.go();
  };
  const hear = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((at + step + found.length) % Math.max(1, found.length));
    else if (event.key === "Enter") choose(found[at]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog
      ref={dialog}
      className="palette"
      aria-label="Find and do"
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <input
        role="combobox"
        aria-expanded="true"
        aria-controls={list}
        aria-activedescendant={found[at] && `${list}-${at}`}
        aria-label="Find and do"
        placeholder="A branch, a table, a project, a page"
        spellCheck={false}
        autoComplete="off"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={hear}
      />
      <Found id={list} entries={found} at={at} onPoint={setAt} onChoose={choose} onKey={hear} />
      {found.length === 0 && <p className="quiet nothing">Nothing is called that.</p>}
    </dialog>
  );
}

interface FoundProps {
  id: string;
  entries: readonly Entry[];
  at: number;
  onPoint: (at: number) => void;
  onChoose: (entry: Entry) => void;
  onKey: (event: KeyboardEvent) => void;
}

/** What fits, the one that Enter chooses marked. The field keeps the focus and hears the keys. */
function Found({ id, entries, at, onPoint, onChoose, onKey }: FoundProps) {
  return (
    <div id={id} role="listbox" aria-label="Found">
      {entries.map((entry, index) => (
        <div
          key={entry.id}
          id={`${id}-${index}`}
          role="option"
          aria-selected={index === at}
          tabIndex={-1}
          onPointerMove={() => onPoint(index)}
          onClick={() => onChoose(entry)}
          onKeyDown={onKey}
        >
          <span className="name">{entry.name}</span>
          <span className="quiet">{entry.kind}</span>
          {entry.end}
        </div>
      ))}
    </div>
  );
}
