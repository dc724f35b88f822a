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

interface Work {
  draft: string;
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
  try {
    const kept = JSON.parse(storage.getItem(PREFIX + branch) ?? "{}") as Partial<Work>;
    return { draft: kept.draft ?? "", history: kept.history ?? [] };
  } catch {
    return { draft: "", history: [] };
  }
}

function keep(branch: string, work: Work, storage: Storage) {
  try {
    storage.setItem(PREFIX + branch, JSON.stringify(work));
  } catch {
    // The browser has no room; what is on the screen stays.
  }
}

export function keepDraft(user: string, branch: string, draft: string, storage: Storage = localStorage) {
  keep(branch, { ...work(user, branch, storage), draft: isKept(draft) ? draft : "" }, storage);
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
