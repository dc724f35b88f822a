import { useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { Navigate } from "@tanstack/react-router";
import { projectsQuery, sessionQuery } from "../api/queries";
import { lastPlace } from "./places";
import { Mark } from "../ui/Mark";
import { Trouble } from "../ui/Trouble";

/** Leads to where somebody was last, or to the only project there is. */
export function Home() {
  const { data: session } = useSuspenseQuery(sessionQuery);
  const last = lastPlace();
  const organization = session.organizations.find(({ id }) => id === last.org) ?? session.organizations[0];
  const projects = useQuery({
    ...projectsQuery({ organizationID: organization?.id ?? "" }),
    enabled: organization !== undefined,
  });
  if (!organization) {
    return (
      <main className="boot">
        <title>No organization · Coppice</title>
        <Mark size={48} />
        <h1>You belong to no organization</h1>
        <p className="quiet">Somebody who administers one can invite {session.user.email}.</p>
      </main>
    );
  }
  if (projects.error) {
    return (
      <main className="boot">
        <title>Coppice</title>
        <h1>Coppice</h1>
        <Trouble error={projects.error} again={() => projects.refetch()} />
      </main>
    );
  }
  if (!projects.data) return null;
  const found = projects.data.projects;
  const project = found.find(({ id }) => id === last.project) ?? (found.length === 1 ? found[0] : undefined);
  return project ? (
    <Navigate
      to="/orgs/$org/projects/$project/branches"
      params={{ org: organization.id, project: project.id }}
      replace
    />
  ) : (
    <Navigate to="/orgs/$org/projects" params={{ org: organization.id }} replace />
  );
}
