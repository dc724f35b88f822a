import { Field } from "./parts";

interface TypedWordProps {
  word: string;
  typed: string;
  onType: (typed: string) => void;
}

/** Has somebody type what they are about to lose. */
export function TypedWord({ word, typed, onType }: TypedWordProps) {
  return (
    <Field label={`Type ${word}`}>
      {(ids) => (
        <input
          {...ids}
          className="input"
          spellCheck={false}
          autoComplete="off"
          value={typed}
          onChange={(event) => onType(event.target.value)}
        />
      )}
    </Field>
  );
}
