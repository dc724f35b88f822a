import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { Moon, Sunrise } from "lucide-react";
import { updateBranch } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { branchQuery, type InBranch, treeQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { useKeys } from "../../app/keys";
import { bytes, counted } from "../../lib/amounts";
import { exact } from "../../lib/time";
import { Band, Button, Outlines } from "../../ui/parts";
import { stateOf } from "../../ui/State";
import { Since, Until } from "../../ui/Times";
import { Failed, Trouble } from "../../ui/Trouble";
import { Connect } from "./Connect";
import "./overview.css";

/** A branch at a glance: how to connect, what it is doing and why, what it is. */
export function Overview() {
  const { org, project, branch: id } = useParams({ strict: false }) as Record<"org" | "project" | "branch", string>;
  const path: InBranch = { organizationID: org, projectID: project, branchID: id };
  const details = useQuery(branchQuery(path));
  const tree = useQuery(treeQuery({ organizationID: org, projectID: project }));
  const rights = useRights(org);
  const turned = useMutation({ mutationFn: (hibernate: boolean) => updateBranch(path, { hibernate }) });
  const navigate = useNavigate();
  const to = "/orgs/$org/projects/$project/branches/$branch/diff";
  useKeys({ d: () => void navigate({ to, params: { org, project, branch: id } }) });
  const seen = tree.data?.branches.find((branch) => branch.id === id);
  const parent = tree.data?.branches.find((branch) => branch.id === seen?.parentID);
  const children = tree.data?.branches.filter((branch) => branch.parentID === id) ?? [];
  const branch = details.data;
  if (details.error && !branch) {
    return (
      <>
        <title>No such branch · Coppice</title>
        <h1>This branch can't be shown</h1>
        <Failed query={details} />
      </>
    );
  }
  return (
    <>
      <title>{`${branch?.name ?? "Branch"} · Coppice`}</title>
      <div className="head">
        <h1>{branch?.name ?? "…"}</h1>
        {branch?.description && <p className="quiet">{branch.description}</p>}
        {branch && (
          <Turn
            status={branch.status}
            why={rights.why("branch:write")}
            isBusy={turned.isPending}
            onTurn={turned.mutate}
          />
        )}
      </div>
      {turned.error && <Trouble error={turned.error} />}
      {branch && <Condition branch={branch} seen={seen} />}
      {!branch && <Outlines />}
      {branch && (
        <>
          <Connect
            path={path}
            hasReplicas={branch.configuration.replicas > 0}
            canSee={rights.can("credentials:read")}
            why={rights.why("credentials:write")}
          />
          <div className="facts-row">
            <Doing branch={branch} seen={seen} />
            <Being branch={branch} seen={seen} parent={parent} children={children.length} at={{ org, project }} />
          </div>
        </>
      )}
    </>
  );
}

interface TurnProps {
  status: Schemas["BranchDetails"]["status"];
  why: string | undefined;
  isBusy: boolean;
  onTurn: (hibernate: boolean) => void;
}

/** Lets a branch sleep, or wakes it. */
function Turn({ status, why, isBusy, onTurn }: TurnProps) {
  const state = stateOf(status.statusType);
  const isAwake = state === "awake";
  const canTurn = isAwake || state === "asleep";
  useKeys({ s: () => !why && canTurn && !isBusy && onTurn(isAwake) });
  if (!canTurn) return null;
  return (
    <div className="tools">
      <Button why={why} disabled={isBusy} onClick={() => onTurn(isAwake)}>
        {isAwake ? <Moon aria-hidden="true" /> : <Sunrise aria-hidden="true" />}
        {isAwake ? "Let it sleep" : "Wake it"}
      </Button>
    </div>
  );
}

/** What has to be known of it before anything else, if there is such a thing. */
function Condition({ branch: { status }, seen }: CardProps) {
  if (status.statusType === "STATUS_TYPE_FAULT") return <Band kind="bad">{status.message}</Band>;
  if (stateOf(status.statusType) !== "asleep") return null;
  // What keeps it asleep follows the word for its state.
  const held = status.message.slice(`${status.status}: `.length);
  return (
    <Band kind="asleep">
      Asleep{seen?.asleepSince && <> for <Since at={seen.asleepSince} /></>}.{" "}
      {held ? `It has to: ${held}` : "It costs nothing but storage, and wakes by itself when somebody connects."}
    </Band>
  );
}

interface CardProps {
  branch: Schemas["BranchDetails"];
  /** The same as the tree has it, once that is there. */
  seen: Schemas["BranchInTree"] | undefined;
}

function Doing({ branch, seen }: CardProps) {
  return (
    <section className="card facts" aria-labelledby="doing">
      <h2 id="doing">What it is doing</h2>
      <dl>
        <Fact name="State">{branch.status.status}</Fact>
        {stateOf(branch.status.statusType) === "awake" && (
          <>
            <Fact name="Clients">{seen ? counted(seen.sessions, "session") : "…"}</Fact>
            {seen?.wokenAt && (
              <Fact name="Awake for">
                <Since at={seen.wokenAt} />
              </Fact>
            )}
            {seen?.sleepsAt && (
              <Fact name="Sleeps">
                <Until at={seen.sleepsAt} /> if nobody connects
              </Fact>
            )}
          </>
        )}
        {seen?.wokenBy && <Fact name="Last woken by">{seen.wokenBy}</Fact>}
        <Fact name="When unused">
          {branch.scaleToZero.enabled
            ? `sleeps after ${branch.scaleToZero.inactivityPeriodMinutes} min`
            : "stays awake"}
        </Fact>
      </dl>
    </section>
  );
}

/** How many replicas there are to be, and how many of them serve reads. */
function replicas({ configuration, status }: Schemas["BranchDetails"]): string {
  const wanted = configuration.replicas;
  if (wanted === 0) return "none";
  const ready = status.instances.filter(({ primary, status }) => !primary && status === "healthy").length;
  return stateOf(status.statusType) === "asleep" ? `${wanted}, asleep with it` : `${ready} of ${wanted} ready`;
}

interface BeingProps extends CardProps {
  parent: Schemas["BranchInTree"] | undefined;
  children: number;
  at: { org: string; project: string };
}

function Being({ branch, seen, parent, children, at }: BeingProps) {
  return (
    <section className="card facts" aria-labelledby="being">
      <h2 id="being">What it is</h2>
      <dl>
        <Fact name="PostgreSQL">{branch.configuration.image}</Fact>
        <Fact name="Size">{branch.configuration.instanceType}</Fact>
        <Fact name="Replicas">{replicas(branch)}</Fact>
        <Fact name="Data">
          {seen?.diskBytes == null ? "not measured yet" : bytes(seen.diskBytes)} of at most{" "}
          {branch.configuration.storage} GiB
        </Fact>
        <Fact name="Its own">
          {seen?.ownBytes == null || seen.sharedBytes == null
            ? "not known here"
            : `${bytes(seen.ownBytes)}; ${bytes(seen.sharedBytes)} are shared with what it was made from`}
        </Fact>
        <Fact name="Made">
          <time dateTime={branch.createdAt}>{exact(branch.createdAt)}</time>
        </Fact>
        {parent && (
          <Fact name="From">
            <Link
              to="/orgs/$org/projects/$project/branches/$branch/overview"
              params={{ ...at, branch: parent.id }}
            >
              {parent.name}
            </Link>
          </Fact>
        )}
        <Fact name="Branches from it">{children || "none"}</Fact>
        <Fact name="Id">
          <code>{branch.id}</code>
        </Fact>
      </dl>
    </section>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
