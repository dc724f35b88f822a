import { readdirSync, readFileSync } from "node:fs";
import ts from "typescript";
import { expect, test } from "vitest";

const SOURCE = new URL("./", import.meta.url).pathname;
const LINES_MAX = 70;

/** Functions, components among them, that are longer than can be seen at once. */
function long(file: string): string[] {
  const tree = ts.createSourceFile(file, readFileSync(`${SOURCE}${file}`, "utf8"), ts.ScriptTarget.Latest, true);
  const found: string[] = [];
  const visit = (node: ts.Node) => {
    if (ts.isFunctionLike(node)) {
      const line = (at: number) => tree.getLineAndCharacterOfPosition(at).line;
      const first = line(node.getStart());
      const lines = line(node.end) - first + 1;
      if (lines > LINES_MAX) found.push(`${file}:${first + 1} has ${lines} lines`);
    }
    ts.forEachChild(node, visit);
  };
  visit(tree);
  return found;
}

const files = readdirSync(SOURCE, { recursive: true, encoding: "utf8" });
const sources = files.filter((name) => /\.tsx?$/.test(name) && !/\.(test|d)\.tsx?$/.test(name));

test("what a function does is seen at once", () => {
  expect(sources.length).toBeGreaterThan(50);
  expect(sources.flatMap(long)).toEqual([]);
});

// `api/sql.test.ts` and `lib/tables.test.ts` look at what those two ask.
test("statements are of `api/sql` and `lib/tables`, or of people", () => {
  const running = sources.filter((name) => /\b(runSql|rowsQuery|changeCell)\b/.test(readFileSync(SOURCE + name, "utf8")));
  expect(running.sort()).toEqual(["api/sql.ts", "features/sql/useRun.ts", "features/tables/EditCell.tsx", "features/tables/Rows.tsx"]);
});
