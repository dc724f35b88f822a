// What happened, told in passing.
import { useSyncExternalStore } from "react";

interface Toast {
  id: number;
  text: string;
  isBad: boolean;
}

const SHOWN_MS = 6000;
let toasts: Toast[] = [];
let last = 0;
const listeners = new Set<() => void>();

function change(next: Toast[]) {
  toasts = next;
  for (const listener of listeners) listener();
}

export function tell(text: string, isBad = false) {
  last += 1;
  const id = last;
  const others = toasts.filter((toast) => toast.text !== text);
  change([...others.slice(-2), { id, text, isBad }]);
  setTimeout(() => change(toasts.filter((toast) => toast.id !== id)), SHOWN_MS);
}

export function tellError(error: Error) {
  tell(error.message, true);
}

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => toasts);
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map((toast) => (
        <div key={toast.id} className={toast.isBad ? "toast bad" : "toast"}>
          {toast.text}
        </div>
      ))}
    </div>
  );
}
