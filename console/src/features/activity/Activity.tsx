import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import type { Schemas } from "../../api/client";
import { activityQuery, branchQuery, type InBranch } from "../../api/queries";
import { counted } from "../../lib/amounts";
import { exact, lasting, sentence } from "../../lib/time";
import { Band, Empty, Outlines } from "../../ui/parts";
import { Ago } from "../../ui/Times";
import { Failed } from "../../ui/Trouble";
import "./activity.css";

type Found = Schemas["BranchActivity"];

const MINUTE = 60_000;
const CAUSES = {
  creation: "It was made",
  request: "A request to the API",
  connection: "A connection",
  organization: "Its organization was enabled",
  budget: "A budget had room again",
};
const ENDS = {
  idle: "nobody used it",
  request: "a request to the API",
  organization: "its organization was disabled",
  budget: "a budget was used up",
};

/** Why a branch is awake, and when and why it was before. */
export function Activity() {
  const { org, project, branch } = useParams({ strict: false }) as Record<"org" | "project" | "branch", string>;
  const path: InBranch = { organizationID: org, projectID: project, branchID: branch };
  const details = useQuery(branchQuery(path)).data;
  const activity = useQuery(activityQuery(path));
  const found = activity.data;
  const isAsleep = details?.status.statusType === "STATUS_TYPE_HIBERNATED";
  return (
    <>
      <title>{`Activity of ${details?.name ?? "a branch"} · Coppice`}</title>
      <div className="head">
        <h1>Activity</h1>
      </div>
      <Failed query={activity} />
      {activity.isPending && <Outlines count={6} />}
      {found && (
        <>
          <Band kind={isAsleep ? "asleep" : "info"}>{sentence(found.summary)}</Band>
          <Connected sessions={found.sessions} />
          <Awake periods={found.awake} org={org} />
          {found.crashes.length > 0 && <Crashes moments={found.crashes} />}
        </>
      )}
    </>
  );
}

function Connected({ sessions }: { sessions: Found["sessions"] }) {
  return (
    <section className="card" aria-labelledby="now">
      <header>
        <h2 id="now">Connected now</h2>
        <p className="quiet">{counted(sessions.length, "session")}</p>
      </header>
      {sessions.length === 0 ? (
        <p className="quiet inside">Nobody.</p>
      ) : (
        <div className="wide" role="region" aria-label="Sessions" tabIndex={0}>
          <table className="table">
            <thead>
              <tr>
                <th>Application</th>
                <th>Role</th>
                <th>From</th>
                <th>Since</th>
              </tr>
            </thead>
            <tbody>
              {sessions.map((session, index) => (
                <tr key={`${session.since} ${index}`}>
                  <td className="application">{session.application || <span className="quiet">without a name</span>}</td>
                  <td>{session.role}</td>
                  <td className="mono">{session.address}</td>
                  <td>
                    <Ago at={session.since} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Awake({ periods, org }: { periods: Found["awake"]; org: string }) {
  const longest = Math.max(...periods.map(({ minutes }) => minutes));
  const all = periods.reduce((sum, { minutes }) => sum + minutes, 0);
  return (
    <section className="card" aria-labelledby="awake">
      <header>
        <h2 id="awake">Awake</h2>
        <p className="quiet">
          {lasting(all * MINUTE)} in 90 days, the newest first;{" "}
          <Link to="/orgs/$org/usage" params={{ org }} search={{ by: "branch" }}>
            what that costs
          </Link>
        </p>
      </header>
      {periods.length === 0 ? (
        <Empty title="Never yet">It is on its way.</Empty>
      ) : (
        <ol className="spans">
          {periods.map((span) => (
            <Span key={span.beganAt} span={span} longest={longest} />
          ))}
        </ol>
      )}
    </section>
  );
}

function Crashes({ moments }: { moments: Found["crashes"] }) {
  return (
    <section className="card" aria-labelledby="crashes">
      <header>
        <h2 id="crashes">Crashes</h2>
        <p className="quiet">its server had ended by itself, and was started again</p>
      </header>
      <ul className="inside">
        {moments.map((at) => (
          <li key={at}>{exact(at)}</li>
        ))}
      </ul>
    </section>
  );
}

function Span({ span, longest }: { span: Schemas["AwakePeriod"]; longest: number }) {
  const share = longest > 0 ? Math.max(1, (span.minutes / longest) * 100) : 1;
  return (
    <li>
      <div className="span-head">
        <strong>{lasting(span.minutes * MINUTE)}</strong>
        <span className="quiet">
          {exact(span.beganAt)}
          {span.endedAt ? ` to ${exact(span.endedAt)}` : ", still awake"}
        </span>
      </div>
      <div className={span.endedAt ? "bar" : "bar now"} aria-hidden="true">
        <span style={{ width: `${share}%` }} />
      </div>
      <p>
        {span.wokenBy ? `Woken by ${span.wokenBy}` : CAUSES[span.cause]}
        {span.endCause && `; fell asleep: ${ENDS[span.endCause]}`}.
      </p>
      {span.applications.length > 0 && (
        <ul className="uses">
          {span.applications.map((used) => (
            <li key={used.application} className={used.polls ? "tag polls" : "tag"}>
              {used.application || "without a name"}: {counted(used.sessions, "session")}, {lasting(used.minutes * MINUTE)}
              {used.polls && ", polls and so keeps it awake"}
            </li>
          ))}
        </ul>
      )}
    </li>
  );
}
