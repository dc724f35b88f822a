import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { deleteBranch, updateBranch } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { branchQuery, choicesQuery, type InBranch } from "../../api/queries";
import { useRights } from "../../api/rights";
import { exact, hoursFrom } from "../../lib/time";
import { LastsField } from "../../ui/LastsField";
import { Button, Field, Outlines, TextField } from "../../ui/parts";
import { Sizes } from "../../ui/Sizes";
import { Trouble } from "../../ui/Trouble";
import { tell } from "../../ui/toasts";
import { TypedWord } from "../../ui/TypedWord";
import { Saved, SleepFields } from "./fields";
import { Kept } from "./Kept";
import "./settings.css";

/** What of a branch can be changed, what can't be undone last. */
export function BranchSettings() {
  const { org, project, branch } = useParams({ strict: false }) as Record<"org" | "project" | "branch", string>;
  const path: InBranch = { organizationID: org, projectID: project, branchID: branch };
  const details = useQuery(branchQuery(path));
  const rights = useRights(org);
  const found = details.data;
  const why = rights.why("branch:write");
  return (
    <>
      <title>{`Settings of ${found?.name ?? "a branch"} · Coppice`}</title>
      <div className="head">
        <h1>Settings</h1>
      </div>
      {details.error && !found && <Trouble error={details.error} again={() => details.refetch()} />}
      {details.isPending && <Outlines />}
      {found && (
        <>
          <General key={`general ${found.id}`} path={path} branch={found} why={why} />
          <Sleep key={`sleep ${found.id}`} path={path} branch={found} why={why} />
          <Stay
            key={`stay ${found.id} ${found.expiresAt}`}
            path={path}
            branch={found}
            why={why}
            whyProtection={rights.why("project:write")}
          />
          <Size key={`size ${found.id}`} path={path} branch={found} why={why} />
          {found.backupConfiguration && (
            <Kept key={`kept ${found.id}`} path={path} kept={found.backupConfiguration} why={why} />
          )}
          <Storage key={`storage ${found.id}`} path={path} branch={found} why={why} />
          <Replicas key={`replicas ${found.id}`} path={path} branch={found} why={why} />
          <Danger path={path} name={found.name} why={why} />
        </>
      )}
    </>
  );
}

interface PartProps {
  path: InBranch;
  branch: Schemas["BranchDetails"];
  why: string | undefined;
}

function useChange(path: InBranch) {
  return useMutation({
    mutationFn: (change: Schemas["UpdateBranch"]) => updateBranch(path, change),
    onSuccess: () => tell("Saved."),
  });
}

function General({ path, branch, why }: PartProps) {
  const [name, setName] = useState(branch.name);
  const [description, setDescription] = useState(branch.description);
  const change = useChange(path);
  const isSame = name.trim() === branch.name && description === branch.description;
  return (
    <Saved title="Name" change={change} why={why} isSame={isSame} onSave={() => change.mutate({ name: name.trim(), description })}>
      <TextField label="Name" maxLength={255} value={name} onChange={setName} />
      <TextField label="What for" hint="Letters, digits, hyphens and blanks." maxLength={50} value={description} onChange={setDescription} />
    </Saved>
  );
}

function Sleep({ path, branch, why }: PartProps) {
  const [setting, setSetting] = useState(branch.scaleToZero);
  const change = useChange(path);
  const before = branch.scaleToZero;
  const isSame =
    setting.enabled === before.enabled && setting.inactivityPeriodMinutes === before.inactivityPeriodMinutes;
  return (
    <Saved title="Sleep" change={change} why={why} isSame={isSame} onSave={() => change.mutate({ scaleToZero: setting })}>
      <SleepFields label="Let it sleep when nobody uses it" setting={setting} onChange={setSetting} />
    </Saved>
  );
}

const FOR_GOOD = "for good";
const AS_BEFORE = "as before";

function Stay({ path, branch, why, whyProtection }: PartProps & { whyProtection: string | undefined }) {
  const before = branch.expiresAt ? AS_BEFORE : FOR_GOOD;
  const [lasts, setLasts] = useState(before);
  const [isProtected, setProtected] = useState(branch.protected ?? false);
  const change = useChange(path);
  const protection: Schemas["UpdateBranch"] =
    isProtected === (branch.protected ?? false) ? {} : { protected: isProtected };
  const changesEnd = !isProtected && lasts !== before;
  const wanted = (now: number): Schemas["UpdateBranch"] => ({
    ...protection,
    ...(changesEnd && { expiresAt: lasts === FOR_GOOD ? null : hoursFrom(now, Number(lasts)) }),
  });
  return (
    <Saved
      title="How long it stays"
      change={change}
      why={why}
      isSame={!changesEnd && protection.protected === undefined}
      onSave={() => change.mutate(wanted(Date.now()))}
    >
      <label className="check" title={whyProtection}>
        <input
          type="checkbox"
          checked={isProtected}
          disabled={whyProtection !== undefined}
          onChange={(event) => setProtected(event.target.checked)}
        />
        Protect it: nobody can delete it, and it does not expire
      </label>
      <LastsField
        label="Keep it"
        hint="What has ended is in the trash for some days."
        disabled={isProtected}
        others={
          branch.expiresAt
            ? [
                [AS_BEFORE, `Until ${exact(branch.expiresAt)}`],
                [FOR_GOOD, "For good"],
              ]
            : [[FOR_GOOD, "For good"]]
        }
        value={lasts}
        onChange={setLasts}
      />
    </Saved>
  );
}

function Size({ path, branch, why }: PartProps) {
  const before = branch.configuration.instanceType;
  const [type, setType] = useState(before);
  const choices = useQuery(choicesQuery(path));
  const change = useChange(path);
  return (
    <Saved
      title="Size"
      change={change}
      why={why}
      isSame={type === before}
      onSave={() => change.mutate({ instanceType: type })}
    >
      <Field label="Processors and memory" hint="Another size restarts its server: open sessions are cut off.">
        {(ids) => (
          <select {...ids} className="select" value={type} onChange={(event) => setType(event.target.value)}>
            {choices.data ? <Sizes types={choices.data.types} /> : <option value={before}>{before}</option>}
          </select>
        )}
      </Field>
    </Saved>
  );
}

function Storage({ path, branch, why }: PartProps) {
  const [storage, setStorage] = useState(String(branch.configuration.storage));
  const change = useChange(path);
  const isSame = Number(storage) === branch.configuration.storage;
  return (
    <Saved
      title="Storage"
      change={change}
      why={why}
      isSame={isSame}
      onSave={() => change.mutate({ storage: Number(storage) })}
    >
      <TextField
        label="Most storage, in GiB"
        hint="It can grow, and not shrink."
        className="short"
        type="number"
        min={branch.configuration.storage}
        value={storage}
        onChange={setStorage}
      />
    </Saved>
  );
}

function Replicas({ path, branch, why }: PartProps) {
  const [replicas, setReplicas] = useState(String(branch.configuration.replicas));
  const change = useChange(path);
  const isSame = Number(replicas) === branch.configuration.replicas;
  return (
    <Saved
      title="Replicas"
      change={change}
      why={why}
      isSame={isSame}
      onSave={() => change.mutate({ replicas: Number(replicas) })}
    >
      <TextField
        label="Servers that only read"
        hint="Clients reach them with -ro after the branch's id. Each is of the branch's size."
        className="short"
        type="number"
        min={0}
        max={4}
        value={replicas}
        onChange={setReplicas}
      />
    </Saved>
  );
}

function Danger({ path, name, why }: { path: InBranch; name: string; why: string | undefined }) {
  const [typed, setTyped] = useState("");
  const navigate = useNavigate();
  const gone = useMutation({
    mutationFn: () => deleteBranch(path),
    onSuccess: () => {
      tell(`${name} is deleted.`);
      void navigate({
        to: "/orgs/$org/projects/$project/branches",
        params: { org: path.organizationID, project: path.projectID },
      });
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!why && typed.trim() === name) gone.mutate();
  };
  return (
    <form className="card danger" onSubmit={submit}>
      <header>
        <h2>Delete this branch</h2>
      </header>
      <div className="inside">
        <p>Its clients are cut off. For some days it can be brought back on the page of the branches, then its data is lost. Branches made from it stay.</p>
        <TypedWord word={name} typed={typed} why={why} onType={setTyped} />
        <div>
          <Button
            type="submit"
            kind="danger"
            disabled={gone.isPending}
            why={why ?? (typed.trim() === name ? undefined : `Type ${name} first.`)}
          >
            Delete {name}
          </Button>
        </div>
        {gone.error && <Trouble error={gone.error} />}
      </div>
    </form>
  );
}
