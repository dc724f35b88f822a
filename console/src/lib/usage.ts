// What was used, as a screen shows it: rows of a table, days of a chart.

interface UsageRow {
  projectID: string | null;
  projectName: string | null;
  branchID: string | null;
  branchName: string | null;
  labels: Record<string, string> | null;
  beganAt: string | null;
  meter: "awake" | "asleep" | "storage" | "shared" | "egress";
  quantity: string;
  cost: string | null;
}

/** What was used of one thing, by meter, in what the server counts it in. */
export interface UsageOfOne {
  id: string;
  name: string;
  /** Where it is, if that does not follow from the name. */
  of: string;
  amounts: Record<UsageRow["meter"], number>;
  cost: number;
}

const NOTHING = { awake: 0, asleep: 0, storage: 0, shared: 0, egress: 0 };

function inWords(labels: Record<string, string>): string {
  const pairs = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  return pairs.join(", ") || "No labels";
}

/** One line of each project, branch, set of labels or day; what costs most first, days in their order. */
export function byThing(rows: readonly UsageRow[]): UsageOfOne[] {
  const things = new Map<string, UsageOfOne>();
  for (const row of rows) {
    const labels = row.labels && inWords(row.labels);
    const id = row.beganAt ?? row.branchID ?? row.projectID ?? labels ?? "";
    const name = row.beganAt?.slice(0, 10) ?? row.branchName ?? row.projectName ?? labels ?? "";
    const of = row.branchID ? (row.projectName ?? "") : "";
    const thing = things.get(id) ?? { id, name, of, amounts: { ...NOTHING }, cost: 0 };
    thing.amounts[row.meter] += Number(row.quantity);
    thing.cost += Number(row.cost ?? 0);
    things.set(id, thing);
  }
  const sorted = [...things.values()];
  if (rows.some(({ beganAt }) => beganAt)) return sorted.sort((a, b) => a.id.localeCompare(b.id));
  return sorted.sort((a, b) => b.cost - a.cost || b.amounts.awake - a.amounts.awake || a.name.localeCompare(b.name));
}

/** The month of UTC that holds a time, like 2026-01. */
export function monthAt(time: number): string {
  return new Date(time).toISOString().slice(0, 7);
}

/** When a month begins, and when the next one does. */
export function monthOf(month: string): [string, string] {
  const begins = new Date(`${month}-01T00:00:00Z`);
  const ends = new Date(begins);
  ends.setUTCMonth(begins.getUTCMonth() + 1);
  return [begins.toISOString(), ends.toISOString()];
}

/** The months up to that of a time, the newest first. */
export function monthsBefore(time: number, count: number): string[] {
  const first = new Date(`${monthAt(time)}-01T00:00:00Z`);
  return Array.from({ length: count }, (_, index) => {
    const month = new Date(first);
    month.setUTCMonth(first.getUTCMonth() - index);
    return monthAt(month.getTime());
  });
}

/** A quantity or an amount of money as people read it. */
export function amount(value: number, digits = 2): string {
  if (value > 0 && value < 10 ** -digits) return `< ${(10 ** -digits).toFixed(digits)}`;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
