import { useEffect, useRef, useState } from "react";
import { took } from "../../lib/time";
import type { Ran } from "../../lib/work";
import { Button, SearchField } from "../../ui/parts";
import { Ago } from "../../ui/Times";

interface HistoryProps {
  past: Ran[];
  onChoose: (query: string) => void;
  onClose: () => void;
}

/** What was run on this branch from this browser. */
export function History({ past, onChoose, onClose }: HistoryProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [letters, setLetters] = useState("");
  useEffect(() => {
    const opened = dialog.current;
    opened?.showModal();
    return () => opened?.close();
  }, []);
  const shown = past.filter(({ query }) => query.toLowerCase().includes(letters.toLowerCase()));
  const choose = (query: string) => {
    onClose();
    onChoose(query);
  };
  return (
    <dialog
      ref={dialog}
      className="history"
      aria-label="History"
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <header>
        <h1>History</h1>
        <SearchField
          label="Find in the history"
          placeholder="Find"
          value={letters}
          onChange={(text) => setLetters(text)}
        />
      </header>
      {shown.length === 0 && <p className="quiet">{past.length === 0 ? "Nothing was run here yet." : "Nothing fits."}</p>}
      <ol>
        {shown.map(({ query, at, took: length, isFailed }) => (
          <li key={at}>
            <button type="button" onClick={() => choose(query)}>
              <code>{query.slice(0, 400)}</code>
              <span className="quiet">
                <Ago at={new Date(at).toISOString()} /> · {took(length)}
                {isFailed && " · failed"}
              </span>
            </button>
          </li>
        ))}
      </ol>
      <footer>
        <p className="quiet">Kept in this browser until you sign out; nothing that sets a password is.</p>
        <Button onClick={onClose}>Close</Button>
      </footer>
    </dialog>
  );
}
