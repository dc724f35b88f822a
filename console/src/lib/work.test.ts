import { beforeEach, expect, test } from "vitest";
import { forgetWork, keepDraft, noteRun, work } from "./work";

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
const run = (query: string, at = 1) => noteRun("ada", "b1", { query, at, took: 5, isFailed: false }, storage);

test("drafts and history are kept by branch, until somebody signs out or somebody else comes", () => {
  storage.setItem("coppice-theme", "dark");
  keepDraft("ada", "b1", "select 1", storage);
  run("select 1");
  run("select 2");
  run("select 1", 3);
  expect(work("ada", "b1", storage).history.map(({ query, at }) => [query, at])).toEqual([
    ["select 1", 3],
    ["select 2", 1],
  ]);
  expect(work("ada", "b1", storage).draft).toBe("select 1");
  expect(work("ada", "b2", storage)).toEqual({ draft: "", history: [] });
  expect(work("joan", "b1", storage), "of somebody else").toEqual({ draft: "", history: [] });
  expect(work("ada", "b1", storage), "it is gone").toEqual({ draft: "", history: [] });
  run("select 3");
  forgetWork(storage);
  expect([storage.length, storage.getItem("coppice-theme")]).toEqual([1, "dark"]);
});

test("what sets a password is not kept, and no more than a hundred", () => {
  keepDraft("ada", "b1", "alter role app password 'x'", storage);
  run("alter role app password 'x'");
  expect(work("ada", "b1", storage)).toEqual({ draft: "", history: [] });
  for (let at = 0; at < 120; at += 1) run(`select ${at}`);
  expect(work("ada", "b1", storage).history).toHaveLength(100);
});
