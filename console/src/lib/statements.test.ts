import { expect, test } from "vitest";
import { firstWord, isKept, placeOf, statementAt, statements, writes } from "./statements";

const texts = (script: string) => statements(script).map(({ from, to }) => script.slice(from, to));

test("a script is split at the semicolons that end a statement", () => {
  for (const [script, expected] of [
    ["select 1; select 2 ;\n\nselect 3", ["select 1", "select 2", "select 3"]],
    [";; ;", []],
    ["-- nothing\n/* at ; all */", []],
    ["select ';'';'; select 2", ["select ';'';'", "select 2"]],
    ["select e'\\';'; select 2", ["select e'\\';'", "select 2"]],
    ["select '\\'; select 2", ["select '\\'", "select 2"]],
    ['select 1 as ";"";"; select 2', ['select 1 as ";"";"', "select 2"]],
    ["select 1 -- ;\n, 2; select 3", ["select 1 -- ;\n, 2", "select 3"]],
    ["/* a /* ; */ ; */ select 1; select 2", ["/* a /* ; */ ; */ select 1", "select 2"]],
    ["select 1 -- the last one", ["select 1"]],
    ["do $$begin; end$$; select 2", ["do $$begin; end$$", "select 2"]],
    ["select $a$;$$;$b$;$a$; select 2", ["select $a$;$$;$b$;$a$", "select 2"]],
    ["select a$b, $1; select 2$3", ["select a$b, $1", "select 2$3"]],
    ["create rule r as on insert to t do (select 1; select 2); select 3", ["create rule r as on insert to t do (select 1; select 2)", "select 3"]],
    [
      "create or replace function f() returns int begin atomic select case 1 when 1 then 2 end; select 2; end; select 3",
      ["create or replace function f() returns int begin atomic select case 1 when 1 then 2 end; select 2; end", "select 3"],
    ],
    ["begin; select 1; end; select 2", ["begin", "select 1", "end", "select 2"]],
    ["select 'open; select 2", ["select 'open; select 2"]],
    ["select )1(; select 2", ["select )1(; select 2"]],
  ] as const) {
    expect(texts(script), script).toEqual(expected);
  }
});

test("the statement at the cursor is the one it is in or right behind", () => {
  const script = "select 1;\n\n-- two\nselect 2; select 3;";
  const at = (place: number) => {
    const span = statementAt(script, place);
    return span && script.slice(span.from, span.to);
  };
  expect([0, 8, 9, 10].map(at)).toEqual(Array(4).fill("select 1"));
  expect(at(script.indexOf("two"))).toBe("-- two\nselect 2");
  expect(at(script.length)).toBe("select 3");
  expect(statementAt("  select 1", 0)).toEqual({ from: 2, to: 10 });
  expect(statementAt("-- nothing", 3)).toBeUndefined();
});

test("PostgreSQL counts characters, and a browser halves of them", () => {
  expect(placeOf("select '🌱', x", 13)).toBe(13);
  expect(placeOf("select '🌱', x", 1)).toBe(0);
  expect(placeOf("abc", 99)).toBe(3);
});

test("what changes rows is known by its words", () => {
  for (const one of ["select 1", " -- x\n(select 1)", "values (1)", "table t", "with a as (select 1) select * from a"]) {
    expect(writes(one), one).toBe(false);
  }
  for (const one of ["delete from t", "with a as (delete from t returning 1) select 1", "create table t ()", "call f()"]) {
    expect(writes(one), one).toBe(true);
  }
  expect(firstWord("/* a */ -- b\n  SeLect 1")).toBe("select");
  expect([isKept("select 1"), isKept("alter role a PASSWORD 'x'")]).toEqual([true, false]);
});
