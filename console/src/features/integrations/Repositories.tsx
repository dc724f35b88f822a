import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { changeRepository, mapRepository, unmapRepository } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { projectsQuery, repositoryQuery, treeQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { Dialog } from "../../ui/Dialog";
import { ActionsHead, Button, Field, Outlines, TextField } from "../../ui/parts";
import { tell, tellError } from "../../ui/toasts";
import { Trouble } from "../../ui/Trouble";

type Mapping = Schemas["GithubRepository"];
type Project = Schemas["Project"];
type Branch = Schemas["BranchInTree"];

/** Projects whose repositories are asked for at a time. */
const PAGE = 20;

/** Which project has the pull requests of which repository. */
export function Repositories({ org }: { org: string }) {
  const found = useQuery(projectsQuery({ organizationID: org }));
  const [count, setCount] = useState(PAGE);
  const projects = found.data?.projects;
  if (found.error) return <Trouble error={found.error} again={() => void found.refetch()} />;
  if (!projects) return <Outlines count={2} />;
  if (projects.length === 0) return <p className="inside quiet">A project can have a repository, once there is one.</p>;
  return (
    <>
      <div className="wide" role="region" aria-label="Repositories" tabIndex={0}>
        <table className="table">
          <thead>
            <tr>
              <th>Project</th>
              <th>Repository</th>
              <th>Copies of</th>
              <th>Pull requests</th>
              <ActionsHead />
            </tr>
          </thead>
          <tbody>
            {projects.slice(0, count).map((project) => (
              <Row key={project.id} org={org} project={project} />
            ))}
          </tbody>
        </table>
      </div>
      {projects.length > count && (
        <p className="inside">
          <Button onClick={() => setCount(count + PAGE)}>More projects</Button>
        </p>
      )}
    </>
  );
}

function Row({ org, project }: { org: string; project: Project }) {
  const path = { organizationID: org, projectID: project.id };
  const why = useRights(org).why("project:write");
  // Which branches there are changes seldom, and there may be many projects.
  const tree = useQuery({ ...treeQuery(path), refetchInterval: false });
  const branches = tree.data?.branches ?? [];
  const at = { ...path, branchID: branches[0]?.id ?? "" };
  const found = useQuery({ ...repositoryQuery(at), enabled: branches.length > 0 });
  const [asked, setAsked] = useState<"map" | "unmap" | null>(null);
  const mapping = found.data?.mapping;
  const root = branches.find(({ id }) => id === mapping?.rootBranchId);
  const error = tree.error ?? found.error;
  return (
    <tr>
      <td>{project.name}</td>
      {mapping ? (
        <>
          <td className="mono">{mapping.githubRepositoryID}</td>
          <td>{root?.name ?? mapping.rootBranchId}</td>
          <td>
            <Switches path={{ ...path, branchID: mapping.rootBranchId }} mapping={mapping} why={why} />
          </td>
        </>
      ) : (
        <td colSpan={3} className="quiet">
          {error ? error.message : tree.data && branches.length === 0 ? "It has no branch that could be copied." : found.data ? "None" : "…"}
        </td>
      )}
      <td className="number actions">
        {found.data && (
          <Button kind="bare" why={why} onClick={() => setAsked("map")}>
            {mapping ? "Change" : "Map"}
          </Button>
        )}
        {mapping && (
          <Button kind="bare" why={why} onClick={() => setAsked("unmap")}>
            Unmap
          </Button>
        )}
        {asked === "map" && <Map path={path} project={project} mapping={mapping} branches={branches} onClose={() => setAsked(null)} />}
        {asked === "unmap" && <Unmap path={at} project={project} onClose={() => setAsked(null)} />}
      </td>
    </tr>
  );
}

interface SwitchesProps {
  /** The branch that is copied: what it says stays with a change. */
  path: { organizationID: string; projectID: string; branchID: string };
  mapping: Mapping;
  why: string | undefined;
}

/** Which pull requests have branches. */
function Switches({ path, mapping, why }: SwitchesProps) {
  const { githubRepositoryID, previews, forks } = mapping;
  const changed = useMutation({
    mutationFn: (change: { previews: boolean; forks: boolean }) => changeRepository(path, { githubRepositoryID, ...change }),
    onError: tellError,
  });
  const isFixed = why !== undefined || changed.isPending;
  return (
    <div className="switches" title={why}>
      <label className="check">
        <input
          type="checkbox"
          role="switch"
          disabled={isFixed}
          checked={previews}
          onChange={(event) => changed.mutate({ previews: event.target.checked, forks })}
        />
        Have branches
      </label>
      <label className="check">
        <input
          type="checkbox"
          role="switch"
          disabled={isFixed || !previews}
          checked={forks}
          onChange={(event) => changed.mutate({ previews, forks: event.target.checked })}
        />
        <span>
          Those from forks, too <span className="quiet">anybody can open one</span>
        </span>
      </label>
    </div>
  );
}

interface MapProps {
  path: { organizationID: string; projectID: string };
  project: Project;
  /** What there is; without it a new one. */
  mapping: Mapping | null | undefined;
  branches: readonly Branch[];
  onClose: () => void;
}

function Map({ path, project, mapping, branches, onClose }: MapProps) {
  const [number, setNumber] = useState(mapping ? String(mapping.githubRepositoryID) : "");
  const [root, setRoot] = useState(mapping?.rootBranchId ?? branches[0]?.id ?? "");
  const done = useMutation({
    mutationFn: () => {
      const at = { ...path, branchID: root };
      const githubRepositoryID = Number(number);
      return mapping ? changeRepository(at, { githubRepositoryID }) : mapRepository(at, { githubRepositoryID });
    },
    onSuccess: () => {
      tell(`${project.name} has the pull requests of that repository now.`);
      onClose();
    },
  });
  const isNumber = /^[1-9]\d{0,14}$/.test(number.trim());
  return (
    <Dialog
      title={`The repository of ${project.name}`}
      does={mapping ? "Change it" : "Map it"}
      isBusy={done.isPending}
      why={isNumber ? undefined : "It needs the repository's number."}
      onDone={() => done.mutate()}
      onClose={onClose}
    >
      <TextField
        label="The repository's number at GitHub"
        hint={
          <>
            <code>gh api repos/OWNER/NAME --jq .id</code> prints it.
          </>
        }
        inputMode="numeric"
        autoComplete="off"
        value={number}
        onChange={setNumber}
      />
      <Field label="A pull request has a copy of" hint="Those that are open already get theirs at once.">
        {(ids) => (
          <select {...ids} className="select" value={root} onChange={(event) => setRoot(event.target.value)}>
            {branches.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        )}
      </Field>
      {done.error && <Trouble error={done.error} />}
    </Dialog>
  );
}

interface UnmapProps {
  path: { organizationID: string; projectID: string; branchID: string };
  project: Project;
  onClose: () => void;
}

function Unmap({ path, project, onClose }: UnmapProps) {
  const done = useMutation({
    mutationFn: () => unmapRepository(path),
    onSuccess: () => {
      tell(`${project.name} has no repository any more.`);
      onClose();
    },
  });
  return (
    <Dialog
      title={`Unmap the repository of ${project.name}?`}
      does="Unmap"
      isDangerous
      isBusy={done.isPending}
      onDone={() => done.mutate()}
      onClose={onClose}
    >
      <p>Pull requests get no branches any more. Those that have one keep it until its time is over.</p>
      {done.error && <Trouble error={done.error} />}
    </Dialog>
  );
}
