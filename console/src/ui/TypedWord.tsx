import { Field } from "./parts";

interface TypedWordProps {
  word: string;
  typed: string;
  /** Why nobody is asked for it, if so. */
  why?: string | undefined;
  onType: (typed: string) => void;
}

/** Has somebody type what they are about to lose. */
export function TypedWord({ word, typed, why, onType }: TypedWordProps) {
  return (
    <Field label={`Type ${word}`}>
      {(ids) => (
        <input
          {...ids}
          className="input"
          spellCheck={false}
          autoComplete="off"
          disabled={why !== undefined}
          title={why}
          value={typed}
          onChange={(event) => onType(event.target.value)}
        />
      )}
    </Field>
  );
}
