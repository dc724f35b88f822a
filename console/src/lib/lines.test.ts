import { expect, test } from "vitest";
import { compareLines, type Line } from "./lines";

const marks = (lines: Line[]) => lines.map(({ text, isSame }) => (isSame ? "=" : "*") + text);

test("only what is not on both sides is marked", () => {
  const { before, after } = compareLines("a\nb\nc\nd", "a\nc\nx\nd\ne");
  expect(marks(before)).toEqual(["=a", "*b", "=c", "=d"]);
  expect(marks(after)).toEqual(["=a", "=c", "*x", "=d", "*e"]);
});

test("what is on one side only has no lines on the other", () => {
  const { before, after } = compareLines(null, "a\nb");
  expect(before).toEqual([]);
  expect(marks(after)).toEqual(["*a", "*b"]);
});

test("very long texts are marked as a whole", () => {
  const long = "a\n".repeat(2000);
  expect(compareLines(long, long).before.every(({ isSame }) => !isSame)).toBe(true);
});
