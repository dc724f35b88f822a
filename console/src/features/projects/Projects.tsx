import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import { useState } from "react";
import { createProject } from "../../api/changes";
import { projectsQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { useKeys } from "../../app/keys";
import { Dialog } from "../../ui/Dialog";
import { Mark } from "../../ui/Mark";
import { Button, Empty, Outlines, TextField } from "../../ui/parts";
import { Ago } from "../../ui/Times";
import { Failed, Trouble } from "../../ui/Trouble";
import "./projects.css";

/** The projects of an organization. */
export function Projects() {
  const { org } = useParams({ strict: false }) as { org: string };
  const path = { organizationID: org };
  const projects = useQuery(projectsQuery(path));
  const rights = useRights(org);
  const [isAsking, setAsking] = useState(false);
  const ask = () => !rights.why("project:write") && setAsking(true);
  useKeys({ n: ask });
  const found = projects.data?.projects;
  const action = (
    <Button kind="main" why={rights.why("project:write")} onClick={ask}>
      <Plus aria-hidden="true" />
      New project
    </Button>
  );
  return (
    <>
      <title>Projects · Coppice</title>
      <div className="head">
        <h1>Projects</h1>
        {found && found.length > 0 && <div className="tools">{action}</div>}
      </div>
      <Failed query={projects} />
      {projects.isPending && <Outlines />}
      {found?.length === 0 && (
        <div className="card">
          <Empty title="No projects yet" picture={<Mark size={48} />} action={action}>
            A project holds the branches of one database.
          </Empty>
        </div>
      )}
      {found && found.length > 0 && (
        <ul className="projects">
          {found.map((project) => (
            <li key={project.id} className="card">
              <Link to="/orgs/$org/projects/$project/branches" params={{ org, project: project.id }}>
                {project.name}
              </Link>
              <p className="quiet">
                Made <Ago at={project.createdAt} />
                {project.configuration.ipFiltering.enabled && " · only some addresses may connect"}
              </p>
            </li>
          ))}
        </ul>
      )}
      {isAsking && <NewProject org={org} onClose={() => setAsking(false)} />}
    </>
  );
}

function NewProject({ org, onClose }: { org: string; onClose: () => void }) {
  const [name, setName] = useState("");
  const navigate = useNavigate();
  const made = useMutation({
    mutationFn: () => createProject({ organizationID: org }, name.trim()),
    onSuccess: ({ id }) =>
      navigate({ to: "/orgs/$org/projects/$project/branches", params: { org, project: id } }),
  });
  return (
    <Dialog
      title="New project"
      does="Make it"
      isBusy={made.isPending}
      why={name.trim() ? undefined : "It needs a name."}
      onDone={() => made.mutate()}
      onClose={onClose}
    >
      <TextField label="Name" autoFocus maxLength={128} autoComplete="off" value={name} onChange={setName} />
      {made.error && <Trouble error={made.error} />}
    </Dialog>
  );
}
