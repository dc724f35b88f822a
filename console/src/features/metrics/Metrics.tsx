import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { Schemas } from "../../api/client";
import { activityQuery, branchQuery, type InBranch, metricsQuery } from "../../api/queries";
import { lasting } from "../../lib/time";
import { asleep, joined, said, summary } from "../../lib/series";
import { Chart } from "../../ui/Chart";
import { InstanceField } from "../../ui/InstanceField";
import { Band, Button, Outlines } from "../../ui/parts";
import { Failed } from "../../ui/Trouble";
import "./metrics.css";

const MINUTE = 60_000;
const SPANS: [string, number][] = [
  ["1 h", 60 * MINUTE],
  ["6 h", 360 * MINUTE],
  ["24 h", 1440 * MINUTE],
  ["7 d", 10_080 * MINUTE],
  ["30 d", 43_200 * MINUTE],
];

type Metric = Schemas["MetricName"];
const CHARTS: { name: string; of: [Metric, string][] }[] = [
  { name: "CPU", of: [["cpu", "CPU"]] },
  { name: "Memory", of: [["memory", "Memory"]] },
  { name: "Disk", of: [["disk", "Disk"]] },
  { name: "Connections", of: [["connections_active", "Active"], ["connections_idle", "Idle"]] },
  { name: "Network", of: [["network_ingress", "In"], ["network_egress", "Out"]] },
  { name: "Disk operations", of: [["iops_read", "Reads"], ["iops_write", "Writes"]] },
  { name: "Disk latency", of: [["latency_read", "Reads"], ["latency_write", "Writes"]] },
  { name: "Disk throughput", of: [["throughput_read", "Reads"], ["throughput_write", "Writes"]] },
  { name: "WAL sync", of: [["wal_sync_time", "WAL sync"]] },
  { name: "Replication lag", of: [["replication_lag_time", "Lag"]] },
];
const ALL = CHARTS.flatMap(({ of }) => of.map(([metric]) => metric));

export interface MetricsSearch {
  span?: number;
  end?: number;
  instance?: string;
}

/** What a branch's server was busy with. One pointer for all charts; to draw over one zooms all. */
export function Metrics() {
  const { org, project, branch } = useParams({ strict: false }) as Record<"org" | "project" | "branch", string>;
  const path: InBranch = { organizationID: org, projectID: project, branchID: branch };
  const search = useSearch({ strict: false }) as MetricsSearch;
  const navigate = useNavigate();
  const [isTable, setTable] = useState(false);
  const details = useQuery(branchQuery(path)).data;
  const span = search.span ?? SPANS[0]?.[1] ?? MINUTE;
  const instances = details?.status.instances ?? [];
  // Of an instance that is not there any more, the primary is shown.
  const instance = instances.find(({ id }) => id === search.instance)?.id ?? `${branch}-1`;
  const found = useQuery(metricsQuery(path, ALL, { span, end: search.end, instance }));
  const go = (to: MetricsSearch) =>
    void navigate({ to: ".", search: { ...(search.instance && { instance: search.instance }), ...to } as never });
  const charts = useCharts(found.data);
  const zoom = (from: number, to: number) => go({ span: Math.max(MINUTE, Math.round(to - from)), end: Math.round(to) });
  return (
    <>
      <title>{`Metrics of ${details?.name ?? "a branch"} · Coppice`}</title>
      <div className="head">
        <h1>Metrics</h1>
        {search.end !== undefined && (
          <p className="quiet">
            {lasting(span)} until {new Date(search.end).toLocaleString()}
          </p>
        )}
        <div className="tools">
          <InstanceField instances={instances} value={instance} onChange={(instance) => go({ ...search, instance })} />
          <Button aria-pressed={isTable} onClick={() => setTable(!isTable)}>
            {isTable ? "As charts" : "As a table"}
          </Button>
          <Spans chosen={search.end === undefined ? span : undefined} onChoose={(span) => go({ span })} />
        </div>
      </div>
      {details?.status.statusType === "STATUS_TYPE_HIBERNATED" && (
        <Band kind="asleep">Asleep: nothing is measured. What was measured before stays.</Band>
      )}
      <Failed query={found} />
      {found.isPending && <Outlines count={6} />}
      {found.data && !isTable && (
        <Charts
          path={path}
          charts={charts}
          from={Date.parse(found.data.start)}
          to={Date.parse(found.data.end)}
          onZoom={zoom}
        />
      )}
      {found.data && isTable && <Table charts={charts} />}
    </>
  );
}

interface ChartData {
  name: string;
  unit: string;
  series: { label: string; values: { value: number }[] }[];
  times: number[];
  lines: (number | null)[][];
}

/** The same objects until there is something new, so that nothing is drawn again for nothing. */
function useCharts(found: Schemas["BranchMetrics"] | undefined): ChartData[] {
  return useMemo(() => {
    const results = new Map((found?.results ?? []).map((result) => [result.metric, result]));
    return CHARTS.map(({ name, of }) => {
      const series = of.map(([metric, label]) => ({
        label,
        values: results.get(metric)?.series[0]?.values ?? [],
      }));
      return { name, unit: results.get(of[0]?.[0] ?? "cpu")?.unit ?? "", series, ...joined(series) };
    });
  }, [found]);
}

function Spans({ chosen, onChoose }: { chosen: number | undefined; onChoose: (span: number) => void }) {
  return (
    <div className="segments" role="group" aria-label="How far back">
      {SPANS.map(([name, value]) => (
        <button key={name} type="button" aria-pressed={chosen === value} onClick={() => onChoose(value)}>
          {name}
        </button>
      ))}
    </div>
  );
}

interface ChartsProps {
  path: InBranch;
  charts: ChartData[];
  from: number;
  to: number;
  onZoom: (from: number, to: number) => void;
}

/** Without how long the present one lasts, which changes all the time. */
const timesAwake = ({ awake }: Schemas["BranchActivity"]) =>
  awake.map(({ beganAt, endedAt }) => ({ beganAt, endedAt }));

function Charts({ path, charts, from, to, onZoom }: ChartsProps) {
  const awake = useQuery({ ...activityQuery(path), refetchInterval: 15_000, select: timesAwake }).data;
  const slept = useMemo(() => asleep(awake ?? [], from, to), [awake, from, to]);
  return (
    <div className="charts">
      {charts.map((chart) => (
        <section key={chart.name} className="card chart" aria-label={chart.name}>
          <header>
            <h2>{chart.name}</h2>
            <Legend chart={chart} />
          </header>
          {chart.times.length > 0 ? (
            <Chart {...chart} from={from} to={to} asleep={slept} onZoom={onZoom} />
          ) : (
            <p className="nothing quiet">Nothing was measured in this time.</p>
          )}
        </section>
      ))}
    </div>
  );
}

function Legend({ chart: { series, unit } }: { chart: ChartData }) {
  return (
    <ul className="legend">
      {series.map(({ label, values }, index) => {
        const last = values.at(-1)?.value;
        return (
          <li key={label}>
            <span className={`swatch series-${index + 1}`} aria-hidden="true" />
            {series.length > 1 && <span className="quiet">{label}</span>}
            {last === undefined ? "" : said(last, unit)}
          </li>
        );
      })}
    </ul>
  );
}

function Table({ charts }: { charts: ChartData[] }) {
  return (
    <div className="card wide" role="region" aria-label="Measured" tabIndex={0}>
      <table className="table">
        <thead>
          <tr>
            <th>What</th>
            <th className="number">Last</th>
            <th className="number">Least</th>
            <th className="number">Average</th>
            <th className="number">Most</th>
          </tr>
        </thead>
        <tbody>
          {charts.flatMap(({ name, unit, series }) =>
            series.map(({ label, values }) => {
              const of = summary(values.map(({ value }) => value));
              return (
                <tr key={`${name} ${label}`}>
                  <td>{series.length > 1 ? `${name}: ${label.toLowerCase()}` : name}</td>
                  {(["last", "least", "average", "most"] as const).map((which) => (
                    <td key={which} className="number">
                      {of ? said(of[which], unit) : "–"}
                    </td>
                  ))}
                </tr>
              );
            }),
          )}
        </tbody>
      </table>
    </div>
  );
}
