import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Pause, Play, Regex } from "lucide-react";
import { type Ref, useRef, useState } from "react";
import type { Schemas } from "../../api/client";
import { branchQuery, type InBranch, logsQuery } from "../../api/queries";
import { useKeys } from "../../app/keys";
import { exact } from "../../lib/time";
import { InstanceField } from "../../ui/InstanceField";
import { useSettled } from "../../ui/useSettled";
import { Band, Button, Empty, Outlines, SearchField } from "../../ui/parts";
import { Failed } from "../../ui/Trouble";
import "./logs.css";

const MINUTE = 60_000;
const SPANS: [string, number][] = [
  ["15 min", 15 * MINUTE],
  ["1 h", 60 * MINUTE],
  ["24 h", 1440 * MINUTE],
  ["7 d", 10_080 * MINUTE],
];
/** How much is shown of what was measured around a line. */
const AROUND = 30 * MINUTE;
const LEVELS: [string, string][] = [
  ["Every level", ""],
  ["Warnings and errors", "warning,error"],
  ["Errors", "error"],
];

export interface LogSearch {
  text?: string;
  /** Whether the text is a regular expression. */
  regex?: boolean;
  level?: string;
  process?: string;
  instance?: string;
  span?: number;
}

/** What the server of a branch wrote down, the newest first. */
export function Logs() {
  const { org, project, branch } = useParams({ strict: false }) as Record<"org" | "project" | "branch", string>;
  const path: InBranch = { organizationID: org, projectID: project, branchID: branch };
  const search = useSearch({ strict: false }) as LogSearch;
  const navigate = useNavigate();
  const [isFollowed, setFollowed] = useState(true);
  const filter = useRef<HTMLInputElement>(null);
  const details = useQuery(branchQuery(path)).data;
  const set = (change: LogSearch) =>
    void navigate({ to: ".", search: { ...search, ...change } as never, replace: true });
  const span = search.span ?? SPANS[2]?.[1] ?? MINUTE;
  const contains = useSettled(search.text ?? "");
  const process = useSettled(search.process ?? "");
  const question = { span, contains, isRegex: search.regex ?? false, level: search.level ?? "", process, instance: search.instance ?? "" };
  const logs = useInfiniteQuery(logsQuery(path, question, isFollowed));
  const lines = logs.data?.pages.flatMap((page) => page.logs);
  useKeys({ "/": () => filter.current?.focus(), f: () => setFollowed(!isFollowed) });
  return (
    <>
      <title>{`Logs of ${details?.name ?? "a branch"} · Coppice`}</title>
      <div className="head">
        <h1>Logs</h1>
        <div className="tools">
          <InstanceField
            instances={details?.status.instances ?? []}
            value={search.instance ?? ""}
            all="Every instance"
            onChange={(instance) => set({ instance })}
          />
          <Filters search={search} span={span} field={filter} onChange={set} />
          <Button aria-pressed={isFollowed} title="f" onClick={() => setFollowed(!isFollowed)}>
            {isFollowed ? <Pause aria-hidden="true" /> : <Play aria-hidden="true" />}
            {isFollowed ? "Pause" : "Follow"}
          </Button>
        </div>
      </div>
      {details?.status.statusType === "STATUS_TYPE_HIBERNATED" && (
        <Band kind="asleep">Asleep, so nothing new is written. To look at what was written wakes nothing.</Band>
      )}
      <Failed query={logs} />
      {logs.isPending && <Outlines count={8} />}
      {lines?.length === 0 && (
        <div className="card">
          <Empty title="Nothing was written">
            {contains || process || question.level
              ? "Nothing in this time fits the filter."
              : "PostgreSQL wrote nothing in this time."}
          </Empty>
        </div>
      )}
      {lines && lines.length > 0 && (
        <ol className="logs card" aria-label="Log, newest first">
          {lines.map((line, index) => (
            <Line key={`${line.timestamp} ${index}`} line={line} path={path} />
          ))}
        </ol>
      )}
      {logs.hasNextPage && (
        <Button disabled={logs.isFetchingNextPage} onClick={() => void logs.fetchNextPage()}>
          Earlier ones
        </Button>
      )}
    </>
  );
}

interface FiltersProps {
  search: LogSearch;
  span: number;
  field: Ref<HTMLInputElement>;
  onChange: (change: LogSearch) => void;
}

/** Which lines are wanted. */
function Filters({ search, span, field, onChange }: FiltersProps) {
  return (
    <>
      <SearchField
        field={field}
        label="Text in the message"
        placeholder="Text in the message  /"
        value={search.text ?? ""}
        onChange={(text) => onChange({ text })}
      />
      <Button
        icon
        aria-pressed={search.regex ?? false}
        aria-label="Regular expression"
        title="The text is a regular expression"
        onClick={() => onChange({ regex: !search.regex })}
      >
        <Regex aria-hidden="true" />
      </Button>
      <SearchField
        isNarrow
        label="Process"
        placeholder="Process"
        value={search.process ?? ""}
        onChange={(text) => onChange({ process: text })}
      />
      <select
        className="select fit"
        aria-label="Level"
        value={search.level ?? ""}
        onChange={(event) => onChange({ level: event.target.value })}
      >
        {LEVELS.map(([name, value]) => (
          <option key={value} value={value}>
            {name}
          </option>
        ))}
      </select>
      <select
        className="select fit"
        aria-label="How far back"
        value={span}
        onChange={(event) => onChange({ span: Number(event.target.value) })}
      >
        {SPANS.map(([name, value]) => (
          <option key={value} value={value}>
            {name}
          </option>
        ))}
      </select>
    </>
  );
}

interface LineProps {
  line: Schemas["LogEntry"];
  path: InBranch;
}

/** A line; its time leads to what was measured around then. */
function Line({ line, path: { organizationID: org, projectID: project, branchID: branch } }: LineProps) {
  const at = Date.parse(line.timestamp);
  return (
    <li className={line.level}>
      <Link
        to="/orgs/$org/projects/$project/branches/$branch/metrics"
        params={{ org, project, branch }}
        search={{ instance: line.instanceID, span: AROUND, end: Math.min(at + AROUND / 2, Date.now()) }}
        title={`${exact(at)}: what was measured around then`}
      >
        <time dateTime={line.timestamp}>{new Date(at).toISOString().slice(11, 23)}</time>
      </Link>
      <span className="level">{line.level}</span>
      <span className="process quiet">{line.process}</span>
      <span className="message">{line.message}</span>
    </li>
  );
}
