import { useMutation, useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { Copy, KeyRound, Plus } from "lucide-react";
import { useState } from "react";
import { createKey, createOwnKey, deleteKeys, deleteOwnKeys } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { keysQuery, ownKeysQuery, projectsQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { useKeys } from "../../app/keys";
import { exact } from "../../lib/time";
import { Dialog } from "../../ui/Dialog";
import { ActionsHead, Band, Button, Empty, Field, Outlines, TextField } from "../../ui/parts";
import { Ago, Until } from "../../ui/Times";
import { Trouble } from "../../ui/Trouble";
import { tell } from "../../ui/toasts";
import "./keys.css";

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

/** Keys for programs: one's own, and the organization's. */
export function Keys() {
  const { org } = useParams({ strict: false }) as { org: string };
  const path = { organizationID: org };
  const rights = useRights(org);
  const maySee = rights.can("keys:read");
  const own = useQuery({ ...ownKeysQuery, enabled: maySee });
  const shared = useQuery({ ...keysQuery(path), enabled: maySee });
  const [isAsking, setAsking] = useState(false);
  const [made, setMade] = useState<ApiKey | null>(null);
  const [doomed, setDoomed] = useState<{ key: ApiKey; isOwn: boolean } | null>(null);
  const why = rights.why("keys:write");
  const ask = () => !why && setAsking(true);
  useKeys({ n: ask });
  const error = own.error ?? shared.error;
  return (
    <>
      <title>Keys · Coppice</title>
      <div className="head">
        <h1>Keys</h1>
        <div className="tools">
          <Button kind="main" why={why} onClick={ask}>
            <Plus aria-hidden="true" />
            New key
          </Button>
        </div>
      </div>
      {!maySee && <Band kind="info">Your role here does not show keys. An editor can look, or give you another role.</Band>}
      {error && <Trouble error={error} again={() => void own.refetch().then(() => shared.refetch())} />}
      {maySee && (own.isPending || shared.isPending) && <Outlines />}
      {own.data && (
        <KeyList title="Your keys" says="They act as you, in every organization." keys={own.data.keys} why={why} onDelete={(key) => setDoomed({ key, isOwn: true })} />
      )}
      {shared.data && (
        <KeyList
          title="Keys of the organization"
          says="They belong to no person, and stay when people go."
          keys={shared.data.keys}
          why={why}
          onDelete={(key) => setDoomed({ key, isOwn: false })}
        />
      )}
      {isAsking && (
        <NewKey
          org={org}
          onClose={() => setAsking(false)}
          onMade={(key) => {
            setAsking(false);
            setMade(key);
          }}
        />
      )}
      {made && <Shown apiKey={made} onClose={() => setMade(null)} />}
      {doomed && <DeleteKey org={org} apiKey={doomed.key} isOwn={doomed.isOwn} onClose={() => setDoomed(null)} />}
    </>
  );
}

interface KeyListProps {
  title: string;
  says: string;
  keys: ApiKey[];
  why: string | undefined;
  onDelete: (key: ApiKey) => void;
}

function rightsOf({ scopes, projects, branches }: ApiKey): string {
  const what = scopes.length === 0 || scopes.includes("*") ? "everything" : scopes.join(", ");
  const limits = [...projects, ...branches].filter((id) => id !== "*").length;
  return limits ? `${what}; on ${limits} of the projects or branches only` : what;
}

function KeyList({ title, says, keys, why, onDelete }: KeyListProps) {
  return (
    <section className="card wide" aria-label={title}>
      <header>
        <h2>{title}</h2>
        <p className="quiet">{says}</p>
      </header>
      {keys.length === 0 ? (
        <Empty title="None yet" picture={<KeyRound size={28} strokeWidth={1.5} aria-hidden="true" />}>
          A key lets a program do what you let it do.
        </Empty>
      ) : (
        <table className="table">
          <thead>
            <tr>
              <th>Name</th>
              <th>May do</th>
              <th>Last used</th>
              <th>Ends</th>
              <ActionsHead />
            </tr>
          </thead>
          <tbody>
            {keys.map((key) => (
              <tr key={key.id}>
                <td>
                  {key.name}
                  <div className="quiet mono">{key.preview}</div>
                  {key.review && <div className="review-key">Look at it: who made it has less rights by now, or is gone.</div>}
                </td>
                <td className="scopes">{rightsOf(key)}</td>
                <td className="quiet">{key.last_used ? <Ago at={key.last_used} /> : "never"}</td>
                <td className="quiet">{key.expiry ? <Until at={key.expiry} /> : "never"}</td>
                <td className="number">
                  <Button kind="bare" why={why} onClick={() => onDelete(key)}>
                    Delete
                  </Button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

interface NewKeyProps {
  org: string;
  onClose: () => void;
  onMade: (key: ApiKey) => void;
}

function NewKey({ org, onClose, onMade }: NewKeyProps) {
  const [name, setName] = useState("");
  const [preset, setPreset] = useState(PRESETS[1]?.id);
  const [days, setDays] = useState("30");
  const [project, setProject] = useState("");
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
      <fieldset className="presets">
        <legend className="label">It may</legend>
        {PRESETS.map(({ id, name, says }) => (
          <label key={id} className="check">
            <input type="radio" name="preset" checked={preset === id} onChange={() => setPreset(id)} />
            <span>
              {name}
              <span className="quiet">{says}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <Field label="Where">
        {(ids) => (
          <select {...ids} className="select" value={project} onChange={(event) => setProject(event.target.value)}>
            <option value="">All projects</option>
            {projects.map(({ id, name }) => (
              <option key={id} value={id}>
                Only {name}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label="It ends">
        {(ids) => (
          <select {...ids} className="select" value={days} onChange={(event) => setDays(event.target.value)}>
            {ENDS.map(([name, count]) => (
              <option key={name} value={count ?? "never"}>
                {name}
              </option>
            ))}
          </select>
        )}
      </Field>
      <label className="check">
        <input type="checkbox" checked={isOwn} onChange={(event) => setOwn(event.target.checked)} />
        It acts as me, in all my organizations
      </label>
      {made.error && <Trouble error={made.error} />}
    </Dialog>
  );
}

/** The only time that a key is seen. */
function Shown({ apiKey, onClose }: { apiKey: ApiKey; onClose: () => void }) {
  const token = apiKey.token ?? "";
  const copy = () =>
    void navigator.clipboard.writeText(token).then(
      () => tell("The key is copied."),
      () => tell("The browser did not let it be copied. Copy it by hand.", true),
    );
  return (
    <Dialog title={`The key ${apiKey.name}`} does="I have it" onDone={onClose} onClose={onClose}>
      <p>This is the only time that it is shown. Whoever has it can do what it may do.</p>
      <div className="secret">
        <code>{token}</code>
        <Button onClick={copy}>
          <Copy aria-hidden="true" />
          Copy
        </Button>
      </div>
      {apiKey.expiry && <p className="quiet">It ends at {exact(apiKey.expiry)}.</p>}
    </Dialog>
  );
}

interface DeleteKeyProps {
  org: string;
  apiKey: ApiKey;
  isOwn: boolean;
  onClose: () => void;
}

function DeleteKey({ org, apiKey, isOwn, onClose }: DeleteKeyProps) {
  const gone = useMutation({
    mutationFn: () => (isOwn ? deleteOwnKeys([apiKey.id]) : deleteKeys({ organizationID: org }, [apiKey.id])),
    onSuccess: () => {
      tell(`The key ${apiKey.name} is deleted.`);
      onClose();
    },
  });
  return (
    <Dialog
      title={`Delete the key ${apiKey.name}?`}
      does="Delete"
      isDangerous
      isBusy={gone.isPending}
      onDone={() => gone.mutate()}
      onClose={onClose}
    >
      <p>Whoever uses it is refused at once.</p>
      {gone.error && <Trouble error={gone.error} />}
    </Dialog>
  );
}
