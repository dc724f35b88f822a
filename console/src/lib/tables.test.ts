import { expect, test } from "vitest";
import { changeOf, fullName, kindOf, quoted, rowsOf, whyFixed } from "./tables";

const TABLE = {
  schema: "public",
  name: 'odd"; drop table x; --',
  columns: [
    { name: "id", type: "bigint" },
    { name: 'na"me', type: "text" },
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
      `select "id", "na""me" ${from} where strpos(lower("na""me"::text), lower($1)) > 0 and "id" <> $2 ` +
      'and "id" is not null order by "na""me" desc, "id" limit 101 offset 200',
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
  const where = 'where "id" = $2 and "na""me" is not null and format(\'%s\', "na""me") = $3';
  const change = { key: ["9223372036854775807"], column: 'na"me', before: "it's $1", after: null };
  expect(changeOf(table, change)).toEqual({
    query: `update only "public"."odd""; drop table x; --" set "na""me" = $1 ${where}`,
    params: [null, "9223372036854775807", "it's $1"],
    text:
      'update only "public"."odd""; drop table x; --" set "na""me" = null where "id" = \'9223372036854775807\' ' +
      "and \"na\"\"me\" is not null and format('%s', \"na\"\"me\") = 'it''s $1'",
  });
  const parts = changeOf({ ...table, kind: "p", key: ["id", 'na"me'] }, { ...change, key: ["1", "a"], before: null, after: "\\" });
  expect(parts.query).toBe(
    'update "public"."odd""; drop table x; --" set "na""me" = $1 where "id" = $2 and "na""me" = $3 and "na""me" is null',
  );
  expect(parts.text).toContain(`set "na""me" = e'\\\\' where`);
});

test("what has no key, and what is no table, is not changed", () => {
  expect(whyFixed({ ...TABLE, kind: "r" })).toBeUndefined();
  expect(whyFixed({ ...TABLE, kind: "r", key: [] })).toMatch(/primary key/);
  expect(whyFixed({ ...TABLE, kind: "v" })).toMatch(/view/);
});
