import { useMutation, useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useState } from "react";
import { updateOrganization } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { organizationQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { Band, Field, Outlines, TextField } from "../../ui/parts";
import { Failed } from "../../ui/Trouble";
import { tell } from "../../ui/toasts";
import { Saved } from "./fields";
import "./settings.css";

/** An organization's name, and what it asks of its members. */
export function OrganizationSettings() {
  const { org } = useParams({ strict: false }) as { org: string };
  const organization = useQuery(organizationQuery({ organizationID: org }));
  const rights = useRights(org);
  const found = organization.data;
  const reason = (found?.status.admin_reason || found?.status.billing_reason)?.replace(/\.$/, "");
  return (
    <>
      <title>Organization settings · Coppice</title>
      <div className="head">
        <h1>Organization settings</h1>
      </div>
      <Failed query={organization} />
      {organization.isPending && <Outlines />}
      {found?.status.status === "disabled" && (
        <Band kind="warn">
          This organization is disabled{reason && `: ${reason}`}. Its branches sleep, and nothing can be changed.
        </Band>
      )}
      {found && <Form key={found.id} org={org} found={found} why={rights.why("org:write")} />}
    </>
  );
}

interface FormProps {
  org: string;
  found: Schemas["OrganizationDetails"];
  why: string | undefined;
}

function Form({ org, found, why }: FormProps) {
  const [name, setName] = useState(found.name);
  const [requires, setRequires] = useState(found.requires_second_factor);
  const change = useMutation({
    mutationFn: () =>
      updateOrganization({ organizationID: org }, { name: name.trim(), requires_second_factor: requires }),
    onSuccess: () => tell("Saved."),
  });
  return (
    <Saved
      title="Organization"
      change={change}
      why={why}
      isSame={name.trim() === found.name && requires === found.requires_second_factor}
      onSave={() => change.mutate()}
    >
      <TextField label="Name" maxLength={128} value={name} onChange={setName} />
      <label className="check">
        <input type="checkbox" checked={requires} onChange={(event) => setRequires(event.target.checked)} />
        <span>
          Members have to show a second factor
          <span className="quiet">Who signed in without one, and keys made without one, are refused. Show yours first.</span>
        </span>
      </label>
      <Field label="Id">{(ids) => <input {...ids} className="input mono" readOnly value={found.id} />}</Field>
    </Saved>
  );
}
