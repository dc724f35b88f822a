import { expect, test } from "vitest";
import { alone, asleep, joined } from "./series";

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

const measured = (...minutes: number[]) => ({
  values: minutes.map((minute) => ({ timestamp: new Date(minute * 60_000).toISOString(), value: minute })),
});

test("no line goes over a time in which nothing was measured", () => {
  expect(joined([measured(1, 2, 5, 6), measured(2)])).toEqual({
    times: [60, 120, 180, 300, 360],
    lines: [
      [1, 2, null, 5, 6],
      [null, 2, null, null, null],
    ],
  });
  // One that is late is no gap.
  expect(joined([measured(1, 2, 4)]).times).toEqual([60, 120, 240]);
  expect(joined([measured(1)]).times).toEqual([60]);
  expect(joined([])).toEqual({ times: [], lines: [] });
});

test("a value that no line goes to is drawn as a point", () => {
  expect(alone([1, 2, null, 5, null, 6])).toEqual([3, 5]);
  expect(alone([7])).toEqual([0]);
  expect(alone([null, null])).toEqual([]);
});
