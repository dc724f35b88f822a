import { expect, test } from "vitest";
import { readPlan } from "./explain";

const node = (type: string, time: number, more: object = {}) => ({
  "Node Type": type,
  "Startup Cost": 0,
  "Total Cost": 10,
  "Plan Rows": 100,
  "Actual Total Time": time,
  "Actual Rows": 100,
  "Actual Loops": 1,
  ...more,
});
const plan = (root: object, more: object = {}) => readPlan(JSON.stringify([{ Plan: root, ...more }]));

test("the time of a node is its own, in all its loops", () => {
  const inner = node("Index Scan", 0.5, { "Actual Loops": 100, "Relation Name": "b", Alias: "x", "Index Name": "b_pkey" });
  const outer = node("Seq Scan", 20, { "Relation Name": "a", Alias: "a", Filter: "(n > 1)", "Shared Hit Blocks": 7 });
  const read = plan(node("Nested Loop", 80, { "Join Type": "Left", Plans: [outer, inner], "Shared Hit Blocks": 9 }), {
    "Planning Time": 0.2,
    "Execution Time": 81,
  });
  expect(read?.lines.map(({ name, depth, own, total, hit }) => [name, depth, own, total, hit])).toEqual([
    ["Nested Loop (left)", 0, 10, 80, 2],
    ["Seq Scan", 1, 20, 20, 7],
    ["Index Scan", 1, 50, 50, 0],
  ]);
  expect(read?.lines[1]?.details).toEqual(["on a", "filter: (n > 1)"]);
  expect(read?.lines[2]?.details).toEqual(["on b as x", "by b_pkey"]);
  expect([read?.planning, read?.execution]).toEqual([0.2, 81]);
});

test("what workers do at the same time is counted once", () => {
  const scan = node("Seq Scan", 30, { "Actual Loops": 3 });
  const read = plan(node("Gather", 35, { "Workers Launched": 2, Plans: [scan] }));
  expect(read?.lines.map(({ own }) => own)).toEqual([5, 30]);
});

test("what a WITH does is not counted for who reads it, too", () => {
  const made = node("Seq Scan", 40, { "Parent Relationship": "InitPlan", "Subplan Name": "CTE w", "Relation Name": "t" });
  const scan = node("CTE Scan", 45, { "CTE Name": "w", Alias: "w" });
  const read = plan(node("Aggregate", 50, { Plans: [made, scan] }));
  expect(read?.lines.map(({ own }) => own)).toEqual([5, 40, 5]);
});

test("where the planner was far off is said, and what was not run has no times", () => {
  const more = plan(node("Seq Scan", 1, { "Actual Rows": 50_000 }));
  const fewer = plan(node("Seq Scan", 1, { "Actual Rows": 0 }));
  expect([more?.lines[0]?.wrong, fewer?.lines[0]?.wrong]).toEqual([500, -100]);
  const bare = { "Node Type": "ModifyTable", Operation: "Delete", "Startup Cost": 0, "Total Cost": 3, "Plan Rows": 1 };
  const only = plan(bare)?.lines[0];
  expect([only?.name, only?.own, only?.rows, only?.wrong, only?.cost]).toEqual(["Delete", undefined, undefined, undefined, 3]);
  expect(readPlan("QUERY PLAN")).toBeUndefined();
  expect(readPlan("[]")).toBeUndefined();
});
