import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { Plus, Trash2 } from "lucide-react";
import { type FormEvent, useState } from "react";
import { deleteProject, updateProject } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { type InProject, projectQuery, sessionQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { LastsField } from "../../ui/LastsField";
import { Button, Outlines, TextField } from "../../ui/parts";
import { Failed, Trouble } from "../../ui/Trouble";
import { tell } from "../../ui/toasts";
import { TypedWord } from "../../ui/TypedWord";
import { Saved, SleepFields } from "./fields";
import "./settings.css";

type Project = Schemas["Project"];

interface PartProps {
  path: InProject;
  project: Project;
  why: string | undefined;
}

/** What of a project can be changed, what can't be undone last. */
export function ProjectSettings() {
  const { org, project: id } = useParams({ strict: false }) as { org: string; project: string };
  const path = { organizationID: org, projectID: id };
  const project = useQuery(projectQuery(path));
  const rights = useRights(org);
  const why = rights.why("project:write");
  const found = project.data;
  return (
    <>
      <title>{`Settings of ${found?.name ?? "a project"} · Coppice`}</title>
      <div className="head">
        <h1>Project settings</h1>
      </div>
      <Failed query={project} />
      {project.isPending && <Outlines />}
      {found && (
        <>
          <Name path={path} project={found} why={why} />
          <Sleep path={path} project={found} why={why} />
          <Expiry path={path} project={found} why={why} />
          <Addresses path={path} project={found} why={why} />
          <Danger path={path} project={found} why={why} />
        </>
      )}
    </>
  );
}

function useChange(path: InProject) {
  return useMutation({
    mutationFn: (change: Schemas["UpdateProject"]) => updateProject(path, change),
    onSuccess: () => tell("Saved."),
  });
}

function Name({ path, project, why }: PartProps) {
  const [name, setName] = useState(project.name);
  const change = useChange(path);
  return (
    <Saved
      title="Name"
      change={change}
      why={why}
      isSame={name.trim() === project.name}
      onSave={() => change.mutate({ name: name.trim() })}
    >
      <TextField label="Name" maxLength={128} value={name} onChange={setName} />
    </Saved>
  );
}

function Sleep({ path, project, why }: PartProps) {
  const [setting, setSetting] = useState(project.configuration.scaleToZero);
  const change = useChange(path);
  return (
    <Saved
      title="Sleep of new branches"
      change={change}
      why={why}
      isSame={JSON.stringify(setting) === JSON.stringify(project.configuration.scaleToZero)}
      onSave={() => change.mutate({ configuration: { scaleToZero: setting } })}
    >
      <SleepFields
        label="Let base branches sleep when nobody uses them"
        setting={setting.baseBranches}
        onChange={(baseBranches) => setSetting({ ...setting, baseBranches })}
      />
      <SleepFields
        label="Let branches made from others sleep when nobody uses them"
        setting={setting.childBranches}
        onChange={(childBranches) => setSetting({ ...setting, childBranches })}
      />
    </Saved>
  );
}

function Expiry({ path, project, why }: PartProps) {
  const before = project.configuration.childExpiryHours ?? 0;
  const [hours, setHours] = useState(String(before));
  const change = useChange(path);
  return (
    <Saved
      title="End of new branches"
      change={change}
      why={why}
      isSame={Number(hours) === before}
      onSave={() => change.mutate({ configuration: { childExpiryHours: Number(hours) } })}
    >
      <LastsField
        label="How long branches made from others stay"
        hint="Unless something else is said when one is made. What has ended is in the trash for some days."
        others={[["0", "For good"]]}
        hours={before}
        value={hours}
        onChange={setHours}
      />
    </Saved>
  );
}

function Addresses({ path, project, why }: PartProps) {
  const before = project.configuration.ipFiltering;
  const [isOn, setOn] = useState(before.enabled);
  const [ranges, setRanges] = useState(before.cidr);
  const change = useChange(path);
  const isSame = isOn === before.enabled && JSON.stringify(ranges) === JSON.stringify(before.cidr);
  return (
    <Saved
      title="Who may connect"
      change={change}
      why={why}
      isSame={isSame}
      onSave={() => change.mutate({ configuration: { ipFiltering: { enabled: isOn, cidr: ranges } } })}
    >
      <label className="check">
        <input type="checkbox" checked={isOn} onChange={(event) => setOn(event.target.checked)} />
        Only these addresses may connect to its branches
      </label>
      <Ranges ranges={ranges} onChange={setRanges} />
    </Saved>
  );
}

type Range = Schemas["CidrEntry"];

interface RangesProps {
  ranges: Range[];
  onChange: (ranges: Range[]) => void;
}

/** Where clients may be, and what is there. */
function Ranges({ ranges, onChange }: RangesProps) {
  const set = (index: number, part: Partial<Range>) =>
    onChange(ranges.map((range, at) => (at === index ? { ...range, ...part } : range)));
  const add = (cidr: string) => onChange([...ranges, { cidr, description: "" }]);
  const address = useQuery(sessionQuery).data?.address;
  const own = address && `${address}/${address.includes(":") ? 128 : 32}`;
  return (
    <>
      <ul className="ranges">
        {ranges.map((range, index) => (
          // biome-ignore lint: rows have no other name while they are typed
          <li key={index}>
            <input
              className="input mono"
              aria-label={`Range ${index + 1}`}
              placeholder="192.0.2.0/24"
              value={range.cidr}
              onChange={(event) => set(index, { cidr: event.target.value })}
            />
            <input
              className="input"
              aria-label={`What range ${index + 1} is`}
              placeholder="Office"
              value={range.description}
              onChange={(event) => set(index, { description: event.target.value })}
            />
            <Button
              kind="bare"
              icon
              aria-label={`Remove range ${index + 1}`}
              onClick={() => onChange(ranges.filter((_, at) => at !== index))}
            >
              <Trash2 aria-hidden="true" />
            </Button>
          </li>
        ))}
      </ul>
      <div className="add-range">
        <Button onClick={() => add("")}>
          <Plus aria-hidden="true" />
          Add a range
        </Button>
        {own && !ranges.some(({ cidr }) => cidr === own) && <Button onClick={() => add(own)}>Add mine, {address}</Button>}
      </div>
    </>
  );
}

function Danger({ path, project, why }: PartProps) {
  const [typed, setTyped] = useState("");
  const navigate = useNavigate();
  const gone = useMutation({
    mutationFn: () => deleteProject(path),
    onSuccess: () => {
      tell(`${project.name} is deleted.`);
      void navigate({ to: "/orgs/$org/projects", params: { org: path.organizationID } });
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!why && typed.trim() === project.name) gone.mutate();
  };
  return (
    <form className="card danger" onSubmit={submit}>
      <header>
        <h2>Delete this project</h2>
      </header>
      <div className="inside">
        <p>All its branches and their databases are lost. This can't be undone.</p>
        <TypedWord word={project.name} typed={typed} why={why} onType={setTyped} />
        <div>
          <Button
            type="submit"
            kind="danger"
            disabled={gone.isPending}
            why={why ?? (typed.trim() === project.name ? undefined : `Type ${project.name} first.`)}
          >
            Delete {project.name}
          </Button>
        </div>
        {gone.error && <Trouble error={gone.error} />}
      </div>
    </form>
  );
}
