// Statements that read a table, with everything people choose as a parameter or a quoted name. Whoever may create
// something in a schema that names are looked for in could have a function or an operator of his own called as the
// page's role, so each is named with its schema.

export interface Named {
  schema: string;
  name: string;
  /** `operators`: the schema of those that compare a column's values. */
  columns: { name: string; type: string; operators: string }[];
  key: string[];
}

export const OPERATORS = ["=", "≠", "<", ">", "contains", "is null", "is not null"] as const;
export type Operator = (typeof OPERATORS)[number];

export interface Filter {
  column: string;
  operator: Operator;
  value: string;
}

export interface Order {
  column: string;
  isDown: boolean;
}

export const PAGE_ROWS = 100;

/** A name as SQL reads it, whatever is in it. */
export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** Compares a column with what is at a place of the statement. */
function compared({ columns }: Named, column: string, operator: "=" | "<" | ">", place: string): string {
  const schema = columns.find(({ name }) => name === column)?.operators ?? "pg_catalog";
  return `${quoted(column)} operator(${schema === "pg_catalog" ? schema : quoted(schema)}.${operator}) ${place}`;
}

/** As it is written out to be shown, whatever its type: not every type can be compared, and a cast may be anybody's. */
const written = (column: string) => `pg_catalog.format('%s', ${quoted(column)})`;

function condition(table: Named, { column, operator, value }: Filter, params: string[]): string {
  if (operator === "is null" || operator === "is not null") return `${quoted(column)} ${operator}`;
  const place = `$${params.push(value)}`;
  // The place of the text in the column's own, which has no characters with a meaning.
  if (operator === "contains") {
    return `pg_catalog.strpos(pg_catalog.lower(${written(column)}), pg_catalog.lower(${place})) operator(pg_catalog.>) 0`;
  }
  // Not every type that is compared has `<>`.
  if (operator === "≠") return `not ${compared(table, column, "=", place)}`;
  return compared(table, column, operator, place);
}

/** A page of rows, and one more that says whether there is another page. */
export function rowsOf(
  table: Named,
  { filters, order, page }: { filters: readonly Filter[]; order: Order | undefined; page: number },
): { query: string; params: string[] } {
  const params: string[] = [];
  const columns = table.columns.map(({ name }) => quoted(name)).join(", ");
  const where = filters.map((filter) => condition(table, filter, params)).join(" and ");
  const chosen = order ? [`${quoted(order.column)}${order.isDown ? " desc" : ""}`] : [];
  // The key makes the order the same each time.
  const key = table.key.filter((name) => name !== order?.column).map(quoted);
  const by = [...chosen, ...key].join(", ");
  const query = [
    `select ${columns} from ${quoted(table.schema)}.${quoted(table.name)}`,
    where && `where ${where}`,
    by && `order by ${by}`,
    `limit ${PAGE_ROWS + 1} offset ${page * PAGE_ROWS}`,
  ];
  return { query: query.filter((part) => part).join(" "), params };
}

/** A text, or NULL, as SQL reads it. */
function literal(value: string | null): string {
  if (value === null) return "null";
  const text = `'${value.replaceAll("'", "''")}'`;
  return value.includes("\\") ? `e${text.replaceAll("\\", "\\\\")}` : text;
}

export interface Change {
  /** The values of the key, in its order. */
  key: readonly (string | null)[];
  column: string;
  before: string | null;
  after: string | null;
}

/**
 * Gives one value of a row another content, as long as it is what was shown. With values as parameters, and as people
 * read it.
 */
export function changeOf(table: Named & { kind: string }, change: Change): { query: string; params: (string | null)[]; text: string } {
  const { key, column, before, after } = change;
  const name = quoted(column);
  const write = (place: (value: string | null) => string) => {
    // Tables that inherit from it have keys of their own.
    const only = table.kind === "r" ? "only " : "";
    const set = `update ${only}${quoted(table.schema)}.${quoted(table.name)} set ${name} = ${place(after)}`;
    const which = table.key.map((part, at) => compared(table, part, "=", place(key[at] ?? null)));
    const was =
      before === null ? `${name} is null` : `${name} is not null and ${written(column)} operator(pg_catalog.=) ${place(before)}`;
    return `${set} where ${[...which, was].join(" and ")}`;
  };
  const params: (string | null)[] = [];
  return { query: write((value) => `$${params.push(value)}`), params, text: write(literal) };
}

/** Why the rows of a table can't be changed here; nothing when they can. */
export function whyFixed({ kind, key }: Named & { kind: string }): string | undefined {
  if (kind !== "r" && kind !== "p") return `The rows of a ${kindOf(kind)} are changed with SQL.`;
  return key.length === 0 ? "Without a primary key nothing says which row is meant: change it with SQL." : undefined;
}

/** A relation's name as it is in addresses and lists. */
export function fullName({ schema, name }: { schema: string; name: string }): string {
  return schema === "public" ? name : `${schema}.${name}`;
}

const KINDS: Record<string, string> = { v: "view", m: "materialized view", f: "foreign table", p: "partitioned table" };

export function kindOf(kind: string): string {
  return KINDS[kind] ?? "table";
}
