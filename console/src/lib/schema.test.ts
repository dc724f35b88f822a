import { expect, test } from "vitest";
import { identifier, schemaTree } from "./schema";

const columns = [
  { name: "id", type: "integer" },
  { name: "Tree", type: "text" },
];
const relations = [
  { schema: "public", name: "grove", kind: "r", columns },
  { schema: "public", name: "rings", kind: "v", columns: [] },
  { schema: "old", name: "felled", kind: "r", columns },
];
const lines = (opened: string[], letters = "") =>
  schemaTree(relations, new Set(opened), letters).map(({ level, name, isOpen }) => [level, name, isOpen]);

test("only what is open, or looked for, is in the tree", () => {
  expect(lines([])).toEqual([
    [1, "public", false],
    [1, "old", false],
  ]);
  expect(lines(["public", '["public","grove"]'])).toEqual([
    [1, "public", true],
    [2, "grove", true],
    [3, "id", undefined],
    [3, "Tree", undefined],
    [2, "rings", false],
    [1, "old", false],
  ]);
  expect(lines([], "TREE")).toEqual([
    [1, "public", true],
    [2, "grove", false],
    [1, "old", true],
    [2, "felled", false],
  ]);
  expect(lines(["public"], "nothing")).toEqual([]);
  expect(schemaTree(relations, new Set(["old"]), "").at(-1)?.path).toEqual(["old", "felled"]);
});

test("of very many relations the first are shown, and that there are more", () => {
  const many = Array.from({ length: 502 }, (_, at) => ({ schema: "public", name: `t${at}`, kind: "r", columns: [] }));
  const shown = schemaTree(many, new Set(["public"]), "");
  expect([shown.length, shown.at(-1)?.name]).toEqual([502, "2 more: find them by letters"]);
});

test("names are quoted where SQL would read them otherwise", () => {
  const reserved = new Set(["order"]);
  expect(["grove", "_a1$"].map((name) => identifier(name, reserved))).toEqual(["grove", "_a1$"]);
  expect(["order", "Tree", "1a", 'a"b', "ä", ""].map((name) => identifier(name, reserved))).toEqual([
    '"order"',
    '"Tree"',
    '"1a"',
    '"a""b"',
    '"ä"',
    '""',
  ]);
});
