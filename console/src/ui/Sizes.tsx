interface SizesProps {
  types: readonly { name: string; vcpus: string | number; ram: string | number }[];
}

/** Sizes of a server, to choose one of. */
export function Sizes({ types }: SizesProps) {
  return types.map(({ name, vcpus, ram }) => (
    <option key={name} value={name}>
      {name}: {vcpus} vCPU, {ram} GB
    </option>
  ));
}
