import type { Schemas } from "../../api/client";
import { bytes, counted } from "../../lib/amounts";
import { Band } from "../../ui/parts";
import { Ago } from "../../ui/Times";

/** Rows of the table until more are asked for. */
const SHOWN = 12;

interface ChangedBytesProps {
  changed: Schemas["ChangedBytes"];
  /** The name of the other branch. */
  against: string;
}

/** How much of each table is not on the disk of the other branch, the most first. */
export function ChangedBytes({ changed, against }: ChangedBytesProps) {
  const [first, rest] = [changed.relations.slice(0, SHOWN), changed.relations.slice(SHOWN)];
  const most = first[0]?.changedBytes ?? 0;
  return (
    <section className="card" aria-labelledby="bytes">
      <header>
        <h2 id="bytes">Bytes changed</h2>
        <p className="quiet">
          {changed.unknown == null
            ? `${bytes(changed.changedBytes)} of ${bytes(changed.totalBytes)} are not the blocks that ${against} has`
            : "unknown"}
        </p>
      </header>
      <div className="inside diff-bytes">
        {changed.unknown != null && <Band kind="info">It can’t be told: {changed.unknown}.</Band>}
        {changed.unknown == null && changed.relations.length === 0 && (
          <p>No table has a block that {against} has not.</p>
        )}
        {first.length > 0 && <Relations relations={first} most={most} label="Bytes changed by table" />}
        {rest.length > 0 && (
          <details>
            <summary>{counted(rest.length, "more")}</summary>
            <Relations relations={rest} most={most} label="Bytes changed, the other tables" />
          </details>
        )}
        {changed.leftOff > 0 && <p className="quiet">Of {counted(changed.leftOff, "other table")} even less.</p>}
        {changed.unknown == null && <Honestly changed={changed} against={against} />}
      </div>
    </section>
  );
}

/** What these numbers are, and are not. */
function Honestly({ changed, against }: ChangedBytesProps) {
  return (
    <p className="quiet">
      Blocks on the disk, with those of indexes, that either branch wrote since they were one; not rows: VACUUM writes
      blocks, too. What {against} wrote counts where this branch still has the block as it was.
      {changed.checkpointedAt && (
        <>
          {" "}
          Complete up to this branch’s last checkpoint, which began <Ago at={changed.checkpointedAt} />.
        </>
      )}
    </p>
  );
}

interface RelationsProps {
  relations: Schemas["RelationBytes"][];
  /** Bytes of the longest bar. */
  most: number;
  label: string;
}

function Relations({ relations, most, label }: RelationsProps) {
  return (
    <div>
      <table className="table" aria-label={label}>
        <thead>
          <tr>
            <th>Table</th>
            <th className="number">Changed</th>
            <th className="number">Of</th>
            <th>
              <span className="hidden-visually">Beside the others</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {relations.map((relation) => (
            <tr key={relation.name}>
              <th scope="row" title={relation.kind}>
                {relation.name}
              </th>
              <td className="number">{bytes(relation.changedBytes)}</td>
              <td className="number quiet">{bytes(relation.bytes)}</td>
              <td className="bar" aria-hidden="true">
                <span style={{ width: `${(relation.changedBytes / most) * 100}%` }} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
