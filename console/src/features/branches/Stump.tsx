import type { StateName } from "../../ui/State";

const SMALLEST = 6;
const LARGEST = 13;
/** The sizes between which a stump grows: 4 MiB, and 1 TiB. */
const [FROM, TO] = [22, 40];

/** Its area grows by as much each time its data doubles. */
function radius(bytes: number | null): number {
  if (!bytes) return SMALLEST;
  const share = Math.min(1, Math.max(0, (Math.log2(bytes) - FROM) / (TO - FROM)));
  return Math.sqrt(SMALLEST ** 2 + share * (LARGEST ** 2 - SMALLEST ** 2));
}

/** What of a stump is wood at least, so that it looks like one. */
const WOOD_MIN = 0.3;

interface StumpProps {
  state: StateName;
  bytes: number | null;
  /** What of them is its own; null when that is not known. */
  own: number | null;
}

/** A branch from above: a stump as large as its data, green around what it shares, with a shoot when it is awake. */
export function Stump({ state, bytes, own }: StumpProps) {
  const r = radius(bytes);
  const shared = bytes && own !== null ? Math.max(WOOD_MIN, Math.sqrt(1 - own / bytes)) : 1;
  const wood = r * shared;
  return (
    <svg className={`stump ${state}`} viewBox="0 0 36 36" width="36" height="36" aria-hidden="true" focusable="false">
      <circle className="growth" cx="18" cy="18" r={r} />
      <circle className="cut" cx="18" cy="18" r={wood} />
      <circle className="ring" cx="18" cy="18" r={wood * 0.62} />
      <circle className="ring" cx="18" cy="18" r={wood * 0.28} />
      {(state === "awake" || state === "moving") && (
        <g className="shoot">
          <path className="stem" d="M18 18c1-4 2.400-7 6-9.500" />
          <path className="leaf" d="M22.500 10.500c-.4-4.500 2-7.500 7.500-8 .2 5.300-2.500 8.300-7.500 8Z" />
          <path className="leaf" d="M20.300 13.600c-3.600-.3-6-2.500-6.200-6.600 4.100-.1 6.300 2.400 6.200 6.600Z" />
        </g>
      )}
      {state === "failed" && <path className="crack" d="m18 18-3-2.500-2-4.500M18 18l4 1.500 2 4.500M18 18l-2 5" />}
    </svg>
  );
}
