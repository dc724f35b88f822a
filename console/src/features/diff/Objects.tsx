import { Link } from "@tanstack/react-router";
import { Diff as Changed, Minus, Plus } from "lucide-react";
import { useRef, useState } from "react";
import type { Schemas } from "../../api/client";
import { useKeys } from "../../app/keys";
import { counted } from "../../lib/amounts";
import { SearchField } from "../../ui/parts";

type ObjectDifference = Schemas["ObjectDifference"];

const SIGNS = { added: Plus, changed: Changed, removed: Minus };

/** More objects than one looks through; letters find the others. */
const SHOWN_MAX = 500;

interface ObjectsProps {
  objects: ObjectDifference[];
  chosen: ObjectDifference;
}

/** What is not the same, by kind. */
export function Objects({ objects, chosen }: ObjectsProps) {
  const [letters, setLetters] = useState("");
  const field = useRef<HTMLInputElement>(null);
  useKeys({ "/": () => field.current?.focus() });
  const found = objects.filter(({ kind, name }) => `${kind} ${name}`.toLowerCase().includes(letters.toLowerCase()));
  const shown = found.slice(0, SHOWN_MAX);
  const kinds = [...new Set(shown.map(({ kind }) => kind))];
  return (
    <nav className="card choices links" aria-label="Objects">
      <SearchField field={field} label="Find an object" placeholder="Find  /" value={letters} onChange={setLetters} />
      <div className="groups">
        {kinds.map((kind) => {
          const of = shown.filter((object) => object.kind === kind);
          return (
            <section key={kind} aria-label={kind}>
              <h2>
                {kind} <span className="quiet">{of.length}</span>
              </h2>
              <ul>
                {of.map((object) => {
                  const Sign = SIGNS[object.change];
                  return (
                    <li key={object.name}>
                      <Link
                        to="."
                        search={((before: object) => ({ ...before, object: `${object.kind} ${object.name}` })) as never}
                        replace
                        className={object === chosen ? "is-chosen" : undefined}
                        aria-current={object === chosen ? "true" : undefined}
                        title={`${object.name}, ${object.change}`}
                      >
                        <Sign className={object.change} aria-label={object.change} role="img" />
                        <span className="name">{object.name}</span>
                      </Link>
                    </li>
                  );
                })}
              </ul>
            </section>
          );
        })}
      </div>
      {found.length > SHOWN_MAX && <p className="quiet">{counted(found.length - SHOWN_MAX, "object")} more: find them by letters.</p>}
      {found.length === 0 && <p className="quiet">None has these letters.</p>}
    </nav>
  );
}
