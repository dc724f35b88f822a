import { useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import type { Schemas } from "../../api/client";
import { backupQuery, branchQuery, historyQuery, type InBranch, sessionQuery, trashQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { counted } from "../../lib/amounts";
import { exact } from "../../lib/time";
import { Band, Empty, Outlines } from "../../ui/parts";
import { Ago } from "../../ui/Times";
import { Failed } from "../../ui/Trouble";
import { Restore } from "./Restore";
import { Versions } from "./Versions";
import "./backups.css";

/** What a branch can be taken back to. */
export function Backups() {
  const { org, project, branch } = useParams({ strict: false }) as Record<"org" | "project" | "branch", string>;
  const path: InBranch = { organizationID: org, projectID: project, branchID: branch };
  const details = useQuery(branchQuery(path)).data;
  const { data: session } = useSuspenseQuery(sessionQuery);
  const isKept = session.capabilities.backups;
  const backup = useQuery({ ...backupQuery(path), enabled: isKept });
  const versions = useQuery(historyQuery(path)).data?.versions ?? [];
  const rights = useRights(org);
  const why = rights.why("branch:write");
  const isAsleep = details?.status.statusType === "STATUS_TYPE_HIBERNATED";
  return (
    <>
      <title>{`Backups of ${details?.name ?? "a branch"} · Coppice`}</title>
      <div className="head">
        <h1>Backups</h1>
      </div>
      <Failed query={backup} />
      {!isKept && (
        <Empty title="No backups are made here">
          The server's storage can't keep what branches were: it needs btrfs for that, or a store. Deleted branches can
          be brought back all the same.
        </Empty>
      )}
      {isKept && backup.isPending && <Outlines count={6} />}
      {isAsleep && <Band kind="asleep">It sleeps. To restore it as it was does not wake it.</Band>}
      {backup.data && details && (
        <>
          <Window backup={backup.data} days={details.backupConfiguration?.retentionPeriod} />
          {backup.data.latestRestore && backup.data.earliestRestore && (
            <Restore
              key={details.id}
              path={path}
              name={details.name}
              from={backup.data.earliestRestore}
              to={backup.data.latestRestore}
              gaps={backup.data.gaps ?? []}
              why={why}
            />
          )}
        </>
      )}
      {details && versions.length > 0 && <Versions path={path} name={details.name} versions={versions} why={why} />}
      <InTrash path={path} />
    </>
  );
}

function Window({ backup, days }: { backup: Schemas["BackupMetadata"]; days: number | undefined }) {
  if (!backup.earliestRestore || !backup.latestRestore) {
    return <Empty title="Nothing can be restored yet">It can from the first second on that the branch is up.</Empty>;
  }
  return (
    <section className="card" aria-labelledby="window">
      <header>
        <h2 id="window">Can be restored</h2>
        {days && <p className="quiet">{days} days are kept, as far as there is room; its settings say how many</p>}
      </header>
      <dl className="inside window">
        <div>
          <dt>From</dt>
          <dd>
            {exact(backup.earliestRestore)}
            <span className="quiet">
              <Ago at={backup.earliestRestore} />
            </span>
          </dd>
        </div>
        <div>
          <dt>To</dt>
          <dd>
            {exact(backup.latestRestore)}
            <span className="quiet">
              <Ago at={backup.latestRestore} />
            </span>
          </dd>
        </div>
        {backup.lastDrill && <Proof drill={backup.lastDrill} />}
        <Gaps gaps={backup.gaps ?? []} />
      </dl>
    </section>
  );
}

/** So many are seen at a glance, and none that is shorter: they are told when somebody asks for a moment in one. */
const GAPS_MAX = 3;
const GAP_LEAST_MS = 5000;

/** Times of which nothing was kept. */
function Gaps({ gaps }: { gaps: Schemas["HistoryGap"][] }) {
  const long = gaps.filter(({ from, to }) => Date.parse(to) - Date.parse(from) >= GAP_LEAST_MS);
  const more = long.length - GAPS_MAX;
  if (long.length === 0) return null;
  return (
    <div>
      <dt>But not</dt>
      {long.slice(0, GAPS_MAX).map(({ from, to }) => (
        <dd key={from}>
          {exact(from)} to {exact(to)}
        </dd>
      ))}
      {more > 0 && <dd className="quiet">and {counted(more, "time")} before</dd>}
    </div>
  );
}

const PROOFS: Record<Schemas["DrillResult"], string> = {
  passed: "sound",
  failed: "not sound",
  skipped: "not done",
};

/** What came of it when a copy of the branch was last restored for proof. */
function Proof({ drill }: { drill: Schemas["Drill"] }) {
  return (
    <div>
      <dt>Restored for proof</dt>
      <dd>
        {PROOFS[drill.result]}
        <span className="quiet">
          <Ago at={drill.at} />: {drill.message}
        </span>
      </dd>
    </div>
  );
}

/** What was deleted is elsewhere, and sought here. */
function InTrash({ path }: { path: InBranch }) {
  const trash = useQuery(trashQuery(path)).data?.branches ?? [];
  if (trash.length === 0) return null;
  return (
    <p className="quiet">
      {counted(trash.length, "deleted branch", "deleted branches")} can be brought back,{" "}
      <Link
        to="/orgs/$org/projects/$project/branches"
        params={{ org: path.organizationID, project: path.projectID }}
      >
        below the branches
      </Link>
      .
    </p>
  );
}
