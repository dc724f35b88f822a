import { useCallback, useEffect, useRef, useState } from "react";
import { keepTabs, noteRun, type Tab, work } from "../../lib/work";
import type { DeskHandle } from "./Desk";
import type { Run } from "./useRun";

/** A tab that was looked at, and so has a desk. */
interface Opened {
  id: number;
  /** What was in it when it was opened. */
  initial: string;
  isRun: boolean;
}

/** What somebody works on here: kept in their browser as it is typed. */
export function useTabs(user: string, branch: string) {
  const [kept] = useState(() => work(user, branch));
  const [{ tabs, current }, setState] = useState<{ tabs: Tab[]; current: number }>(kept);
  const [opened, setOpened] = useState<Opened[]>(() => looked([], kept.tabs, kept.current));
  const [running, setRunning] = useState<ReadonlySet<number>>(new Set());
  const [past, setPast] = useState(kept.history);
  const desks = useRef(new Map<number, DeskHandle>());
  useEffect(() => keepTabs(user, branch, tabs, current), [user, branch, tabs, current]);

  const show = (id: number) => {
    setOpened((before) => looked(before, tabs, id));
    setState({ tabs, current: id });
  };
  /** Opens a text in a tab of its own, or in the one in view if there is nothing in it. */
  const open = (text: string, isRun = false) => {
    const empty = tabs.find((tab) => tab.id === current && !tab.text.trim());
    const id = Math.max(...tabs.map((tab) => tab.id)) + 1;
    const next = empty && text ? tabs.map((tab) => (tab === empty ? { id, text } : tab)) : [...tabs, { id, text }];
    setState({ tabs: next, current: id });
    setOpened((before) => [...before.filter((one) => next.some((tab) => tab.id === one.id)), { id, initial: text, isRun }]);
  };
  const close = (id: number) => {
    const at = tabs.findIndex((tab) => tab.id === id);
    const left = tabs.filter((tab) => tab.id !== id);
    const next = id === current ? (left[Math.min(at, left.length - 1)]?.id ?? current) : current;
    setState({ tabs: left, current: next });
    setOpened((before) => looked(before.filter((one) => one.id !== id), left, next));
  };
  const change = useCallback((id: number, text: string) => {
    setState((before) => ({ ...before, tabs: before.tabs.map((tab) => (tab.id === id ? { id, text } : tab)) }));
  }, []);
  const note = useCallback(
    (id: number, { script, began, took, answer }: Run) => {
      setRunning((before) => {
        const after = new Set(before);
        if (took === undefined) after.add(id);
        else after.delete(id);
        return after;
      });
      if (took === undefined) return;
      const query = script.asked.map((one) => one.query).join(";\n");
      const isFailed = answer?.results.some(({ error }) => error) ?? true;
      setPast(noteRun(user, branch, { query, at: began, took, isFailed }));
    },
    [user, branch],
  );
  const handleOf = (id: number) => (handle: DeskHandle | null) => {
    if (handle) desks.current.set(id, handle);
    else desks.current.delete(id);
  };
  const insert = (text: string) => desks.current.get(current)?.insert(text);
  return { tabs, current, opened, running, past, show, open, close, change, note, handleOf, insert };
}

/** These, and the tab with this id. */
function looked(opened: Opened[], tabs: readonly Tab[], id: number): Opened[] {
  const tab = tabs.find((one) => one.id === id);
  if (!tab || opened.some((one) => one.id === id)) return opened;
  return [...opened, { id, initial: tab.text, isRun: false }];
}
