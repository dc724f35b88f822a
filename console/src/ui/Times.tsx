// Times that go on by themselves, all by one clock.
import { useSyncExternalStore } from "react";
import { ago, exact, lasting, until } from "../lib/time";

let now = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void) {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const each of listeners) each();
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

interface TimeProps {
  at: string;
}

function useWords(words: (now: number) => string) {
  return useSyncExternalStore(subscribe, () => words(now));
}

export function Ago({ at }: TimeProps) {
  const said = useWords((now) => ago(Date.parse(at), now));
  return (
    <time dateTime={at} title={exact(at)}>
      {said}
    </time>
  );
}

export function Until({ at }: TimeProps) {
  const said = useWords((now) => until(Date.parse(at), now));
  return (
    <time dateTime={at} title={exact(at)}>
      {said}
    </time>
  );
}

/** How long it has lasted since. */
export function Since({ at }: TimeProps) {
  const said = useWords((now) => lasting(now - Date.parse(at)));
  return (
    <time dateTime={at} title={exact(at)}>
      {said}
    </time>
  );
}
