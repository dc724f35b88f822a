// What came of a statement, and its forms outside of the page.

export interface Field {
  name: string;
  dataTypeID: number;
}

/** Values as PostgreSQL writes them; null is NULL. */
export type Row = (string | null)[];

const [BOOL, INT8, INT2, INT4, JSON_TYPE, FLOAT4, FLOAT8, NUMERIC, JSONB] = [16, 20, 21, 23, 114, 700, 701, 1700, 3802];
const NUMBERS = new Set([INT8, INT2, INT4, FLOAT4, FLOAT8, NUMERIC, 26, 790]);
const EXACT_IN_JSON = new Set([INT2, INT4, FLOAT4, FLOAT8]);

export function isNumber(field: Field): boolean {
  return NUMBERS.has(field.dataTypeID);
}

function quoted(value: string | null): string {
  if (value === null) return "";
  return value === "" || /[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
}

/** As COPY writes it (CSV with a header): NULL is nothing, and an empty text `""`. Every value is as it was. */
export function asCsv(fields: readonly Field[], rows: readonly Row[]): string[] {
  const head = `${fields.map(({ name }) => quoted(name)).join(",")}\r\n`;
  return [head, ...rows.map((row) => `${row.map(quoted).join(",")}\r\n`)];
}

function asJsonValue({ dataTypeID }: Field, value: string | null): string {
  if (value === null) return "null";
  if (dataTypeID === BOOL) return value === "t" ? "true" : "false";
  if (dataTypeID === JSON_TYPE || dataTypeID === JSONB) return value;
  // Others would lose digits where they are read.
  if (EXACT_IN_JSON.has(dataTypeID) && Number.isFinite(Number(value))) return value;
  return JSON.stringify(value);
}

/** Names of their own, for columns that have the same. */
export function distinct(names: readonly string[]): string[] {
  const seen = new Set<string>();
  return names.map((name) => {
    let [free, count] = [name, 1];
    while (seen.has(free)) free = `${name}_${(count += 1)}`;
    seen.add(free);
    return free;
  });
}

/** A list of objects; int8 and numeric are texts, with all their digits. */
export function asJson(fields: readonly Field[], rows: readonly Row[]): string[] {
  const names = distinct(fields.map(({ name }) => name)).map((name) => JSON.stringify(name));
  const line = (row: Row) =>
    `  {${fields.map((field, at) => `${names[at]}: ${asJsonValue(field, row[at] ?? null)}`).join(", ")}}`;
  return ["[\n", ...rows.map((row, at) => `${line(row)}${at < rows.length - 1 ? "," : ""}\n`), "]\n"];
}

const CELL_MAX = 200;

/** What a cell shows of a value. */
export function cut(value: string): string {
  const line = value.length > CELL_MAX ? `${value.slice(0, CELL_MAX)}…` : value;
  return line.replaceAll(/\r?\n/g, "↵");
}

const [WIDTH_MIN, WIDTH_MAX, CHARACTER, PADDING] = [56, 420, 7.9, 25];
const SAMPLE = 400;

/** How wide columns are, in pixels, by some of their values. */
export function widths(fields: readonly Field[], rows: readonly Row[]): number[] {
  const step = Math.max(1, Math.floor(rows.length / SAMPLE));
  const some = rows.filter((_, at) => at % step === 0 || at === rows.length - 1);
  return fields.map(({ name }, at) => {
    const lengths = some.map((row) => cut(row[at] ?? "NULL").length);
    const most = Math.max(name.length + 1, ...lengths);
    return Math.ceil(Math.min(WIDTH_MAX, Math.max(WIDTH_MIN, most * CHARACTER + PADDING)));
  });
}

const BESIDE = 12;

/** The rows that can be seen, and some before and after them; the end is not one of them. */
export function inView(count: number, rowHeight: number, scrolled: number, height: number): [from: number, to: number] {
  const first = Math.floor(scrolled / rowHeight) - BESIDE;
  const last = Math.ceil((scrolled + height) / rowHeight) + BESIDE;
  return [Math.min(Math.max(0, first), count), Math.min(count, Math.max(0, last))];
}
