// What somebody writes and runs, kept in their browser until they sign out.
import { isKept } from "./statements";

export interface Ran {
  query: string;
  /** Milliseconds since 1970. */
  at: number;
  /** Milliseconds. */
  took: number;
  isFailed: boolean;
}

/** A text that somebody works on. */
export interface Tab {
  id: number;
  text: string;
}

interface Work {
  /** At least one. */
  tabs: Tab[];
  /** The tab that was in view, by its id. */
  current: number;
  history: Ran[];
}

const PREFIX = "coppice-sql ";
const OWNER = `${PREFIX}of`;
const HISTORY_MAX = 100;

/** What is there of this person's, newest first; what somebody else left in this browser is removed. */
export function work(user: string, branch: string, storage: Storage = localStorage): Work {
  if (storage.getItem(OWNER) !== user) {
    forgetWork(storage);
    storage.setItem(OWNER, user);
  }
  let kept: Partial<Work> = {};
  try {
    kept = JSON.parse(storage.getItem(PREFIX + branch) ?? "{}") as Partial<Work>;
  } catch {
    // Somebody else wrote there; it is written anew.
  }
  const tabs = kept.tabs?.length ? kept.tabs : [{ id: 1, text: "" }];
  const current = tabs.find(({ id }) => id === kept.current) ?? tabs[0];
  return { tabs, current: current?.id ?? 1, history: kept.history ?? [] };
}

function keep(branch: string, work: Work, storage: Storage) {
  try {
    storage.setItem(PREFIX + branch, JSON.stringify(work));
  } catch {
    // The browser has no room; what is on the screen stays.
  }
}

export function keepTabs(user: string, branch: string, tabs: readonly Tab[], current: number, storage: Storage = localStorage) {
  const kept = tabs.map(({ id, text }) => ({ id, text: isKept(text) ? text : "" }));
  keep(branch, { ...work(user, branch, storage), tabs: kept, current }, storage);
}

const NAME_MAX = 24;

/** What a tab is called: its first line, or what a comment there says. */
export function tabName(text: string): string {
  const line = text.split("\n").map((each) => each.replace(/^\s*--\s*/, "").trim()).find((each) => each !== "") ?? "";
  return line.length > NAME_MAX ? `${line.slice(0, NAME_MAX - 1).trimEnd()}…` : line || "New";
}

/** Notes what was run; the same again takes the place of the earlier. */
export function noteRun(user: string, branch: string, ran: Ran, storage: Storage = localStorage): Ran[] {
  const before = work(user, branch, storage);
  if (!isKept(ran.query)) return before.history;
  const others = before.history.filter(({ query }) => query !== ran.query);
  const history = [ran, ...others].slice(0, HISTORY_MAX);
  keep(branch, { ...before, history }, storage);
  return history;
}

/** Removes everything, of everybody. */
export function forgetWork(storage: Storage = localStorage) {
  const names = Array.from({ length: storage.length }, (_, at) => storage.key(at) ?? "");
  for (const name of names.filter((name) => name.startsWith(PREFIX))) storage.removeItem(name);
}
