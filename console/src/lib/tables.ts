// Statements that read a table, with everything people choose as a parameter or a quoted name.

export interface Named {
  schema: string;
  name: string;
  columns: { name: string; type: string }[];
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

function condition({ column, operator, value }: Filter, params: string[]): string {
  const name = quoted(column);
  if (operator === "is null" || operator === "is not null") return `${name} ${operator}`;
  const place = `$${params.push(value)}`;
  // The place of the text in the column's own, which has no characters with a meaning.
  if (operator === "contains") return `strpos(lower(${name}::text), lower(${place})) > 0`;
  return `${name} ${operator === "≠" ? "<>" : operator} ${place}`;
}

/** A page of rows, and one more that says whether there is another page. */
export function rowsOf(
  table: Named,
  { filters, order, page }: { filters: readonly Filter[]; order: Order | undefined; page: number },
): { query: string; params: string[] } {
  const params: string[] = [];
  const columns = table.columns.map(({ name }) => quoted(name)).join(", ");
  const where = filters.map((filter) => condition(filter, params)).join(" and ");
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

/** A relation's name as it is in addresses and lists. */
export function fullName({ schema, name }: { schema: string; name: string }): string {
  return schema === "public" ? name : `${schema}.${name}`;
}

const KINDS: Record<string, string> = { v: "view", m: "materialized view", f: "foreign table", p: "partitioned table" };

export function kindOf(kind: string): string {
  return KINDS[kind] ?? "table";
}
