// Times in words.

const UNITS: [string, number][] = [
  ["d", 86_400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/** A length of time in one or two units: `2 h 5 min`, `12 s`. */
export function lasting(milliseconds: number): string {
  let left = Math.max(0, Math.round(milliseconds / 1000));
  const said: string[] = [];
  for (const [unit, seconds] of UNITS) {
    const count = Math.floor(left / seconds);
    if (count > 0) {
      said.push(`${count} ${unit}`);
      left -= count * seconds;
    }
    // What is smaller than a tenth of what was said already says nothing.
    if (said.length === 2 || (said.length === 1 && seconds >= 3600 && count >= 10)) break;
    if (said.length === 1 && unit === "min" && count >= 10) break;
  }
  return said.join(" ") || "0 s";
}

export function ago(at: number, now: number): string {
  return now - at < 5000 ? "just now" : `${lasting(now - at)} ago`;
}

export function until(at: number, now: number): string {
  return at <= now ? "any moment" : `in ${lasting(at - now)}`;
}

/** The moment itself, for who wants to compare it with a log. */
export function exact(at: string | number | Date): string {
  return `${new Date(at).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** What the server says in passing, as a sentence, with its moments as everywhere here. */
export function sentence(said: string): string {
  const told = said.replace(/\d{4}-\d\d-\d\dT[\d:]+Z/g, exact);
  return `${told.charAt(0).toUpperCase()}${told.slice(1)}.`;
}

/** The moment that is so many hours away. */
export function hoursFrom(now: number, hours: number): string {
  return new Date(now + hours * 3_600_000).toISOString();
}

/** The moment as a field for date and time has it, in UTC and to the second. */
export function inField(at: number): string {
  return new Date(Math.floor(at / 1000) * 1000).toISOString().slice(0, 19);
}

/** The moment that such a field has; it leaves out seconds that are none. */
export function fromField(text: string): number {
  return Date.parse(`${text.length === 16 ? `${text}:00` : text}Z`);
}

/** How long a statement took: `0.31 ms`, `12 ms`, `2.10 s`. */
export function brief(milliseconds: number): string {
  return milliseconds >= 1000 ? took(milliseconds) : `${milliseconds.toFixed(milliseconds < 10 ? 2 : 0)} ms`;
}

/** A number of milliseconds as people read it: `0.31 s`, `12 s`. */
export function took(milliseconds: number): string {
  const seconds = milliseconds / 1000;
  return `${seconds < 10 ? seconds.toFixed(2) : Math.round(seconds)} s`;
}
