/** What people call the servers of a branch, which are told in order, the primary first. */
export function nameOfInstance(isPrimary: boolean, index: number): string {
  return isPrimary ? "Primary" : `Replica ${index}`;
}
