// Which lines of two texts are not the same.

/** A line, and whether the other text has it, too. */
export interface Line {
  text: string;
  isSame: boolean;
}

/** Largest table of lines by lines; more is not worth the wait. */
const CELLS_MAX = 1_000_000;

/** The lines of both, with as many as can be taken for the same. */
export function compareLines(before: string | null, after: string | null): { before: Line[]; after: Line[] } {
  const left = before === null ? [] : before.split("\n");
  const right = after === null ? [] : after.split("\n");
  const none = (lines: string[]) => lines.map((text) => ({ text, isSame: false }));
  if (left.length * right.length > CELLS_MAX) return { before: none(left), after: none(right) };
  const [one, other] = [none(left), none(right)];
  for (const [at, to] of common(left, right)) {
    (one[at] as Line).isSame = true;
    (other[to] as Line).isSame = true;
  }
  return { before: one, after: other };
}

/** A longest common run of lines, by their numbers. */
function common(left: string[], right: string[]): [number, number][] {
  const width = right.length + 1;
  const lengths = new Uint32Array((left.length + 1) * width);
  const length = (at: number, to: number) => lengths[at * width + to] ?? 0;
  for (let at = left.length - 1; at >= 0; at -= 1) {
    for (let to = right.length - 1; to >= 0; to -= 1) {
      const best = Math.max(length(at + 1, to), length(at, to + 1));
      lengths[at * width + to] = left[at] === right[to] ? length(at + 1, to + 1) + 1 : best;
    }
  }
  const pairs: [number, number][] = [];
  for (let at = 0, to = 0; at < left.length && to < right.length; ) {
    if (left[at] === right[to]) pairs.push([at++, to++]);
    else if (length(at + 1, to) >= length(at, to + 1)) at += 1;
    else to += 1;
  }
  return pairs;
}
