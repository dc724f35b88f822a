import { expect, test } from "vitest";
import { asleep } from "./series";

const at = (hour: number) => Date.UTC(2026, 10, 23, hour);
const period = (began: number, ended: number | null) => ({
  beganAt: new Date(at(began)).toISOString(),
  endedAt: ended === null ? null : new Date(at(ended)).toISOString(),
});

test("a branch slept between the times in which it was awake", () => {
  const awake = [period(9, null), period(6, 7), period(2, 3)];
  expect(asleep(awake, at(0), at(10))).toEqual([
    [at(3), at(6)],
    [at(7), at(9)],
  ]);
  expect(asleep(awake, at(4), at(8))).toEqual([
    [at(4), at(6)],
    [at(7), at(8)],
  ]);
});

test("a branch that sleeps now does so until the end, and nothing is known of before it was made", () => {
  expect(asleep([period(6, 7)], at(0), at(10))).toEqual([[at(7), at(10)]]);
  expect(asleep([period(6, null)], at(0), at(10))).toEqual([]);
  expect(asleep([], at(0), at(10))).toEqual([]);
});
