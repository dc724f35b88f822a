import { useMutation } from "@tanstack/react-query";
import { type KeyboardEvent, useId, useState } from "react";
import type { InBranch } from "../../api/queries";
import { type Relation, changeCell } from "../../api/sql";
import { changeOf } from "../../lib/tables";
import { Dialog } from "../../ui/Dialog";
import { tell } from "../../ui/toasts";
import { Trouble } from "../../ui/Trouble";

interface EditCellProps {
  path: InBranch;
  table: Relation;
  /** The values of the row's key, in the key's order. */
  rowKey: (string | null)[];
  column: string;
  before: string | null;
  onDone: () => void;
  onClose: () => void;
}

/** Asks for another value, shows the statement that writes it, and runs that. */
export function EditCell({ path, table, rowKey, column, before, onDone, onClose }: EditCellProps) {
  const id = useId();
  const [text, setText] = useState(before ?? "");
  const [isNull, setNull] = useState(before === null);
  const after = isNull ? null : text;
  const change = changeOf(table, { key: rowKey, column, before, after });
  const changed = useMutation({
    mutationFn: () => changeCell(path, change),
    onSuccess: () => {
      tell("Changed 1 row.");
      onDone();
    },
  });
  // A field of a browser knows one kind of line's end.
  const isLossy = before?.includes("\r") === true;
  const why = isLossy
    ? "It has carriage returns, which would be lost here: change it with SQL."
    : after === before
      ? "Nothing is changed yet."
      : undefined;
  const hear = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    event.currentTarget.form?.requestSubmit();
  };
  return (
    <Dialog title={`Change ${column}`} does="Change it" why={why} isBusy={changed.isPending} onDone={() => changed.mutate()} onClose={onClose}>
      <div className="field">
        <label htmlFor={id}>
          {column} <span className="quiet">{table.columns.find(({ name }) => name === column)?.type}</span>
        </label>
        <textarea
          id={id}
          className="input mono edit-value"
          rows={Math.min(12, text.split("\n").length + 1)}
          spellCheck={false}
          readOnly={isLossy}
          placeholder={isNull ? "NULL" : ""}
          value={isNull ? "" : text}
          onKeyDown={hear}
          onChange={(event) => {
            setNull(false);
            setText(event.target.value);
          }}
        />
        <label className="check">
          <input type="checkbox" checked={isNull} disabled={isLossy} onChange={(event) => setNull(event.target.checked)} />
          NULL
        </label>
      </div>
      <p className="quiet">What is run; it changes nothing if somebody else has changed the value meanwhile.</p>
      <pre className="value" tabIndex={0} role="region" aria-label="Statement">
        {change.text}
      </pre>
      {changed.error && <Trouble error={changed.error} />}
    </Dialog>
  );
}
