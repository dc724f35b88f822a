import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { GitCompareArrows } from "lucide-react";
import { useState } from "react";
import { wakeBranches } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { diffQuery, type InBranch, treeQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { Band, Button, Empty, Field, Outlines } from "../../ui/parts";
import { stateOf } from "../../ui/State";
import { Failed, Trouble } from "../../ui/Trouble";
import { ChangedBytes } from "./ChangedBytes";
import { Definitions } from "./Definitions";
import { Objects } from "./Objects";
import { Statements } from "./Statements";
import "./diff.css";

export interface DiffSearch {
  /** The branch to compare with, by its id; none is the parent. */
  against?: string;
  /** An object, by its kind and name. */
  object?: string;
}

/** What a branch has that its parent, or another branch, has not. */
export function Diff() {
  const { org, project, branch } = useParams({ strict: false }) as Record<"org" | "project" | "branch", string>;
  const path: InBranch = { organizationID: org, projectID: project, branchID: branch };
  const search = useSearch({ strict: false }) as DiffSearch;
  const tree = useQuery(treeQuery(path));
  const branches = tree.data?.branches ?? [];
  const own = branches.find(({ id }) => id === branch);
  const against = branches.find(({ id }) => id === (search.against ?? own?.parentID));
  const why = useRights(org).why("data:read");
  const [asked, setAsked] = useState("");
  const pair = against ? `${branch} ${against.id}` : "";
  const resting = [own, against].filter((one) => one !== undefined).filter((one) => stateOf(one.statusType) !== "awake");
  const isOpen = !why && against !== undefined && (resting.length === 0 || asked === pair);
  const found = useQuery({ ...diffQuery(path, against?.id ?? ""), enabled: isOpen });
  return (
    <>
      <title>{`Diff of ${own?.name ?? "a branch"} · Coppice`}</title>
      <div className="head">
        <h1>Diff</h1>
        {own && <p className="quiet">what {own.name} has and the other branch has not</p>}
      </div>
      {why && <Band kind="info">{why} Comparing reads what tables there are.</Band>}
      <Failed query={tree} />
      {own && branches.length > 1 && (
        <div className="diff-choice">
          <Against own={own} against={against} branches={branches} />
          {isOpen && found.data && (
            <Button onClick={() => void found.refetch()} aria-busy={found.isFetching}>
              <GitCompareArrows aria-hidden="true" />
              {found.isFetching ? "Comparing…" : "Compare again"}
            </Button>
          )}
        </div>
      )}
      {own && !against && (
        <div className="card">
          <Empty title="Nothing to compare with">
            {branches.length > 1
              ? "This branch has no parent: choose another one above."
              : "This is the only branch. Make a copy of it, change that, and look at what is different."}
          </Empty>
        </div>
      )}
      {!why && against && !isOpen && <Resting path={path} resting={resting} onWoken={() => setAsked(pair)} />}
      <Failed query={found} />
      {isOpen && found.isPending && <Outlines count={6} />}
      {isOpen && found.data && <Found found={found.data} chosen={search.object} />}
    </>
  );
}

type BranchInTree = Schemas["BranchInTree"];

interface AgainstProps {
  own: BranchInTree;
  against: BranchInTree | undefined;
  branches: readonly BranchInTree[];
}

/** Which branch it is compared with. */
function Against({ own, against, branches }: AgainstProps) {
  const navigate = useNavigate();
  const choose = (id: string) => void navigate({ to: ".", search: { against: id } as never, replace: true });
  return (
    <Field label="Compare with">
      {(ids) => (
        <select {...ids} className="select fit" value={against?.id ?? ""} onChange={(event) => choose(event.target.value)}>
          {!against && <option value="">Choose a branch</option>}
          {branches
            .filter(({ id }) => id !== own.id)
            .map(({ id, name }) => (
              <option key={id} value={id}>
                {id === own.parentID ? `${name}, its parent` : name}
              </option>
            ))}
        </select>
      )}
    </Field>
  );
}

interface RestingProps {
  path: InBranch;
  /** Those of both that are not awake. */
  resting: BranchInTree[];
  onWoken: () => void;
}

/** Wakes what is compared; a branch that was sent to sleep is woken by no connection. */
function Resting({ path, resting, onWoken }: RestingProps) {
  const mayNot = useRights(path.organizationID).why("branch:write") !== undefined;
  const asleep = resting.filter(({ statusType }) => stateOf(statusType) === "asleep");
  const woken = useMutation({
    mutationFn: async () => mayNot || wakeBranches(asleep.map(({ id }) => ({ ...path, branchID: id }))),
    onSuccess: onWoken,
  });
  return (
    <>
      <Band
        kind="asleep"
        action={
          <Button disabled={woken.isPending} onClick={() => woken.mutate()}>
            <GitCompareArrows aria-hidden="true" />
            Wake and compare
          </Button>
        }
      >
        Not awake: {resting.map(({ name }) => name).join(" and ")}. Comparing wakes both branches, and they stay awake until
        nobody has used them for a while.
      </Band>
      {woken.error && <Trouble error={woken.error} />}
    </>
  );
}

function Found({ found, chosen }: { found: Schemas["BranchDiff"]; chosen: string | undefined }) {
  const { objects, branch, against, notCompared } = found;
  const object = objects.find(({ kind, name }) => `${kind} ${name}` === chosen) ?? objects[0];
  return (
    <>
      {notCompared.length > 0 && (
        <Band kind="info">
          Not compared: {notCompared.map((kind) => `${kind.kind} (${kind.branch} here, ${kind.against} there)`).join(", ")}.
        </Band>
      )}
      {object ? (
        <div className="diff">
          <Objects objects={objects} chosen={object} />
          <Definitions object={object} before={against.name} after={branch.name} />
        </div>
      ) : (
        <div className="card">
          <Empty title="No difference in the schema">
            {branch.name} has the schema of {against.name}.
          </Empty>
        </div>
      )}
      {found.statements.length > 0 && <Statements found={found} />}
      {found.changedBytes && <ChangedBytes changed={found.changedBytes} against={against.name} />}
    </>
  );
}
