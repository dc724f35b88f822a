// Branches by who was made from whom.

export interface Node {
  id: string;
  name: string;
  parentID: string | null;
}

export interface Row<T> {
  branch: T;
  depth: number;
  /** How many branches come from it, directly or not. */
  below: number;
  children: number;
  /** For each branch above it: whether that one has more children further down. */
  goesOn: boolean[];
  isLast: boolean;
}

/** One row a branch, parents before their children, oldest first; whose parent can't be seen stands at the top. */
export function rows<T extends Node>(branches: readonly T[], folded: ReadonlySet<string>): Row<T>[] {
  const known = new Set(branches.map((branch) => branch.id));
  const childrenOf = new Map<string | null, T[]>();
  for (const branch of branches) {
    const parent = branch.parentID !== null && known.has(branch.parentID) ? branch.parentID : null;
    const siblings = childrenOf.get(parent);
    if (siblings) siblings.push(branch);
    else childrenOf.set(parent, [branch]);
  }
  const below = new Map<string, number>();
  const count = (id: string): number => {
    const counted = (childrenOf.get(id) ?? []).reduce((sum, child) => sum + 1 + count(child.id), 0);
    below.set(id, counted);
    return counted;
  };
  const found: Row<T>[] = [];
  const add = (branch: T, depth: number, goesOn: boolean[], isLast: boolean) => {
    const children = childrenOf.get(branch.id) ?? [];
    found.push({ branch, depth, below: below.get(branch.id) ?? 0, children: children.length, goesOn, isLast });
    if (folded.has(branch.id)) return;
    children.forEach((child, index) => {
      const isLastChild = index === children.length - 1;
      add(child, depth + 1, [...goesOn, !isLastChild], isLastChild);
    });
  };
  for (const root of childrenOf.get(null) ?? []) {
    count(root.id);
    add(root, 0, [], true);
  }
  return found;
}

/** Those that match, with all that they come from, so that the tree stays one. */
export function filtered<T extends Node>(branches: readonly T[], matches: (branch: T) => boolean): T[] {
  const byId = new Map(branches.map((branch) => [branch.id, branch]));
  const kept = new Set<string>();
  for (const branch of branches) {
    if (!matches(branch)) continue;
    for (let at: T | undefined = branch; at && !kept.has(at.id); at = at.parentID ? byId.get(at.parentID) : undefined) {
      kept.add(at.id);
    }
  }
  return branches.filter((branch) => kept.has(branch.id));
}

/** A name that no branch has, for a child of this one. */
export function freeName(parent: string, names: ReadonlySet<string>): string {
  for (let number = 1; ; number += 1) {
    const name = `${parent.slice(0, 240)}-${number}`;
    if (!names.has(name)) return name;
  }
}

/**
 * What is typed before branches are deleted: of one its name, of several the names of those that are no copies, or
 * else how many they are.
 */
export function typedToDelete(branches: readonly Node[]): { word: string; what: string } {
  const [first] = branches;
  if (first && branches.length === 1) return { word: first.name, what: "its name" };
  const bases = branches.filter(({ parentID }) => parentID === null).map(({ name }) => name);
  if (bases.length === 0) return { word: String(branches.length), what: "how many" };
  return { word: bases.join(" "), what: "what is no copy" };
}
