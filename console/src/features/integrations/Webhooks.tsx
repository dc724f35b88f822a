import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Plus, Webhook as WebhookIcon } from "lucide-react";
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { webhooksQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { useKeys } from "../../app/keys";
import { counted } from "../../lib/amounts";
import { chosenInWords } from "../../lib/events";
import { Band, Button, Empty, Outlines } from "../../ui/parts";
import { Secret } from "../../ui/Secret";
import { Ago } from "../../ui/Times";
import { Failed } from "../../ui/Trouble";
import { OnOff } from "./OnOff";
import { WebhookForm } from "./WebhookForm";

type Webhook = Schemas["Webhook"];

/** Where the events of an organization are sent to. */
export function Webhooks({ org }: { org: string }) {
  const rights = useRights(org);
  const maySee = rights.can("org:read");
  const why = rights.why("org:write");
  const found = useQuery({ ...webhooksQuery({ organizationID: org }), enabled: maySee });
  const [isAsking, setAsking] = useState(false);
  const [made, setMade] = useState<Webhook | null>(null);
  const ask = () => !why && setAsking(true);
  useKeys({ n: ask });
  const webhooks = found.data?.webhooks;
  const add = (
    <Button kind="main" why={why} onClick={ask}>
      <Plus aria-hidden="true" />
      New webhook
    </Button>
  );
  return (
    <section className="card" aria-labelledby="webhooks">
      <header>
        <h2 id="webhooks">Webhooks</h2>
        {webhooks && webhooks.length > 0 && add}
      </header>
      {!maySee && <Band kind="info">Your role here does not show webhooks. An admin can give you another role.</Band>}
      <Failed query={found} />
      {maySee && found.isPending && <Outlines count={2} />}
      {webhooks?.length === 0 && (
        <Empty title="No webhooks yet" picture={<WebhookIcon size={28} strokeWidth={1.5} aria-hidden="true" />} action={add}>
          A webhook is told what happens here: a branch is ready, a backup failed, a budget is used up.
        </Empty>
      )}
      {webhooks && webhooks.length > 0 && <List org={org} webhooks={webhooks} />}
      {isAsking && (
        <WebhookForm
          org={org}
          onClose={() => setAsking(false)}
          onDone={(webhook) => {
            setAsking(false);
            setMade(webhook);
          }}
        />
      )}
      {made && (
        <Secret
          title="The secret of the webhook"
          what="The secret"
          secret={made.secret ?? ""}
          says="Its receiver tells by it that a delivery comes from here, with any library for Standard Webhooks."
          onClose={() => setMade(null)}
        />
      )}
    </section>
  );
}

function List({ org, webhooks }: { org: string; webhooks: Webhook[] }) {
  return (
    <ul className="webhooks">
      {webhooks.map((webhook) => (
        <li key={webhook.id}>
          <div className="where">
            <Link to="/orgs/$org/integrations/$webhook" params={{ org, webhook: webhook.id }}>
              {webhook.description || webhook.url}
            </Link>
            {webhook.description && <span className="quiet">{webhook.url}</span>}
          </div>
          <p className="quiet">
            {chosenInWords(webhook.types)}
            {webhook.projects.length > 0 && ` of ${counted(webhook.projects.length, "project")}`}
          </p>
          <OnOff webhook={webhook} />
          <p className="quiet">
            made <Ago at={webhook.created_at} />
          </p>
        </li>
      ))}
    </ul>
  );
}
