import { counted } from "../../lib/amounts";
import type { Plan, PlanLine } from "../../lib/explain";
import { brief } from "../../lib/time";

/** Where the time of a statement goes. */
export function PlanTree({ plan }: { plan: Plan }) {
  const isRun = plan.execution !== undefined;
  const most = Math.max(...plan.lines.map(({ own }) => own ?? 0), 0.001);
  return (
    <div className="plan">
      <p className="quiet">
        {isRun
          ? `Ran in ${brief(plan.execution ?? 0)}, planned in ${brief(plan.planning ?? 0)}. What it did was undone.`
          : "Only planned, not run, because it changes something: costs and rows are the planner's guess."}
      </p>
      <div className="wide" role="region" aria-label="Plan" tabIndex={0}>
        <table className="table">
          <thead>
            <tr>
              <th>Step</th>
              <th className="number">{isRun ? "Own time" : "Cost"}</th>
              <th className="number">Rows</th>
              <th className="number">Expected</th>
              {isRun && <th className="number">Pages</th>}
            </tr>
          </thead>
          <tbody>
            {plan.lines.map((line, index) => (
              <Step key={index} line={line} most={most} isRun={isRun} />
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

function Step({ line, most, isRun }: { line: PlanLine; most: number; isRun: boolean }) {
  const share = (line.own ?? 0) / most;
  return (
    <tr>
      <td style={{ paddingLeft: 12 + line.depth * 20 }}>
        <span className="step">{line.name}</span>
        {line.details.map((detail) => (
          <span key={detail} className="detail">
            {detail}
          </span>
        ))}
      </td>
      <td className="number">
        {line.own === undefined ? line.cost.toLocaleString("en") : brief(line.own)}
        {isRun && <span className="share" style={{ width: `${Math.round(share * 100)}%` }} />}
      </td>
      <td className="number">
        {line.rows === undefined ? "–" : line.rows.toLocaleString("en")}
        {line.loops !== undefined && line.loops !== 1 && (
          <span className="quiet"> × {line.loops.toLocaleString("en")}</span>
        )}
      </td>
      <td className="number">
        {line.rowsExpected.toLocaleString("en")}
        {line.wrong !== undefined && (
          <span className="wrong-guess">
            {Math.abs(line.wrong).toLocaleString("en")} times too {line.wrong > 0 ? "few" : "many"}
          </span>
        )}
      </td>
      {isRun && (
        <td className="number" title={`${counted(line.hit, "page")} found in memory, ${line.read.toLocaleString("en")} not`}>
          {line.hit + line.read === 0 ? "–" : (line.hit + line.read).toLocaleString("en")}
          {line.read > 0 && <span className="quiet"> {line.read.toLocaleString("en")} read</span>}
        </td>
      )}
    </tr>
  );
}
