// The types of events, as people choose among them.
import type { Schemas } from "../api/client";

export type EventType = Schemas["EventType"];

/** What happened, by its type. */
export const EVENTS: Record<EventType, string> = {
  "branch.created": "made",
  "branch.ready": "ready",
  "branch.hibernated": "fell asleep",
  "branch.woken": "woken",
  "branch.failed": "failed",
  "branch.expiring": "about to end",
  "branch.deleted": "deleted",
  "backup.completed": "completed",
  "backup.failed": "failed",
  "restore.verified": "restored for proof",
  "restore.failed": "proved unsound",
  "member.added": "member added",
  "member.removed": "member removed",
  "key.created": "key made",
  "key.deleted": "key deleted",
  "credentials.rotated": "password replaced",
  "budget.reached": "partly or all used up",
};

const GROUPS: [name: string, kinds: string[]][] = [
  ["Branches", ["branch"]],
  ["Backups", ["backup", "restore"]],
  ["Access", ["member", "key", "credentials"]],
  ["Budgets", ["budget"]],
];

/** The types by what they are about. */
export function eventGroups(): { name: string; types: EventType[] }[] {
  const types = Object.keys(EVENTS) as EventType[];
  return GROUPS.map(([name, kinds]) => ({ name, types: types.filter((type) => kinds.includes(type.split(".")[0] ?? "")) }));
}

/** What a webhook is sent, in a few words. */
export function chosenInWords(types: readonly EventType[]): string {
  if (types.length === 0) return "everything";
  return types.length <= 2 ? types.join(", ") : `${types.length} types of events`;
}
