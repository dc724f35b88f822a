import type { Schemas } from "../../api/client";
import { compareLines, type Line } from "../../lib/lines";

interface DefinitionsProps {
  object: Schemas["ObjectDifference"];
  /** Names of the branches. */
  before: string;
  after: string;
}

/** What an object is on both branches, side by side. */
export function Definitions({ object, before, after }: DefinitionsProps) {
  const lines = compareLines(object.before ?? null, object.after ?? null);
  return (
    <section className="card definitions" aria-labelledby="object">
      <header>
        <h2 id="object">
          {object.kind} {object.name}
        </h2>
        <p className="quiet">{object.change}</p>
      </header>
      <div className="sides">
        <Side title={`On ${before}`} lines={lines.before} isThere={object.before != null} mark="removed" />
        <Side title={`On ${after}`} lines={lines.after} isThere={object.after != null} mark="added" />
      </div>
    </section>
  );
}

interface SideProps {
  title: string;
  lines: Line[];
  isThere: boolean;
  mark: "added" | "removed";
}

function Side({ title, lines, isThere, mark }: SideProps) {
  const sign = mark === "added" ? "+" : "-";
  return (
    <div className="side">
      <h3>{title}</h3>
      {isThere ? (
        <pre tabIndex={0} aria-label={title}>
          {lines.map((line, index) => (
            <span key={index} className={line.isSame ? undefined : mark}>
              {line.isSame ? "  " : `${sign} `}
              {line.text}
              {"\n"}
            </span>
          ))}
        </pre>
      ) : (
        <p className="quiet">It is not there.</p>
      )}
    </div>
  );
}
