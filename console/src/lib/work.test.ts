import { beforeEach, expect, test } from "vitest";
import { forgetWork, keepTabs, noteRun, tabName, work } from "./work";

class Memory implements Storage {
  private kept = new Map<string, string>();
  get length() {
    return this.kept.size;
  }
  key = (at: number) => [...this.kept.keys()][at] ?? null;
  getItem = (name: string) => this.kept.get(name) ?? null;
  setItem = (name: string, value: string) => void this.kept.set(name, value);
  removeItem = (name: string) => void this.kept.delete(name);
  clear = () => this.kept.clear();
}

let storage: Memory;
beforeEach(() => {
  storage = new Memory();
});
const NOTHING = { tabs: [{ id: 1, text: "" }], current: 1, history: [] };
const run = (query: string, at = 1) => noteRun("ada", "b1", { query, at, took: 5, isFailed: false }, storage);

test("tabs and history are kept by branch, until somebody signs out or somebody else comes", () => {
  storage.setItem("coppice-theme", "dark");
  const tabs = [
    { id: 1, text: "select 1" },
    { id: 4, text: "select 4" },
  ];
  keepTabs("ada", "b1", tabs, 4, storage);
  run("select 1");
  run("select 2");
  run("select 1", 3);
  expect(work("ada", "b1", storage).history.map(({ query, at }) => [query, at])).toEqual([
    ["select 1", 3],
    ["select 2", 1],
  ]);
  expect(work("ada", "b1", storage)).toMatchObject({ tabs, current: 4 });
  expect(work("ada", "b2", storage)).toEqual(NOTHING);
  expect(work("joan", "b1", storage), "of somebody else").toEqual(NOTHING);
  expect(work("ada", "b1", storage), "it is gone").toEqual(NOTHING);
  run("select 3");
  forgetWork(storage);
  expect([storage.length, storage.getItem("coppice-theme")]).toEqual([1, "dark"]);
});

test("what sets a password is not kept, and no more than a hundred", () => {
  keepTabs("ada", "b1", [{ id: 1, text: "alter role app password 'x'" }], 1, storage);
  run("alter role app password 'x'");
  expect(work("ada", "b1", storage)).toEqual(NOTHING);
  for (let at = 0; at < 120; at += 1) run(`select ${at}`);
  expect(work("ada", "b1", storage).history).toHaveLength(100);
});

test("a tab is called as its text begins", () => {
  expect(tabName("\n  select 1;\nselect 2")).toBe("select 1;");
  expect(tabName("-- who felled\nselect 1")).toBe("who felled");
  expect(tabName("select tree, rings from grove where id = 1")).toBe("select tree, rings from…");
  expect(tabName(" \n")).toBe("New");
});

test("what is no work of ours is written anew", () => {
  work("ada", "b1", storage);
  storage.setItem("coppice-sql b1", "no JSON");
  expect(work("ada", "b1", storage)).toEqual(NOTHING);
});
