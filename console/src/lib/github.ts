// What the platform shows whoever has installed its GitHub App.

/** The installation and its code in `coppice github link 12345 --code 4f9d8a1c2b3e`, if that is what the text is. */
export function linkIn(text: string): { number: string; code: string } | null {
  const found = /\blink\s+(\d+)\s+--code[\s=]+([\w-]+)/.exec(text);
  return found?.[1] && found[2] ? { number: found[1], code: found[2] } : null;
}
