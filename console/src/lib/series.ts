// Measured values, as charts and tables want them.
import { bytes } from "./amounts";

interface Series {
  values: { timestamp: string; value: number }[];
}

/** The moments, and one within each gap, where no line goes over what was not measured. */
function withGaps(times: readonly number[]): number[] {
  const steps = times.slice(1).map((time, index) => time - (times[index] as number));
  const step = Math.min(...steps);
  return times.flatMap((time, index) => ((steps[index] ?? step) > 2 * step ? [time, time + step] : [time]));
}

/** Several series over the same moments, in seconds; where one has no value, none. */
export function joined(series: readonly Series[]): { times: number[]; lines: (number | null)[][] } {
  const at = (timestamp: string) => Date.parse(timestamp) / 1000;
  const measured = new Set(series.flatMap(({ values }) => values.map(({ timestamp }) => at(timestamp))));
  const times = withGaps([...measured].sort((a, b) => a - b));
  const lines = series.map(({ values }) => {
    const known = new Map(values.map(({ timestamp, value }) => [at(timestamp), value]));
    return times.map((time) => known.get(time) ?? null);
  });
  return { times, lines };
}

/** Where values stand that have no neighbour: no line goes to them. */
export function alone(line: readonly (number | null | undefined)[]): number[] {
  return line.flatMap((value, index) => (value != null && line[index - 1] == null && line[index + 1] == null ? [index] : []));
}

export function summary(values: readonly number[]) {
  const last = values.at(-1);
  if (last === undefined) return undefined;
  const sum = values.reduce((total, value) => total + value, 0);
  return { last, least: Math.min(...values), average: sum / values.length, most: Math.max(...values) };
}

interface Period {
  beganAt: string;
  endedAt: string | null;
}

/**
 * When a branch slept within a time, in milliseconds since 1970: between the times in which it was awake, newest first.
 * What was before the first of these is not known.
 */
export function asleep(awake: readonly Period[], from: number, to: number): [number, number][] {
  const gaps: [number, number][] = [];
  let later = to;
  for (const { beganAt, endedAt } of awake) {
    const end = endedAt === null ? to : Date.parse(endedAt);
    gaps.push([Math.max(end, from), Math.min(later, to)]);
    later = Date.parse(beganAt);
  }
  return gaps.filter(([start, end]) => start < end).reverse();
}

/** A value with its unit, as short as it can be told. */
export function said(value: number, unit: string): string {
  if (unit === "bytes") return bytes(Math.round(value));
  if (unit === "bytes/s") return `${bytes(Math.round(value))}/s`;
  const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  const number = Number(value.toFixed(digits)).toLocaleString("en");
  if (unit === "percentage") return `${number} %`;
  if (unit === "iops") return `${number}/s`;
  return unit === "connections" || unit === "" ? number : `${number} ${unit}`;
}
