// A plan of EXPLAIN (FORMAT JSON) as a list of lines: where the time goes, and where the planner was wrong.

interface RawPlan {
  "Node Type": string;
  "Parent Relationship"?: string;
  "Subplan Name"?: string;
  "CTE Name"?: string;
  "Relation Name"?: string;
  Alias?: string;
  "Index Name"?: string;
  "Join Type"?: string;
  Strategy?: string;
  Operation?: string;
  "Startup Cost": number;
  "Total Cost": number;
  "Plan Rows": number;
  "Actual Total Time"?: number;
  "Actual Rows"?: number;
  "Actual Loops"?: number;
  "Workers Launched"?: number;
  "Shared Hit Blocks"?: number;
  "Shared Read Blocks"?: number;
  "Temp Written Blocks"?: number;
  "Rows Removed by Filter"?: number;
  Plans?: RawPlan[];
  [name: string]: unknown;
}

export interface PlanLine {
  depth: number;
  name: string;
  /** What it works on, and how. */
  details: string[];
  /** Milliseconds of its own, without what is below it; none when nothing was run. */
  own?: number;
  total?: number;
  rowsExpected: number;
  rows?: number;
  loops?: number;
  /** How many times more or fewer rows came than were expected, if that is worth a word. */
  wrong?: number;
  /** Pages of its own: found in memory, and not. */
  hit: number;
  read: number;
  cost: number;
}

export interface Plan {
  lines: PlanLine[];
  /** Milliseconds. */
  planning?: number;
  execution?: number;
}

const WORTH_A_WORD = 10;
const CONDITIONS = ["Index Cond", "Recheck Cond", "Hash Cond", "Merge Cond", "Join Filter", "Filter", "One-Time Filter"];

function list(value: unknown): string {
  return Array.isArray(value) ? value.join(", ") : String(value);
}

function nameOf(plan: RawPlan): string {
  const type = plan["Node Type"];
  if (type === "ModifyTable" && plan.Operation) return plan.Operation;
  if (type === "Aggregate" && plan.Strategy && plan.Strategy !== "Plain") return `${plan.Strategy} aggregate`;
  const join = plan["Join Type"];
  return join && join !== "Inner" ? `${type} (${join.toLowerCase()})` : type;
}

function detailsOf(plan: RawPlan): string[] {
  const relation = plan["Relation Name"];
  const alias = plan.Alias && plan.Alias !== relation ? ` as ${plan.Alias}` : "";
  const on = relation ?? plan["CTE Name"] ?? plan["Function Name"];
  const said = [
    plan["Subplan Name"],
    on && `on ${String(on)}${alias}`,
    plan["Index Name"] && `by ${plan["Index Name"]}`,
    plan["Sort Key"] && `by ${list(plan["Sort Key"])}`,
    plan["Group Key"] && `by ${list(plan["Group Key"])}`,
    ...CONDITIONS.map((name) => plan[name] && `${name.toLowerCase()}: ${list(plan[name])}`),
    plan["Rows Removed by Filter"] && `${plan["Rows Removed by Filter"].toLocaleString("en")} rows removed by the filter`,
    plan["Temp Written Blocks"] && `${plan["Temp Written Blocks"].toLocaleString("en")} pages written to temporary files`,
  ];
  return said.filter((one): one is string => typeof one === "string");
}

/** Time of all its loops, those of workers at the same time counted once. */
function totalOf(plan: RawPlan, workers: number): number | undefined {
  const [time, loops] = [plan["Actual Total Time"], plan["Actual Loops"]];
  return time === undefined || loops === undefined ? undefined : (time * loops) / workers;
}

function howWrong(plan: RawPlan): number | undefined {
  const real = plan["Actual Rows"];
  if (real === undefined || !plan["Actual Loops"]) return undefined;
  const factor = Math.max(real, 1) / Math.max(plan["Plan Rows"], 1);
  const times = Math.round(Math.max(factor, 1 / factor));
  return times >= WORTH_A_WORD ? (factor > 1 ? times : -times) : undefined;
}

function walk(plan: RawPlan, depth: number, workers: number, lines: PlanLine[]) {
  const below = plan["Workers Launched"] ? plan["Workers Launched"] + 1 : workers;
  const children = plan.Plans ?? [];
  // What a WITH does is part of who reads it.
  const inside = children.filter((child) => !child["Subplan Name"]?.startsWith("CTE "));
  const total = totalOf(plan, workers);
  const spent = inside.reduce((sum, child) => sum + (totalOf(child, below) ?? 0), 0);
  const pages = (name: "Shared Hit Blocks" | "Shared Read Blocks") =>
    Math.max(0, (plan[name] ?? 0) - inside.reduce((sum, child) => sum + (child[name] ?? 0), 0));
  const wrong = howWrong(plan);
  lines.push({
    depth,
    name: nameOf(plan),
    details: detailsOf(plan),
    ...(total !== undefined && { total, own: Math.max(0, total - spent) }),
    rowsExpected: plan["Plan Rows"],
    ...(plan["Actual Rows"] !== undefined && { rows: plan["Actual Rows"], loops: plan["Actual Loops"] ?? 0 }),
    ...(wrong !== undefined && { wrong }),
    hit: pages("Shared Hit Blocks"),
    read: pages("Shared Read Blocks"),
    cost: plan["Total Cost"],
  });
  for (const child of children) walk(child, depth + 1, below, lines);
}

/** Reads what EXPLAIN wrote; nothing if it is none of its plans. */
export function readPlan(text: string): Plan | undefined {
  let read: unknown;
  try {
    read = JSON.parse(text);
  } catch {
    return undefined;
  }
  const first = (Array.isArray(read) ? read[0] : undefined) as
    | { Plan?: RawPlan; "Planning Time"?: number; "Execution Time"?: number }
    | undefined;
  if (!first?.Plan) return undefined;
  const lines: PlanLine[] = [];
  walk(first.Plan, 0, 1, lines);
  for (const line of lines.filter(({ name }) => name === "CTE Scan")) takeFromCte(line, lines);
  return {
    lines,
    ...(first["Planning Time"] !== undefined && { planning: first["Planning Time"] }),
    ...(first["Execution Time"] !== undefined && { execution: first["Execution Time"] }),
  };
}

/** Whoever reads a WITH first waits for it; that time is not its own. */
function takeFromCte(line: PlanLine, lines: PlanLine[]) {
  const name = line.details.find((said) => said.startsWith("on "))?.split(" ")[1];
  const made = lines.find(({ details }) => details[0] === `CTE ${name}`);
  if (line.own !== undefined && made?.total !== undefined && line.own >= made.total) line.own -= made.total;
}
