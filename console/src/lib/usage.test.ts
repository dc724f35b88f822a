import { expect, test } from "vitest";
import { amount, byThing, monthOf, monthsBefore } from "./usage";

const ROW = {
  projectID: "prj_1",
  projectName: "shop",
  branchID: null,
  branchName: null,
  labels: null,
  beganAt: null,
  meter: "awake" as const,
  quantity: "1.500000",
  cost: "0.30",
};

test("what was used of one thing is one line, and what costs most comes first", () => {
  const other = { ...ROW, projectID: "prj_2", projectName: "blog", cost: "2.5" };
  const lines = byThing([ROW, { ...ROW, meter: "egress", quantity: "2", cost: "0.1" }, other]);
  expect(lines.map(({ name }) => name)).toEqual(["blog", "shop"]);
  expect(lines[1]?.amounts).toEqual({ awake: 1.5, asleep: 0, storage: 0, shared: 0, egress: 2 });
  expect(lines[1]?.cost).toBeCloseTo(0.4);
});

test("days stay in their order, and branches say where they are", () => {
  const day = (beganAt: string, cost: string) => ({ ...ROW, beganAt, cost });
  const days = byThing([day("2026-01-02T00:00:00.000Z", "9"), day("2026-01-01T00:00:00.000Z", "1")]);
  expect(days.map(({ name }) => name)).toEqual(["2026-01-01", "2026-01-02"]);
  expect(byThing([{ ...ROW, branchID: "b", branchName: "main" }])[0]).toMatchObject({ name: "main", of: "shop" });
});

test("labels are told apart as they are typed", () => {
  const of = (labels: Record<string, string>, cost: string) => ({ ...ROW, projectID: null, projectName: null, labels, cost });
  const lines = byThing([of({}, "1"), of({ env: "dev", team: "shop" }, "9"), of({}, "2")]);
  expect(lines.map(({ name, cost }) => [name, cost])).toEqual([
    ["env=dev, team=shop", 9],
    ["No labels", 3],
  ]);
});

test("months are those of UTC", () => {
  expect(monthsBefore(Date.parse("2026-01-31T23:59:59Z"), 3)).toEqual(["2026-01", "2025-12", "2025-11"]);
  expect(monthOf("2025-12")).toEqual(["2025-12-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z"]);
});

test("what is little is not told as nothing", () => {
  expect([amount(0), amount(0.001), amount(1234.5)]).toEqual(["0.00", "< 0.01", "1,234.50"]);
});
