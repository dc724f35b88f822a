import { Play, Square, Waypoints } from "lucide-react";
import { useEffect, useState } from "react";
import { took } from "../../lib/time";
import { Band, Button } from "../../ui/parts";
import type { Run } from "./useRun";

export interface Choices {
  readOnly: boolean;
  rowsMax: number;
}

const ROWS = [100, 1000, 10_000, 100_000];
const TICK_MS = 100;

interface BarProps {
  choices: Choices;
  why: string | undefined;
  /** When what runs was begun. */
  began: number | undefined;
  onChoose: (choices: Choices) => void;
  onRun: (all: boolean, isExplained?: boolean) => void;
  onStop: () => void;
}

/** What is done with the text of the editor. */
export function Bar({ choices, why, began, onChoose, onRun, onStop }: BarProps) {
  return (
    <div className="run-bar">
      {began === undefined ? (
        <Button kind="main" why={why} title="Ctrl Enter: the statement at the cursor, or what is selected" onClick={() => onRun(false)}>
          <Play aria-hidden="true" />
          Run
        </Button>
      ) : (
        <Button kind="danger" onClick={onStop}>
          <Square aria-hidden="true" />
          Stop <Clock began={began} />
        </Button>
      )}
      <Button why={why} disabled={began !== undefined} title="Ctrl Shift Enter" onClick={() => onRun(true)}>
        Run all
      </Button>
      <Button why={why} disabled={began !== undefined} title="How the statement at the cursor runs" onClick={() => onRun(false, true)}>
        <Waypoints aria-hidden="true" />
        Explain
      </Button>
      <label className="check read-only" title="Against accidents, no boundary: the session starts read-only, which a statement can change">
        <input
          type="checkbox"
          role="switch"
          checked={choices.readOnly}
          onChange={(event) => onChoose({ ...choices, readOnly: event.target.checked })}
        />
        Read only
        <span className="quiet">against accidents</span>
      </label>
      <select
        className="select fit rows-max"
        aria-label="Max rows"
        title="How many rows of a result are fetched"
        value={choices.rowsMax}
        onChange={(event) => onChoose({ ...choices, rowsMax: Number(event.target.value) })}
      >
        {ROWS.map((count) => (
          <option key={count} value={count}>
            {count.toLocaleString("en")} rows
          </option>
        ))}
      </select>
    </div>
  );
}

function Clock({ began }: { began: number }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return <span>{took(Math.max(0, now - began))}</span>;
}

/** Says what became of what was stopped. */
export function Stopped({ run }: { run: Run }) {
  return (
    <Band kind="info">
      Stopped after {took(run.took ?? 0)}. The server was told to cancel it; of statements that were done before, what they
      changed stays.
    </Band>
  );
}
