import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { createWebhook, updateWebhook } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { projectsQuery } from "../../api/queries";
import { EVENTS, eventGroups, type EventType } from "../../lib/events";
import { Dialog } from "../../ui/Dialog";
import { TextField } from "../../ui/parts";
import { Trouble } from "../../ui/Trouble";

type Webhook = Schemas["Webhook"];

interface WebhookFormProps {
  org: string;
  /** The one to change; without it a new one. */
  webhook?: Webhook;
  onDone: (webhook: Webhook) => void;
  onClose: () => void;
}

/** Where to send which events. */
export function WebhookForm({ org, webhook, onDone, onClose }: WebhookFormProps) {
  const [url, setUrl] = useState(webhook?.url ?? "");
  const [description, setDescription] = useState(webhook?.description ?? "");
  const [types, setTypes] = useState<EventType[] | null>(webhook?.types.length ? webhook.types : null);
  const [chosen, setChosen] = useState<string[] | null>(webhook?.projects.length ? webhook.projects : null);
  const projects = useQuery(projectsQuery({ organizationID: org })).data?.projects ?? [];
  const done = useMutation({
    mutationFn: () => {
      const path = { organizationID: org };
      const body = { url: url.trim(), description: description.trim(), types: types ?? [], projects: chosen ?? [] };
      return webhook ? updateWebhook({ ...path, webhookID: webhook.id }, body) : createWebhook(path, body);
    },
    onSuccess: onDone,
  });
  const missing =
    (!url.trim() && "It needs an address.") ||
    (types?.length === 0 && "Choose at least one type of events.") ||
    (chosen?.length === 0 && "Choose at least one project.");
  return (
    <Dialog
      title={webhook ? "Change the webhook" : "New webhook"}
      does={webhook ? "Change it" : "Make it"}
      isBusy={done.isPending}
      why={missing || undefined}
      onDone={() => done.mutate()}
      onClose={onClose}
    >
      <TextField
        label="Where to"
        hint="By https, to an address of the internet, unless the operator allows others."
        type="url"
        placeholder="https://shop.example/hook"
        maxLength={2000}
        autoComplete="off"
        value={url}
        onChange={setUrl}
      />
      <TextField label="What it is for" maxLength={100} autoComplete="off" value={description} onChange={setDescription} />
      <AllOrSome legend="It is told of" all="Everything, also what is new later" chosen={types} onChoose={setTypes}>
        {(toggle) =>
          eventGroups().map(({ name, types: inGroup }) => (
            <fieldset key={name} className="group">
              <legend className="quiet">{name}</legend>
              {inGroup.map((type) => (
                <Check key={type} name={EVENTS[type]} isOn={types?.includes(type)} onTurn={() => toggle(type)} />
              ))}
            </fieldset>
          ))
        }
      </AllOrSome>
      {projects.length > 0 && (
        <AllOrSome legend="It is about" all="The whole organization" chosen={chosen} onChoose={setChosen}>
          {(toggle) => (
            <div className="group">
              {projects.map(({ id, name }) => (
                <Check key={id} name={name} isOn={chosen?.includes(id)} onTurn={() => toggle(id)} />
              ))}
            </div>
          )}
        </AllOrSome>
      )}
      {done.error && <Trouble error={done.error} />}
    </Dialog>
  );
}

function Check({ name, isOn = false, onTurn }: { name: string; isOn?: boolean | undefined; onTurn: () => void }) {
  return (
    <label className="check">
      <input type="checkbox" checked={isOn} onChange={onTurn} />
      {name}
    </label>
  );
}

interface AllOrSomeProps<T> {
  legend: string;
  all: string;
  /** Those that are chosen; null are all. */
  chosen: T[] | null;
  onChoose: (chosen: T[] | null) => void;
  /** What can be chosen. */
  children: (toggle: (one: T) => void) => ReactNode;
}

/** Everything, or only some of it. */
function AllOrSome<T extends string>({ legend, all, chosen, onChoose, children }: AllOrSomeProps<T>) {
  const toggle = (one: T) =>
    onChoose(chosen?.includes(one) ? chosen.filter((other) => other !== one) : [...(chosen ?? []), one]);
  return (
    <fieldset className="presets">
      <legend className="label">{legend}</legend>
      <label className="check">
        <input type="radio" checked={chosen === null} onChange={() => onChoose(null)} />
        {all}
      </label>
      <label className="check">
        <input type="radio" checked={chosen !== null} onChange={() => onChoose([])} />
        Only these
      </label>
      {chosen !== null && <div className="groups-of">{children(toggle)}</div>}
    </fieldset>
  );
}
