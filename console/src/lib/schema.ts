// The catalogue as a tree: schemas, what is in them, and columns.
import { kindOf } from "./tables";

interface Column {
  name: string;
  type: string;
}

interface Relation {
  schema: string;
  name: string;
  kind: string;
  columns: Column[];
}

/** A line of the tree. */
export interface Node {
  /** Where it is; the same as long as its name is. */
  id: string;
  /** From 1. */
  level: number;
  kind: "schema" | "relation" | "column" | "more";
  name: string;
  /** What it is, or its type. */
  says: string;
  /** Whether what is in it is shown; nothing is in it where this is missing. */
  isOpen?: boolean;
  /** Its parts, as SQL names them. */
  path: string[];
}

/** Most relations of a schema that are shown; letters find the others. */
const SHOWN_MAX = 500;

/** A name as a statement has it: as it is where that will do. */
export function identifier(name: string, reserved: ReadonlySet<string>): string {
  return /^[a-z_][a-z0-9_$]*$/.test(name) && !reserved.has(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

/** The lines that are to be seen: those whose names have these letters, below what is open. */
export function schemaTree(relations: readonly Relation[], opened: ReadonlySet<string>, letters: string): Node[] {
  const text = letters.trim().toLowerCase();
  const fits = ({ name, columns }: Relation) =>
    name.toLowerCase().includes(text) || columns.some((column) => column.name.toLowerCase().includes(text));
  const schemas = [...new Set(relations.map(({ schema }) => schema))];
  return schemas.flatMap((schema) => {
    const inside = relations.filter((relation) => relation.schema === schema && (!text || fits(relation)));
    if (inside.length === 0) return [];
    // Whoever looks for something wants to see it.
    const isOpen = text !== "" || opened.has(schema);
    const own: Node = { id: schema, level: 1, kind: "schema", name: schema, says: "schema", isOpen, path: [schema] };
    return isOpen ? [own, ...inside.slice(0, SHOWN_MAX).flatMap((one) => below(one, opened)), ...left(schema, inside)] : [own];
  });
}

function below({ schema, name, kind, columns }: Relation, opened: ReadonlySet<string>): Node[] {
  const id = JSON.stringify([schema, name]);
  const isOpen = opened.has(id);
  const path = schema === "public" ? [name] : [schema, name];
  const own: Node = { id, level: 2, kind: "relation", name, says: kindOf(kind), isOpen, path };
  if (!isOpen) return [own];
  const inside = columns.map((column): Node => {
    const { name: called, type } = column;
    return { id: JSON.stringify([schema, name, called]), level: 3, kind: "column", name: called, says: type, path: [called] };
  });
  return [own, ...inside];
}

function left(schema: string, inside: readonly Relation[]): Node[] {
  const count = inside.length - SHOWN_MAX;
  const name = `${count} more: find them by letters`;
  return count > 0 ? [{ id: `${schema} more`, level: 2, kind: "more", name, says: "", path: [] }] : [];
}
