import type { ReactNode } from "react";
import { Field } from "./parts";

/** Hours that are offered. */
const OFFERED = [1, 24, 72, 168, 720];
const WORDS = new Map([
  [1, "an hour"],
  [24, "a day"],
  [168, "a week"],
]);

export function hoursInWords(hours: number): string {
  return WORDS.get(hours) ?? (hours % 24 === 0 ? `${hours / 24} days` : `${hours} hours`);
}

interface LastsFieldProps {
  label: string;
  hint?: ReactNode;
  /** What can be chosen besides: its value, and how it is called. */
  others: [string, string][];
  /** Hours that are offered, too. */
  hours?: number;
  /** Hours, or one of the others. */
  value: string;
  disabled?: boolean;
  onChange: (value: string) => void;
}

/** For how long a branch stays. */
export function LastsField({ label, hint, others, hours, value, disabled, onChange }: LastsFieldProps) {
  const offered = hours && !OFFERED.includes(hours) ? [hours, ...OFFERED] : OFFERED;
  return (
    <Field label={label} hint={hint}>
      {(ids) => (
        <select
          {...ids}
          className="select"
          disabled={disabled}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        >
          {others.map(([other, name]) => (
            <option key={other} value={other}>
              {name}
            </option>
          ))}
          {offered.map((count) => (
            <option key={count} value={count}>
              {`For ${hoursInWords(count)}`}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
