import { useMutation, useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { KeyRound, Plus } from "lucide-react";
import { useState } from "react";
import { deleteKeys, deleteOwnKeys } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { keysQuery, ownKeysQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { useKeys } from "../../app/keys";
import { exact } from "../../lib/time";
import { Dialog } from "../../ui/Dialog";
import { ActionsHead, Band, Button, Empty, Outlines } from "../../ui/parts";
import { Secret } from "../../ui/Secret";
import { Ago, Until } from "../../ui/Times";
import { Failed, Trouble } from "../../ui/Trouble";
import { tell } from "../../ui/toasts";
import { NewKey } from "./NewKey";
import "./keys.css";

type ApiKey = Schemas["ApiKey"];

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
      <Failed query={own} />
      <Failed query={shared} />
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
      {made && (
        <Secret
          title={`The key ${made.name}`}
          what="The key"
          secret={made.token ?? ""}
          says="Whoever has it can do what it may do."
          onClose={() => setMade(null)}
        >
          {made.expiry && <p className="quiet">It ends at {exact(made.expiry)}.</p>}
        </Secret>
      )}
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

function rightsOf({ scopes, projects, branches, max_branches: max, database_role: role }: ApiKey): string {
  const what = scopes.length === 0 || scopes.includes("*") ? "everything" : scopes.join(", ");
  const limits = [...projects, ...branches].filter((id) => id !== "*").length;
  const where = limits ? `${what}; on ${limits} of the projects or branches only` : what;
  const how = role ? `${where}; SQL as a user of its own, ${role}` : where;
  return max ? `${how}; ${max} branches of its own at once` : how;
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
