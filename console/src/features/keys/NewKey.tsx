import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { createKey, createOwnKey } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { projectsQuery } from "../../api/queries";
import { Dialog } from "../../ui/Dialog";
import { Field, TextField } from "../../ui/parts";
import { Trouble } from "../../ui/Trouble";

type ApiKey = Schemas["ApiKey"];

const DAY = 86_400_000;
const READING = ["org:read", "project:read", "branch:read", "metrics:read", "logs:read"];
const PRESETS = [
  { id: "read", name: "Look only", says: "Projects, branches, metrics and logs; no passwords.", scopes: READING },
  {
    id: "ci",
    name: "CI and agents",
    says: "Makes and deletes branches, and connects to them.",
    scopes: [...READING, "branch:write", "credentials:read"],
  },
  { id: "all", name: "Everything", says: "All that you may do, now and later.", scopes: ["*"] },
];
const ENDS: [string, number | null][] = [
  ["in 30 days", 30],
  ["in 90 days", 90],
  ["in a year", 365],
  ["never", null],
];

const ROLES: [Schemas["DatabaseRole"] | "", string][] = [
  ["", "As the user app"],
  ["reader", "As a user of its own that reads every table"],
  ["writer", "As a user of its own that also changes rows"],
  ["owner", "As a user of its own with a schema of its own"],
];

interface NewKeyProps {
  org: string;
  onClose: () => void;
  onMade: (key: ApiKey) => void;
}

/** What a person chooses of a new key; all are texts, as fields have them. */
interface Draft {
  name: string;
  preset: string;
  days: string;
  project: string;
  max: string;
  role: string;
  /** Whether it acts as the person, in each of their organizations. */
  isOwn: boolean;
}

const USUAL: Draft = { name: "", preset: "ci", days: "30", project: "", max: "", role: "", isOwn: false };

/** What is asked of the server for it. Who only looks makes no branches and connects to none. */
function bodyOf({ name, preset, days, project, max, role }: Draft): Schemas["CreateApiKey"] {
  const connects = preset !== "read";
  return {
    name: name.trim(),
    scopes: PRESETS.find(({ id }) => id === preset)?.scopes ?? [],
    ...(days !== "never" && { expiry: new Date(Date.now() + Number(days) * DAY).toISOString() }),
    ...(project && { projects: [project] }),
    ...(max && connects && { max_branches: Number(max) }),
    ...(role && connects && { database_role: role as Schemas["DatabaseRole"] }),
  };
}

/** Asks what a new key is for, what it may do, and for how long. */
export function NewKey({ org, onClose, onMade }: NewKeyProps) {
  const [draft, setDraft] = useState(USUAL);
  const set = (change: Partial<Draft>) => setDraft((before) => ({ ...before, ...change }));
  const made = useMutation({
    mutationFn: () =>
      draft.isOwn ? createOwnKey(bodyOf(draft)) : createKey({ organizationID: org }, bodyOf(draft)),
    onSuccess: ({ key }) => onMade(key),
  });
  return (
    <Dialog
      title="New key"
      does="Make it"
      isBusy={made.isPending}
      why={draft.name.trim() ? undefined : "It needs a name."}
      onDone={() => made.mutate()}
      onClose={onClose}
    >
      <TextField
        label="Name"
        hint="What it is for, so that somebody else can tell later."
        autoFocus
        maxLength={128}
        autoComplete="off"
        value={draft.name}
        onChange={(name) => set({ name })}
      />
      <Presets chosen={draft.preset} onChoose={(preset) => set({ preset })} />
      <Where org={org} value={draft.project} onChange={(project) => set({ project })} />
      {draft.preset !== "read" && (
        <Choice label="It connects to branches" value={draft.role} onChange={(role) => set({ role })}>
          {ROLES.map(([role, says]) => (
            <option key={role} value={role}>
              {says}
            </option>
          ))}
        </Choice>
      )}
      <Choice label="It ends" value={draft.days} onChange={(days) => set({ days })}>
        {ENDS.map(([name, count]) => (
          <option key={name} value={count ?? "never"}>
            {name}
          </option>
        ))}
      </Choice>
      {draft.preset !== "read" && (
        <TextField
          label="Branches at once"
          hint="How many that it made may exist; as many as there may be if you leave it empty. Such a key makes no keys."
          type="number"
          min={1}
          max={10000}
          value={draft.max}
          onChange={(max) => set({ max })}
        />
      )}
      <label className="check">
        <input type="checkbox" checked={draft.isOwn} onChange={(event) => set({ isOwn: event.target.checked })} />
        It acts as me, in all my organizations
      </label>
      {made.error && <Trouble error={made.error} />}
    </Dialog>
  );
}

/** What keys are mostly for. */
function Presets({ chosen, onChoose }: { chosen: string; onChoose: (id: string) => void }) {
  return (
    <fieldset className="presets">
      <legend className="label">It may</legend>
      {PRESETS.map(({ id, name, says }) => (
        <label key={id} className="check">
          <input type="radio" name="preset" checked={chosen === id} onChange={() => onChoose(id)} />
          <span>
            {name}
            <span className="quiet">{says}</span>
          </span>
        </label>
      ))}
    </fieldset>
  );
}

interface WhereProps {
  org: string;
  /** A project's id; none is every one. */
  value: string;
  onChange: (project: string) => void;
}

function Where({ org, value, onChange }: WhereProps) {
  const projects = useQuery(projectsQuery({ organizationID: org })).data?.projects ?? [];
  return (
    <Choice label="Where" value={value} onChange={onChange}>
      <option value="">All projects</option>
      {projects.map(({ id, name }) => (
        <option key={id} value={id}>
          Only {name}
        </option>
      ))}
    </Choice>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  children: ReactNode;
}

function Choice({ label, value, onChange, children }: ChoiceProps) {
  return (
    <Field label={label}>
      {(ids) => (
        <select {...ids} className="select" value={value} onChange={(event) => onChange(event.target.value)}>
          {children}
        </select>
      )}
    </Field>
  );
}
