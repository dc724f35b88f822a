// Showing anew who one is, as what can't be undone asks for. Requests wait for it and are sent again then.
import { useSyncExternalStore } from "react";

type Answer = (isShown: boolean) => void;

let waiting: Answer[] = [];
const listeners = new Set<() => void>();

function tellAll() {
  for (const each of listeners) each();
}

/** Asks the person; false when they do not want to. */
export function askForProof(): Promise<boolean> {
  return new Promise((answer) => {
    waiting = [...waiting, answer];
    tellAll();
  });
}

/** Lets what waits go on, or fail. */
export function answerProof(isShown: boolean) {
  const answered = waiting;
  waiting = [];
  for (const answer of answered) answer(isShown);
  tellAll();
}

/** Whether something waits for it. */
export function useIsProofAsked(): boolean {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => waiting.length > 0,
  );
}
