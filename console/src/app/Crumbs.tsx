import { useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { Link, useMatches } from "@tanstack/react-router";
import { ChevronsUpDown } from "lucide-react";
import { projectsQuery, sessionQuery, treeQuery } from "../api/queries";
import { Menu } from "../ui/Menu";
import { State, stateOf } from "../ui/State";
import type { Where } from "./where";

/** Branches that a menu lists; more are found with Ctrl+K. */
const LISTED_MAX = 50;

/** Where one is, and what else there is on each step. */
export function Crumbs({ where }: { where: Where }) {
  const { data: session } = useSuspenseQuery(sessionQuery);
  const inProject = { organizationID: where.org, projectID: where.project ?? "" };
  const projects = useQuery(projectsQuery(inProject)).data?.projects ?? [];
  const tree = useQuery({ ...treeQuery(inProject), enabled: where.project !== undefined });
  const branches = tree.data?.branches ?? [];
  const page = useMatches({ select: (matches) => matches.at(-1)?.pathname.split("/").at(-1) });
  const organization = session.organizations.find(({ id }) => id === where.org);
  const project = projects.find(({ id }) => id === where.project);
  const branch = branches.find(({ id }) => id === where.branch);
  return (
    <nav className="crumbs" aria-label="Where you are">
      <Menu label={`Organization: ${organization?.name ?? ""}`} className="crumb" button={<Step name={organization?.name ?? ""} />}>
        <p className="over">Organizations</p>
        {session.organizations.map(({ id, name }) => (
          <Link key={id} to="/orgs/$org/projects" params={{ org: id }}>
            {name}
          </Link>
        ))}
      </Menu>
      {where.project && (
        <>
          <span className="slash" aria-hidden="true">
            /
          </span>
          <Menu label={`Project: ${project?.name ?? "…"}`} className="crumb" button={<Step name={project?.name ?? "…"} />}>
            <p className="over">Projects</p>
            {projects.map(({ id, name }) => (
              <Link
                key={id}
                to="/orgs/$org/projects/$project/branches"
                params={{ org: where.org, project: id }}
              >
                {name}
              </Link>
            ))}
            <hr />
            <Link to="/orgs/$org/projects" params={{ org: where.org }}>
              All projects
            </Link>
          </Menu>
        </>
      )}
      {where.project && where.branch && (
        <>
          <span className="slash" aria-hidden="true">
            /
          </span>
          <Menu label={`Branch: ${branch?.name ?? "…"}`} className="crumb" button={<Step name={branch?.name ?? "…"} />}>
            <p className="over">Branches</p>
            {branches.slice(0, LISTED_MAX).map((other) => (
              <Link
                key={other.id}
                to={`/orgs/$org/projects/$project/branches/$branch/${page ?? "overview"}` as "/"}
                params={{ org: where.org, project: where.project, branch: other.id } as never}
              >
                {other.name}
                <span className="end">
                  <State state={stateOf(other.statusType)} isShort />
                </span>
              </Link>
            ))}
            <hr />
            <Link
              to="/orgs/$org/projects/$project/branches"
              params={{ org: where.org, project: where.project }}
            >
              All {branches.length} branches
            </Link>
          </Menu>
          {branch && <State state={stateOf(branch.statusType)} said={branch.status} />}
        </>
      )}
    </nav>
  );
}

function Step({ name }: { name: string }) {
  return (
    <>
      <span className="name">{name}</span>
      <ChevronsUpDown aria-hidden="true" />
    </>
  );
}
