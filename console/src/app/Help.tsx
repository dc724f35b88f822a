import { useEffect, useRef } from "react";
import { Button } from "../ui/parts";

const KEYS: [string, string][] = [
  ["Ctrl K", "Find a branch, a page, something to do"],
  ["?", "These keys"],
  ["g o", "Overview of the branch"],
  ["g q", "SQL"],
  ["Ctrl Enter", "Run the statement at the cursor, or what is selected"],
  ["Ctrl Shift Enter", "Run everything"],
  ["g d", "Tables"],
  ["g f", "Diff: what differs from another branch"],
  ["g m", "Metrics; then draw over a chart to zoom"],
  ["g l", "Logs"],
  ["g p", "Parameters"],
  ["g t", "Activity"],
  ["g r", "Backups: what the branch was"],
  ["g ,", "Settings of the branch"],
  ["g b", "Branches"],
  ["g .", "Settings of the project"],
  ["g h", "Projects"],
  ["g k", "Keys"],
  ["g u", "People"],
  ["g a", "Audit log"],
  ["g e", "Usage"],
  ["g w", "Integrations"],
  ["g i", "Settings of the organization"],
  ["↑ ↓", "From branch to branch"],
  ["← →", "Fold and unfold"],
  ["Enter", "Open the branch"],
  ["b", "Make a branch from this one"],
  ["s", "Let it sleep, or wake it"],
  ["d", "What it has that its parent has not"],
  ["x", "Select it"],
  ["Delete", "Delete it, or all that are selected"],
  ["/", "Filter"],
  ["c", "Copy how to connect"],
  ["y", "Show or hide the password"],
];

/** Every key, in a list. */
export function Help({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const opened = dialog.current;
    opened?.showModal();
    return () => opened?.close();
  }, []);
  return (
    <dialog ref={dialog} aria-label="Keys" onCancel={onClose} onClick={onClose}>
      <div className="help">
        <h1>Keys</h1>
        <dl>
          {KEYS.map(([key, does]) => (
            <div key={key}>
              <dt>
                {key.split(" ").map((part) => (
                  <kbd key={part}>{part}</kbd>
                ))}
              </dt>
              <dd>{does}</dd>
            </div>
          ))}
        </dl>
        <p className="quiet">None is heard while you type.</p>
        <div className="ends">
          <Button onClick={onClose}>Close</Button>
        </div>
      </div>
    </dialog>
  );
}
