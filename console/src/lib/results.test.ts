import { expect, test } from "vitest";
import { asCsv, asJson, cut, distinct, inView, isNumber, widths } from "./results";

const FIELDS = [
  { name: "id", dataTypeID: 20 },
  { name: "a,b", dataTypeID: 25 },
  { name: "ok", dataTypeID: 16 },
];
const ROWS = [
  ["9223372036854775807", 'say "hi"\nthere', "t"],
  ["-5", "", "f"],
  [null, "=1+1", null],
];

test("what is exported is complete and as it was", () => {
  expect(asCsv(FIELDS, ROWS).join("")).toBe(
    'id,"a,b",ok\r\n9223372036854775807,"say ""hi""\nthere",t\r\n-5,"",f\r\n,=1+1,\r\n',
  );
  expect(JSON.parse(asJson(FIELDS, ROWS).join(""))).toEqual([
    { id: "9223372036854775807", "a,b": 'say "hi"\nthere', ok: true },
    { id: "-5", "a,b": "", ok: false },
    { id: null, "a,b": "=1+1", ok: null },
  ]);
  const values = ["1.50", "NaN", "7", '{"a": [1]}', "1e+300"];
  const types = [1700, 701, 23, 3802, 701].map((dataTypeID) => ({ name: "x", dataTypeID }));
  expect(JSON.parse(asJson(types, [values]).join(""))).toEqual([
    { x: "1.50", x_2: "NaN", x_3: 7, x_4: { a: [1] }, x_5: 1e300 },
  ]);
  expect(JSON.parse(asJson(FIELDS, []).join(""))).toEqual([]);
});

test("columns of the same name get names of their own", () => {
  expect(distinct(["a", "a", "a_2", "b"])).toEqual(["a", "a_2", "a_2_2", "b"]);
});

test("a cell shows the beginning of a long value in one line", () => {
  expect(cut("a\nb\r\nc")).toBe("a↵b↵c");
  expect(cut("x".repeat(500))).toBe(`${"x".repeat(200)}…`);
  const [id, text] = widths(FIELDS, [["1", "x".repeat(500), "t"]]);
  expect(id).toBe(56);
  expect(text).toBe(420);
  const many = Array.from({ length: 100_000 }, (_, at) => [String(at)]);
  expect(widths([{ name: "n", dataTypeID: 23 }], many)[0], "the last ones are longer").toBe(Math.ceil(5 * 7.9 + 25));
  expect([isNumber({ name: "", dataTypeID: 1700 }), isNumber({ name: "", dataTypeID: 25 })]).toEqual([true, false]);
});

test("of many rows only those in view are drawn", () => {
  expect(inView(100_000, 30, 0, 300)).toEqual([0, 22]);
  expect(inView(100_000, 30, 1_500_000, 300)).toEqual([49_988, 50_022]);
  expect(inView(100_000, 30, 2_999_700, 300)).toEqual([99_978, 100_000]);
  expect(inView(3, 30, 0, 300)).toEqual([0, 3]);
  expect(inView(3, 30, 9000, 300)).toEqual([3, 3]);
  expect(inView(0, 30, 0, 0)).toEqual([0, 0]);
});
