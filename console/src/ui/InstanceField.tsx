import type { Schemas } from "../api/client";
import { nameOfInstance } from "../lib/instances";

interface Props {
  instances: Schemas["InstanceStatus"][];
  value: string;
  /** What stands for all of them; without it one has to be chosen. */
  all?: string;
  onChange: (instance: string) => void;
}

/** Which server of a branch; nothing where there is one. */
export function InstanceField({ instances, value, all, onChange }: Props) {
  if (instances.length < 2) return null;
  return (
    <select className="select fit" aria-label="Instance" value={value} onChange={(event) => onChange(event.target.value)}>
      {all && <option value="">{all}</option>}
      {instances.map(({ id, primary }, index) => (
        <option key={id} value={id}>
          {nameOfInstance(primary, index)}
        </option>
      ))}
    </select>
  );
}
