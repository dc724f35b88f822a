import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { Pencil, Power, RefreshCw, Trash2 } from "lucide-react";
import { useState } from "react";
import { deleteWebhook, rotateWebhook, updateWebhook } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { type AtWebhook, projectsQuery, webhookQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { exact } from "../../lib/time";
import { Dialog } from "../../ui/Dialog";
import { Band, Button, Outlines } from "../../ui/parts";
import { Secret } from "../../ui/Secret";
import { Ago, Until } from "../../ui/Times";
import { tell, tellError } from "../../ui/toasts";
import { Failed, Trouble } from "../../ui/Trouble";
import { Deliveries } from "./Deliveries";
import { OnOff } from "./OnOff";
import { WebhookForm } from "./WebhookForm";
import "./integrations.css";

type Webhook = Schemas["Webhook"];

/** A webhook: where it leads, and what was sent there. */
export function WebhookPage() {
  const { org, webhook: id } = useParams({ strict: false }) as { org: string; webhook: string };
  const path = { organizationID: org, webhookID: id };
  const found = useQuery(webhookQuery(path));
  const why = useRights(org).why("org:write");
  const webhook = found.data;
  return (
    <>
      <title>{`${webhook?.description || "Webhook"} · Coppice`}</title>
      <div className="head">
        <Link to="/orgs/$org/integrations" params={{ org }} className="back">
          Integrations
        </Link>
        <span className="slash">/</span>
        <h1>{webhook?.description || "Webhook"}</h1>
        {webhook && <OnOff webhook={webhook} />}
        {webhook && <Tools path={path} webhook={webhook} why={why} />}
      </div>
      <Failed query={found} />
      {found.isPending && <Outlines />}
      {webhook && (
        <>
          {webhook.gone && (
            <Band kind="warn">
              Its receiver answered 410, which means that it is gone for good, so nothing is sent there any more. Turn it on
              once somebody listens again.
            </Band>
          )}
          {webhook.former_until && (
            <Band kind="info">
              Its secret was replaced. Deliveries are signed with the former one, too; that ends{" "}
              <Until at={webhook.former_until} />.
            </Band>
          )}
          <About org={org} webhook={webhook} />
          <Deliveries path={path} why={why} />
        </>
      )}
    </>
  );
}

function About({ org, webhook }: { org: string; webhook: Webhook }) {
  const projects = useQuery(projectsQuery({ organizationID: org })).data?.projects;
  const named = (id: string) => projects?.find((project) => project.id === id)?.name ?? id;
  return (
    <section className="card about-webhook" aria-label="What it is sent">
      <dl className="inside">
        <div>
          <dt className="quiet">Where to</dt>
          <dd className="mono">{webhook.url}</dd>
        </div>
        <div>
          <dt className="quiet">It is told of</dt>
          <dd>{webhook.types.length === 0 ? "everything" : webhook.types.join(", ")}</dd>
        </div>
        <div>
          <dt className="quiet">It is about</dt>
          <dd>{webhook.projects.length === 0 ? "the whole organization" : webhook.projects.map(named).join(", ")}</dd>
        </div>
        <div>
          <dt className="quiet">Made</dt>
          <dd title={exact(webhook.created_at)}>
            <Ago at={webhook.created_at} />
          </dd>
        </div>
      </dl>
    </section>
  );
}

interface ToolsProps {
  path: AtWebhook;
  webhook: Webhook;
  why: string | undefined;
}

/** What can be done with a webhook. */
function Tools({ path, webhook, why }: ToolsProps) {
  const navigate = useNavigate();
  const [asked, setAsked] = useState<"change" | "rotate" | "delete" | null>(null);
  const [secret, setSecret] = useState("");
  const close = () => setAsked(null);
  const turned = useMutation({ mutationFn: () => updateWebhook(path, { enabled: !webhook.enabled }), onError: tellError });
  return (
    <div className="tools">
      <Button why={why} disabled={turned.isPending} onClick={() => turned.mutate()}>
        <Power aria-hidden="true" />
        {webhook.enabled ? "Turn it off" : "Turn it on"}
      </Button>
      <Button why={why} onClick={() => setAsked("change")}>
        <Pencil aria-hidden="true" />
        Change
      </Button>
      <Button why={why} onClick={() => setAsked("rotate")}>
        <RefreshCw aria-hidden="true" />
        New secret
      </Button>
      <Button kind="danger" why={why} onClick={() => setAsked("delete")}>
        <Trash2 aria-hidden="true" />
        Delete
      </Button>
      {asked === "change" && <WebhookForm org={path.organizationID} webhook={webhook} onDone={close} onClose={close} />}
      {asked === "rotate" && (
        <Sure
          title="Replace its secret?"
          does="Replace it"
          work={() => rotateWebhook(path)}
          onDone={(answer) => {
            close();
            setSecret(answer.secret ?? "");
          }}
          onClose={close}
        >
          For 24 hours deliveries are signed with both, so the receiver can change over at any time in between.
        </Sure>
      )}
      {asked === "delete" && (
        <Sure
          title="Delete this webhook?"
          does="Delete"
          isDangerous
          work={() => deleteWebhook(path)}
          onDone={() => {
            tell("The webhook is deleted.");
            void navigate({ to: "/orgs/$org/integrations", params: { org: path.organizationID } });
          }}
          onClose={close}
        >
          What is due to it is not sent any more, and what was sent is forgotten. To stop for a while, turn it off instead.
        </Sure>
      )}
      {secret && (
        <Secret
          title="The new secret"
          what="The secret"
          secret={secret}
          says="The former one signs, too, for 24 hours."
          onClose={() => setSecret("")}
        />
      )}
    </div>
  );
}

interface SureProps<T> {
  title: string;
  does: string;
  isDangerous?: boolean;
  work: () => Promise<T>;
  children: string;
  onDone: (answer: T) => void;
  onClose: () => void;
}

/** Does something once somebody is sure. */
function Sure<T>({ title, does, isDangerous = false, work, children, onDone, onClose }: SureProps<T>) {
  const done = useMutation({ mutationFn: work, onSuccess: onDone });
  return (
    <Dialog title={title} does={does} isDangerous={isDangerous} isBusy={done.isPending} onDone={() => done.mutate()} onClose={onClose}>
      <p>{children}</p>
      {done.error && <Trouble error={done.error} />}
    </Dialog>
  );
}
