import { useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { Link, useMatches } from "@tanstack/react-router";
import { ChevronsUpDown } from "lucide-react";
import type { ReactNode } from "react";
import type { Schemas } from "../api/client";
import { projectsQuery, sessionQuery, treeQuery } from "../api/queries";
import { Menu } from "../ui/Menu";
import { State, stateOf } from "../ui/State";
import type { Where } from "./where";

/** Branches that a menu lists; more are found with Ctrl+K. */
const LISTED_MAX = 50;

/** Where one is, and what else there is on each step. */
export function Crumbs({ where: { org, project, branch } }: { where: Where }) {
  const inProject = { organizationID: org, projectID: project ?? "" };
  const projects = useQuery(projectsQuery(inProject)).data?.projects ?? [];
  const tree = useQuery({ ...treeQuery(inProject), enabled: project !== undefined });
  return (
    <nav className="crumbs" aria-label="Where you are">
      <OrganizationStep org={org} />
      {project && <ProjectStep org={org} project={project} projects={projects} />}
      {project && branch && (
        <BranchStep org={org} project={project} branch={branch} branches={tree.data?.branches ?? []} />
      )}
    </nav>
  );
}

function OrganizationStep({ org }: { org: string }) {
  const { data: session } = useSuspenseQuery(sessionQuery);
  const found = session.organizations.find(({ id }) => id === org);
  return (
    <Step kind="Organization" name={found?.name ?? ""}>
      {session.organizations.map(({ id, name }) => (
        <Link key={id} to="/orgs/$org/projects" params={{ org: id }}>
          {name}
        </Link>
      ))}
    </Step>
  );
}

interface ProjectStepProps {
  org: string;
  project: string;
  projects: readonly Schemas["Project"][];
}

function ProjectStep({ org, project, projects }: ProjectStepProps) {
  const found = projects.find(({ id }) => id === project);
  return (
    <>
      <Slash />
      <Step kind="Project" name={found?.name ?? "…"}>
        {projects.map(({ id, name }) => (
          <Link key={id} to="/orgs/$org/projects/$project/branches" params={{ org, project: id }}>
            {name}
          </Link>
        ))}
        <hr />
        <Link to="/orgs/$org/projects" params={{ org }}>
          All projects
        </Link>
      </Step>
    </>
  );
}

interface BranchStepProps {
  org: string;
  project: string;
  branch: string;
  branches: readonly Schemas["BranchInTree"][];
}

/** The page stays when another branch is chosen. */
function BranchStep({ org, project, branch, branches }: BranchStepProps) {
  const page = useMatches({ select: (matches) => matches.at(-1)?.pathname.split("/").at(-1) });
  const found = branches.find(({ id }) => id === branch);
  return (
    <>
      <Slash />
      <Step kind="Branch" name={found?.name ?? "…"}>
        {branches.slice(0, LISTED_MAX).map((other) => (
          <Link
            key={other.id}
            to={`/orgs/$org/projects/$project/branches/$branch/${page ?? "overview"}` as "/"}
            params={{ org, project, branch: other.id } as never}
          >
            {other.name}
            <span className="end">
              <State state={stateOf(other.statusType)} isShort />
            </span>
          </Link>
        ))}
        <hr />
        <Link to="/orgs/$org/projects/$project/branches" params={{ org, project }}>
          All {branches.length} branches
        </Link>
      </Step>
      {found && <State state={stateOf(found.statusType)} said={found.status} />}
    </>
  );
}

function Slash() {
  return (
    <span className="slash" aria-hidden="true">
      /
    </span>
  );
}

interface StepProps {
  kind: "Organization" | "Project" | "Branch";
  name: string;
  /** What else there is on this step. */
  children: ReactNode;
}

function Step({ kind, name, children }: StepProps) {
  const button = (
    <>
      <span className="name">{name}</span>
      <ChevronsUpDown aria-hidden="true" />
    </>
  );
  const heading = kind === "Branch" ? "Branches" : `${kind}s`;
  return (
    <Menu label={`${kind}: ${name}`} className="crumb" button={button}>
      <p className="over">{heading}</p>
      {children}
    </Menu>
  );
}
