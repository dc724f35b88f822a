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

/** Asks what a new key is for, what it may do, and for how long. */
export function NewKey({ org, onClose, onMade }: NewKeyProps) {
  const [name, setName] = useState("");
  const [preset, setPreset] = useState<string | undefined>("ci");
  const [days, setDays] = useState("30");
  const [project, setProject] = useState("");
  const [max, setMax] = useState("");
  const [role, setRole] = useState("");
  const [isOwn, setOwn] = useState(false);
  const projects = useQuery(projectsQuery({ organizationID: org })).data?.projects ?? [];
  const chosen = PRESETS.find(({ id }) => id === preset);
  const made = useMutation({
    mutationFn: () => {
      const expiry = days === "never" ? null : new Date(Date.now() + Number(days) * DAY).toISOString();
      const body: Schemas["CreateApiKey"] = {
        name: name.trim(),
        scopes: chosen?.scopes ?? [],
        ...(expiry ? { expiry } : {}),
        ...(project ? { projects: [project] } : {}),
        ...(max && preset !== "read" ? { max_branches: Number(max) } : {}),
        ...(role && preset !== "read" ? { database_role: role as Schemas["DatabaseRole"] } : {}),
      };
      return isOwn ? createOwnKey(body) : createKey({ organizationID: org }, body);
    },
    onSuccess: ({ key }) => onMade(key),
  });
  return (
    <Dialog
      title="New key"
      does="Make it"
      isBusy={made.isPending}
      why={name.trim() ? undefined : "It needs a name."}
      onDone={() => made.mutate()}
      onClose={onClose}
    >
      <TextField
        label="Name"
        hint="What it is for, so that somebody else can tell later."
        autoFocus
        maxLength={128}
        autoComplete="off"
        value={name}
        onChange={setName}
      />
      <Presets chosen={preset} onChoose={setPreset} />
      <Choice label="Where" value={project} onChange={setProject}>
        <option value="">All projects</option>
        {projects.map(({ id, name }) => (
          <option key={id} value={id}>
            Only {name}
          </option>
        ))}
      </Choice>
      {preset !== "read" && (
        <Choice label="It connects to branches" value={role} onChange={setRole}>
          {ROLES.map(([role, says]) => (
            <option key={role} value={role}>
              {says}
            </option>
          ))}
        </Choice>
      )}
      <Choice label="It ends" value={days} onChange={setDays}>
        {ENDS.map(([name, count]) => (
          <option key={name} value={count ?? "never"}>
            {name}
          </option>
        ))}
      </Choice>
      {preset !== "read" && (
        <TextField
          label="Branches at once"
          hint="How many that it made may exist; as many as there may be if you leave it empty. Such a key makes no keys."
          type="number"
          min={1}
          max={10000}
          value={max}
          onChange={setMax}
        />
      )}
      <label className="check">
        <input type="checkbox" checked={isOwn} onChange={(event) => setOwn(event.target.checked)} />
        It acts as me, in all my organizations
      </label>
      {made.error && <Trouble error={made.error} />}
    </Dialog>
  );
}

/** What keys are mostly for. */
function Presets({ chosen, onChoose }: { chosen: string | undefined; onChoose: (id: string) => void }) {
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
