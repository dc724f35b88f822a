import { expect, test } from "vitest";
import { changeOf, fullName, kindOf, OPERATORS, quoted, rowsOf, whyFixed } from "./tables";

const TABLE = {
  schema: "public",
  name: 'odd"; drop table x; --',
  columns: [
    { name: "id", type: "bigint", operators: "pg_catalog" },
    { name: 'na"me', type: "text", operators: "pg_catalog" },
  ],
  key: ["id"],
};
const NOTHING = { filters: [], order: undefined, page: 0 };

test("names are quoted and values are parameters, whatever is in them", () => {
  expect(quoted('a"b')).toBe('"a""b"');
  const from = 'from "public"."odd""; drop table x; --"';
  expect(rowsOf(TABLE, NOTHING)).toEqual({
    query: `select "id", "na""me" ${from} order by "id" limit 101 offset 0`,
    params: [],
  });
  const filters = [
    { column: 'na"me', operator: "contains", value: "%'; drop table y" },
    { column: "id", operator: "≠", value: "9223372036854775807" },
    { column: "id", operator: "is not null", value: "left over" },
  ] as const;
  expect(rowsOf(TABLE, { filters, order: { column: 'na"me', isDown: true }, page: 2 })).toEqual({
    query:
      `select "id", "na""me" ${from} where pg_catalog.strpos(pg_catalog.lower(pg_catalog.format('%s', "na""me")), ` +
      'pg_catalog.lower($1)) operator(pg_catalog.>) 0 and not "id" operator(pg_catalog.=) $2 and "id" is not null order by "na""me" desc, "id" limit 101 offset 200',
    params: ["%'; drop table y", "9223372036854775807"],
  });
});

test("rows without a key are in no order unless one is chosen", () => {
  const bare = { ...TABLE, name: "t", key: [] };
  expect(rowsOf(bare, NOTHING).query).toBe('select "id", "na""me" from "public"."t" limit 101 offset 0');
  const byKey = rowsOf({ ...TABLE, name: "t" }, { ...NOTHING, order: { column: "id", isDown: true } });
  expect(byKey.query).toContain('order by "id" desc limit');
});

test("relations are called as people do", () => {
  expect([fullName({ schema: "public", name: "t" }), fullName({ schema: "s", name: "t" })]).toEqual(["t", "s.t"]);
  expect([kindOf("r"), kindOf("m")]).toEqual(["table", "materialized view"]);
});

test("a value is changed in the row that was shown, as long as it is what was shown", () => {
  const table = { ...TABLE, kind: "r" };
  const same = "operator(pg_catalog.=)";
  const where = `where "id" ${same} $2 and "na""me" is not null and pg_catalog.format('%s', "na""me") ${same} $3`;
  const change = { key: ["9223372036854775807"], column: 'na"me', before: "it's $1", after: null };
  expect(changeOf(table, change)).toEqual({
    query: `update only "public"."odd""; drop table x; --" set "na""me" = $1 ${where}`,
    params: [null, "9223372036854775807", "it's $1"],
    text:
      `update only "public"."odd""; drop table x; --" set "na""me" = null where "id" ${same} '9223372036854775807' ` +
      `and "na""me" is not null and pg_catalog.format('%s', "na""me") ${same} 'it''s $1'`,
  });
  const parts = changeOf({ ...table, kind: "p", key: ["id", 'na"me'] }, { ...change, key: ["1", "a"], before: null, after: "\\" });
  expect(parts.query).toBe(
    `update "public"."odd""; drop table x; --" set "na""me" = $1 where "id" ${same} $2 and "na""me" ${same} $3 and "na""me" is null`,
  );
  expect(parts.text).toContain(`set "na""me" = e'\\\\' where`);
});

test("a type of an extension is compared by what its extension brought", () => {
  const columns = [{ name: "email", type: "citext", operators: 'ext"s' }];
  const table = { schema: "public", name: "people", columns, key: ["email"], kind: "r" };
  const filters = [{ column: "email", operator: "=", value: "ada" }] as const;
  expect(rowsOf(table, { ...NOTHING, filters }).query).toContain('where "email" operator("ext""s".=) $1 order by');
  const change = { key: ["ada"], column: "email", before: null, after: "eve" };
  expect(changeOf(table, change).query).toContain('where "email" operator("ext""s".=) $2 and "email" is null');
});

/** What of a statement is looked for in schemas that others may put something into. */
function loose(statement: string): string[] {
  const named = statement
    .replace(/"([^"]|"")*"/g, '""')
    .replace(/'([^']|'')*'/g, "''")
    .replace(/\bset "" = /g, "")
    .replace(/\boperator\((pg_catalog|"")\.[<>=]+\)/g, "")
    .replace(/\bpg_catalog\.\w+\(/g, "");
  return named.match(/\w+ *\(|::|[-<>=~!@#%^&|`?+*/]|\b(in|like|ilike|between|any|all|case|nullif|distinct|using|cast|similar)\b/gi) ?? [];
}

test("nothing that others may have made in the database is called", () => {
  expect(loose(`select a = 1, lower("b")::text, 'c' in (d) from "t"`)).toEqual(["=", "lower(", "::", "in ("]);
  const columns = ["pg_catalog", "public"].map((operators) => ({ name: operators, type: "text", operators }));
  const filters = columns.flatMap(({ name }) => OPERATORS.map((operator) => ({ column: name, operator, value: "v" })));
  const table = { schema: "public", name: "t", columns, key: ["pg_catalog", "public"], kind: "r" };
  expect(loose(rowsOf(table, { filters, order: { column: "public", isDown: true }, page: 1 }).query)).toEqual([]);
  for (const [before, after] of [[null, "b"], ["a", null], ["a", "\\"]] as const) {
    const { query, text } = changeOf(table, { key: ["k", null], column: "public", before, after });
    expect([...loose(query), ...loose(text.replace(/\be'/g, "'"))]).toEqual([]);
  }
});

test("what has no key, and what is no table, is not changed", () => {
  expect(whyFixed({ ...TABLE, kind: "r" })).toBeUndefined();
  expect(whyFixed({ ...TABLE, kind: "r", key: [] })).toMatch(/primary key/);
  expect(whyFixed({ ...TABLE, kind: "v" })).toMatch(/view/);
});
