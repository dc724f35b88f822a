import type { UseQueryResult } from "@tanstack/react-query";
import { ChevronRight, Eye, Rows3, Table2 } from "lucide-react";
import { type KeyboardEvent, useMemo, useRef, useState } from "react";
import type { Catalogue } from "../../api/sql";
import { identifier, type Node, schemaTree } from "../../lib/schema";
import { Outlines, SearchField } from "../../ui/parts";
import { Trouble } from "../../ui/Trouble";

interface SchemaProps {
  catalogue: UseQueryResult<Catalogue>;
  why: string | undefined;
  isAsleep: boolean;
  /** Puts a name where the cursor is. */
  onInsert: (name: string) => void;
  /** Shows what a statement reads. */
  onLook: (statement: string) => void;
}

/** What there is to name in a statement, beside it. */
export function Schema({ catalogue, why, isAsleep, onInsert, onLook }: SchemaProps) {
  const { data, error, isFetching, refetch } = catalogue;
  return (
    <aside className="card choices schema" aria-label="Schema">
      {data ? (
        <Names catalogue={data} onInsert={onInsert} onLook={onLook} />
      ) : error ? (
        <Trouble error={error} again={() => void refetch()} />
      ) : isFetching ? (
        <Outlines count={5} />
      ) : (
        <p className="quiet">
          {why ? "It is read with the password." : isAsleep ? "It is read once something wakes the branch." : "…"}
        </p>
      )}
    </aside>
  );
}

interface NamesProps {
  catalogue: Catalogue;
  onInsert: (name: string) => void;
  onLook: (statement: string) => void;
}

function Names({ catalogue, onInsert, onLook }: NamesProps) {
  const { relations, reserved, isCut } = catalogue;
  const [letters, setLetters] = useState("");
  const [opened, setOpened] = useState<ReadonlySet<string>>(() => new Set(["public", relations[0]?.schema ?? ""]));
  const [focused, setFocused] = useState("");
  const tree = useRef<HTMLDivElement>(null);
  const nodes = useMemo(() => schemaTree(relations, opened, letters), [relations, opened, letters]);
  const at = Math.max(0, nodes.findIndex(({ id }) => id === focused));
  const nameOf = ({ path }: Node) => path.map((part) => identifier(part, reserved)).join(".");
  const look = (node: Node) => onLook(`select * from ${nameOf(node)} limit 100;`);
  const turn = (node: Node) => {
    const after = new Set(opened);
    if (!after.delete(node.id)) after.add(node.id);
    setOpened(after);
  };
  const use = (node: Node) => {
    if (node.kind === "schema") turn(node);
    else if (node.kind !== "more") onInsert(nameOf(node));
  };
  const focus = (index: number) => tree.current?.querySelectorAll<HTMLElement>("[role=treeitem]")[index]?.focus();
  const hear = (event: KeyboardEvent) => {
    const node = nodes[at];
    if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
    const parent = nodes.findLastIndex((other, index) => index < at && other.level < node.level);
    const keys: Record<string, () => void> = {
      ArrowDown: () => focus(at + 1),
      ArrowUp: () => focus(at - 1),
      Home: () => focus(0),
      End: () => focus(nodes.length - 1),
      ArrowRight: () => (node.isOpen === false ? turn(node) : node.isOpen && focus(at + 1)),
      ArrowLeft: () => (node.isOpen ? turn(node) : focus(parent)),
      Enter: () => (event.shiftKey && node.kind === "relation" ? look(node) : use(node)),
    };
    const heard = keys[event.key];
    if (!heard) return;
    event.preventDefault();
    heard();
  };
  return (
    <>
      <SearchField label="Find a table or column" placeholder="Find" value={letters} onChange={setLetters} />
      {relations.length === 0 && <p className="quiet">No tables yet.</p>}
      {relations.length > 0 && nodes.length === 0 && <p className="quiet">Nothing is called that.</p>}
      <div
        className="groups"
        role="tree"
        aria-label="Tables and columns"
        ref={tree}
        onKeyDown={hear}
      >
        {nodes.map((node, index) => (
          <Line
            key={node.id}
            node={node}
            hasFocus={index === at}
            onFocus={() => setFocused(node.id)}
            onTurn={() => turn(node)}
            onUse={() => use(node)}
            onLook={() => look(node)}
          />
        ))}
      </div>
      {isCut && <p className="quiet">There are more; SQL finds them.</p>}
    </>
  );
}

interface LineProps {
  node: Node;
  hasFocus: boolean;
  onFocus: () => void;
  onTurn: () => void;
  onUse: () => void;
  onLook: () => void;
}

function Line({ node, hasFocus, onFocus, onTurn, onUse, onLook }: LineProps) {
  const { level, kind, name, says, isOpen } = node;
  const Icon = says.endsWith("view") ? Eye : Table2;
  return (
    <div
      role="treeitem"
      className={`line level-${level}`}
      aria-level={level}
      aria-expanded={isOpen}
      tabIndex={hasFocus ? 0 : -1}
      title={kind === "relation" ? `${name}, a ${says}. Enter inserts its name, Shift Enter shows its first rows` : `${name} ${says}`}
      onFocus={onFocus}
      onClick={onUse}
    >
      {isOpen !== undefined && (
        <ChevronRight
          aria-hidden="true"
          className={isOpen ? "fold is-open" : "fold"}
          onClick={(event) => {
            event.stopPropagation();
            onTurn();
          }}
        />
      )}
      {kind === "relation" && <Icon aria-hidden="true" />}
      <span className="name">{name}</span>{" "}
      <span className={kind === "column" ? "quiet type" : "hidden-visually"}>{says}</span>
      {kind === "relation" && (
        <button
          type="button"
          className="knob look"
          tabIndex={-1}
          aria-hidden="true"
          title="First rows"
          onClick={(event) => {
            event.stopPropagation();
            onLook();
          }}
        >
          <Rows3 aria-hidden="true" />
        </button>
      )}
    </div>
  );
}
