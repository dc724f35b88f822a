import { Link } from "@tanstack/react-router";
import { Eye, Table2 } from "lucide-react";
import { useRef, useState } from "react";
import type { Relation } from "../../api/sql";
import { useKeys } from "../../app/keys";
import { fullName, kindOf } from "../../lib/tables";
import { SearchField } from "../../ui/parts";

interface ListProps {
  relations: Relation[];
  chosen: Relation;
  /** Whether there are more. */
  isCut: boolean;
}

/** About how many, as a number that fits into a list. */
function about(rows: number | null): string {
  return rows === null ? "" : `≈ ${new Intl.NumberFormat("en", { notation: "compact" }).format(rows)}`;
}

/** The tables by schema. */
export function List({ relations, chosen, isCut }: ListProps) {
  const [letters, setLetters] = useState("");
  const field = useRef<HTMLInputElement>(null);
  useKeys({ "/": () => field.current?.focus() });
  const shown = relations.filter((relation) => fullName(relation).toLowerCase().includes(letters.toLowerCase()));
  const schemas = [...new Set(shown.map(({ schema }) => schema))];
  return (
    <nav className="card choices links" aria-label="Tables">
      <SearchField
        field={field}
        label="Find a table"
        placeholder="Find  /"
        value={letters}
        onChange={(text) => setLetters(text)}
      />
      <div className="groups">
        {schemas.map((schema) => (
          <section key={schema} aria-label={`Schema ${schema}`}>
            <h2>{schema}</h2>
            <ul>
              {shown
                .filter((relation) => relation.schema === schema)
                .map((relation) => (
                  <li key={relation.name}>
                    <Link
                      to="."
                      search={{ table: fullName(relation) } as never}
                      className={relation === chosen ? "is-chosen" : undefined}
                      aria-current={relation === chosen ? "true" : undefined}
                      title={`${relation.name}, a ${kindOf(relation.kind)}`}
                    >
                      {relation.kind === "v" || relation.kind === "m" ? (
                        <Eye aria-label={kindOf(relation.kind)} />
                      ) : (
                        <Table2 aria-hidden="true" />
                      )}
                      <span className="name">{relation.name}</span>
                      <span className="quiet">{about(relation.rows)}</span>
                    </Link>
                  </li>
                ))}
            </ul>
          </section>
        ))}
        {shown.length === 0 && <p className="quiet">Nothing is called that.</p>}
        {isCut && <p className="quiet">There are more; SQL finds them.</p>}
      </div>
    </nav>
  );
}
