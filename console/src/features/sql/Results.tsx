import { Download } from "lucide-react";
import { useEffect, useState } from "react";
import type { Notice, Result, SqlError } from "../../api/sql";
import { counted } from "../../lib/amounts";
import { readPlan } from "../../lib/explain";
import { asCsv, asJson } from "../../lib/results";
import { brief } from "../../lib/time";
import { Grid } from "../../ui/Grid";
import { Band, Button } from "../../ui/parts";
import { PlanTree } from "./PlanTree";
import { save } from "../../ui/save";
import type { Run } from "./useRun";

interface ResultsProps {
  run: Run;
  /** What the files of an export are called. */
  name: string;
  /** Shows the place in the editor that an error names. */
  onShow: (() => void) | undefined;
}

/** What came of a script: a result for each statement, the last one or the one that failed in view. */
export function Results({ run, name, onShow }: ResultsProps) {
  const results = run.answer?.results ?? [];
  const [chosen, setChosen] = useState(results.length - 1);
  // biome-ignore lint: with another answer the choice begins anew
  useEffect(() => setChosen(results.length - 1), [run.answer]);
  const at = Math.min(chosen, results.length - 1);
  const result = results[at];
  const left = run.script.asked.length - results.length;
  return (
    <section className="card results" aria-label="Results">
      {results.length > 1 && (
        <header>
          <div className="segments" role="group" aria-label="Result of">
            {results.map((one, index) => (
              <button key={index} type="button" aria-pressed={index === at} onClick={() => setChosen(index)}>
                {index + 1} {one.error ? "Error" : one.command || (one.isCut ? "Rows" : "Nothing")}
              </button>
            ))}
          </div>
        </header>
      )}
      {result && (
        <One
          key={at}
          result={result}
          query={run.script.asked[at]?.query ?? ""}
          isPlan={run.script.explain !== undefined}
          name={name}
          onShow={onShow}
        />
      )}
      {left > 0 && result?.error && (
        <p className="quiet note">{counted(left, "statement")} after it {left === 1 ? "was" : "were"} not run.</p>
      )}
      {run.answer?.inTransaction && (
        <Band kind="warn">
          The transaction was still open and is undone: each run is a session of its own, so put BEGIN and COMMIT into one.
        </Band>
      )}
    </section>
  );
}

interface OneProps {
  result: Result;
  query: string;
  isPlan: boolean;
  name: string;
  onShow: (() => void) | undefined;
}

function One({ result, query, isPlan, name, onShow }: OneProps) {
  const plan = isPlan ? readPlan(result.rows[0]?.[0] ?? "") : undefined;
  const { fields, rows, error } = result;
  return (
    <>
      <header className="of">
        <p>
          <strong>{error ? "Failed" : plan ? "Plan" : summary(result)}</strong> <span className="quiet">in {brief(result.milliseconds)}</span>{" "}
          <code className="quiet query">{query.slice(0, 200)}</code>
        </p>
        {fields.length > 0 && !plan && (
          <>
            <Button kind="bare" onClick={() => save(`${name}.csv`, "text/csv", asCsv(fields, rows))}>
              <Download aria-hidden="true" />
              CSV
            </Button>
            <Button kind="bare" onClick={() => save(`${name}.json`, "application/json", asJson(fields, rows))}>
              <Download aria-hidden="true" />
              JSON
            </Button>
          </>
        )}
      </header>
      {error && <Wrong error={error} onShow={onShow} />}
      {result.notices.length > 0 && <Notices notices={result.notices} leftOff={result.noticesLeftOff} />}
      {result.isCut && (
        <Band kind="info">
          These are the first {counted(rows.length, "row")}; there are more. Choose more rows above, or narrow it down with
          WHERE. An answer has at most 32 MiB.
        </Band>
      )}
      {plan && <PlanTree plan={plan} />}
      {!plan && fields.length > 0 && <Grid label="Rows" fields={fields} rows={rows} />}
    </>
  );
}

function summary({ command, rowCount, rows, fields, isCut }: Result): string {
  if (isCut) return `${command} ${counted(rows.length, "row")} and more`.trim();
  if (command === "") return fields.length === 0 ? "Nothing to do" : counted(rows.length, "row");
  return rowCount === null ? command : `${command} ${counted(rowCount, "row")}`;
}

function Wrong({ error, onShow }: { error: SqlError; onShow: (() => void) | undefined }) {
  const isReadOnly = error.code === "25006";
  return (
    <Band kind="bad" action={error.position && onShow && <Button onClick={onShow}>Show where</Button>}>
      <strong>{error.message}</strong> {error.code && <code>{error.code}</code>}
      {[error.detail, error.hint, isReadOnly && "Switch off “Read only” to let it change something."]
        .filter((more) => more)
        .map((more) => (
          <span key={String(more)} className="more">
            {more}
          </span>
        ))}
      {error.where && <span className="context">{error.where}</span>}
    </Band>
  );
}

function Notices({ notices, leftOff }: { notices: Notice[]; leftOff: number }) {
  return (
    <ul className="notices" aria-label="Notices">
      {notices.map((notice, index) => (
        <li key={index}>
          <strong>{notice.severity ?? "NOTICE"}</strong> {notice.message} {notice.detail} {notice.hint}
        </li>
      ))}
      {leftOff > 0 && <li className="quiet">and {counted(leftOff, "notice")} more</li>}
    </ul>
  );
}
