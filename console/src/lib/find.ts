// Finding by a few letters.

/** How well letters fit a name: smaller is better, none is not at all. */
export function fit(name: string, letters: string): number | null {
  const [where, what] = [name.toLowerCase(), letters.toLowerCase()];
  const at = where.indexOf(what);
  if (at >= 0) return at === 0 ? 0 : /[a-z0-9]/.test(where[at - 1] ?? "") ? 2 : 1;
  let from = 0;
  let gaps = 0;
  for (const letter of what) {
    const next = where.indexOf(letter, from);
    if (next < 0) return null;
    gaps += next - from;
    from = next + 1;
  }
  return 3 + gaps;
}

/** The best few, in the order in which they come where they are as good. */
export function best<T extends { name: string }>(all: readonly T[], letters: string, most: number): T[] {
  const text = letters.trim();
  if (!text) return all.slice(0, most);
  const scored = all.flatMap((one) => {
    const score = fit(one.name, text);
    return score === null ? [] : [{ one, score }];
  });
  return scored
    .sort((a, b) => a.score - b.score)
    .slice(0, most)
    .map(({ one }) => one);
}
