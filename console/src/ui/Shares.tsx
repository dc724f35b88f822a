import { bytes } from "../lib/amounts";

interface SharesProps {
  /** All of its data, in bytes; null when it was not measured yet. */
  all: number | null;
  /** What of it is its own; null when the file system can't tell. */
  own: number | null;
}

/** How much a branch has by itself, of all that it has. */
export function Shares({ all, own }: SharesProps) {
  if (all === null) return null;
  if (own === null) return <span className="shares">{bytes(all)}</span>;
  const title = `${bytes(own)} written by it, ${bytes(all - own)} shared with what it was made from`;
  return (
    <span className="shares" title={title}>
      <span>{bytes(own)} own</span>
      <span className="quiet">
        <span className="hidden-visually">of </span>
        {bytes(all)}
      </span>
      <span className="shares-bar" aria-hidden="true">
        <span style={{ width: `${all > 0 ? (own / all) * 100 : 0}%` }} />
      </span>
    </span>
  );
}
