// After an upgrade of the server the pieces of the console that were not loaded yet have other names.

const KEY = "coppice-reloaded-at";
const AGAIN_MS = 30_000;

/** Loads the page anew when a piece of it is gone, but not again and again. */
export function reloadOnceAfterUpgrades() {
  window.addEventListener("vite:preloadError", (event) => {
    const before = Number(sessionStorage.getItem(KEY) ?? 0);
    if (Date.now() - before < AGAIN_MS) return;
    event.preventDefault();
    sessionStorage.setItem(KEY, String(Date.now()));
    location.reload();
  });
}

let loaded: string | null = null;

/** Whether this page is of another build than the server has by now. */
export function isOutdated(build: string | null): boolean {
  loaded ??= build;
  return build !== null && build !== loaded;
}
