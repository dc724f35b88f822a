// Keys without Ctrl or Alt. None is heard while somebody types or is asked something.
import { useEffect, useRef } from "react";

export type Keys = Record<string, (event: KeyboardEvent) => void>;

const PAUSE_MS = 1200;
/** The first of two keys, as in `g l`, and when it was pressed. */
let before = { key: "", at: 0 };

function isBusy(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return true;
  // Within the editor, of which the event itself tells only the outside.
  const target = event.composedPath()[0] as HTMLElement;
  const types = target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
  return types || document.querySelector("dialog[open]") !== null;
}

/** Hears these keys as long as the screen is shown: one, or two with a space between them. */
export function useKeys(keys: Keys) {
  const current = useRef(keys);
  current.current = keys;
  useEffect(() => {
    const hear = (event: KeyboardEvent) => {
      if (isBusy(event)) return;
      const isSecond = before.key !== "" && event.timeStamp - before.at < PAUSE_MS;
      const found = (isSecond && current.current[`${before.key} ${event.key}`]) || current.current[event.key];
      if (!found) return;
      event.preventDefault();
      found(event);
    };
    document.addEventListener("keydown", hear);
    return () => document.removeEventListener("keydown", hear);
  }, []);
}

// After all others heard it, the first of two is remembered.
window.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  before = { key: event.key, at: event.timeStamp };
});
