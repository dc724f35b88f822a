import { useMutation, useQuery } from "@tanstack/react-query";
import { Check, Copy, Eye, EyeOff, RotateCw } from "lucide-react";
import { useState } from "react";
import { rotatePassword } from "../../api/changes";
import { credentialsQuery, type InBranch } from "../../api/queries";
import { useKeys } from "../../app/keys";
import { masked, type Place, pooled, type Snippet, SNIPPETS } from "../../lib/snippets";
import { Dialog } from "../../ui/Dialog";
import { Band, Button, Outlines } from "../../ui/parts";
import { Trouble } from "../../ui/Trouble";
import { tell } from "../../ui/toasts";

const KEY = "coppice-snippet";
const SAID_MS = 2000;

interface ConnectProps {
  path: InBranch;
  /** Whether passwords may be seen. */
  canSee: boolean;
  /** Why the password can't be changed, if it can't. */
  why: string | undefined;
}

/** How to connect from one's own language; complete when it is copied, without the password as it is shown. */
export function Connect({ path, canSee, why }: ConnectProps) {
  const credentials = useQuery({ ...credentialsQuery(path), enabled: canSee });
  const [isShown, setShown] = useState(false);
  const [isAsking, setAsking] = useState(false);
  useKeys({ y: () => setShown(!isShown) });
  const direct = credentials.data;
  return (
    <section className="card connect" aria-labelledby="connect">
      <header>
        <h2 id="connect">Connect</h2>
        {direct && (
          <>
            <Button kind="bare" onClick={() => setShown(!isShown)} title="y" aria-pressed={isShown}>
              {isShown ? <EyeOff aria-hidden="true" /> : <Eye aria-hidden="true" />}
              {isShown ? "Hide password" : "Show password"}
            </Button>
            <Button kind="bare" why={why} onClick={() => setAsking(true)}>
              <RotateCw aria-hidden="true" />
              Change password
            </Button>
          </>
        )}
      </header>
      <div className="inside">
        {!canSee && (
          <Band kind="info">Your role here does not show passwords. An editor can connect, or give you another role.</Band>
        )}
        {credentials.error && <Trouble error={credentials.error} again={() => credentials.refetch()} />}
        {canSee && credentials.isPending && <Outlines count={2} />}
        {direct && <Ways branchID={path.branchID} direct={direct} isShown={isShown} />}
      </div>
      {isAsking && direct && <Rotate path={path} username={direct.username} onClose={() => setAsking(false)} />}
    </section>
  );
}

interface WaysProps {
  branchID: string;
  direct: Place;
  /** Whether the password is. */
  isShown: boolean;
}

/** Direct or pooled, in one language or another. */
function Ways({ branchID, direct, isShown }: WaysProps) {
  const [chosen, setChosen] = useState(() => localStorage.getItem(KEY) ?? "psql");
  const [isPooled, setPooled] = useState(false);
  const snippet = SNIPPETS.find(({ id }) => id === chosen) ?? (SNIPPETS[0] as Snippet);
  const place = isPooled ? pooled(direct, branchID) : direct;
  return (
    <>
      <div className="segments fit" role="group" aria-label="How">
        <button type="button" aria-pressed={!isPooled} onClick={() => setPooled(false)}>
          Direct
        </button>
        <button type="button" aria-pressed={isPooled} onClick={() => setPooled(true)}>
          Pooled
        </button>
      </div>
      <div className="segments" role="group" aria-label="Language">
        {SNIPPETS.map(({ id, name }) => (
          <button
            key={id}
            type="button"
            aria-pressed={id === snippet.id}
            onClick={() => {
              localStorage.setItem(KEY, id);
              setChosen(id);
            }}
          >
            {name}
          </button>
        ))}
      </div>
      <div className="snippet">
        {/* Wider than its box, it has to be reached by the keyboard, too. */}
        <pre tabIndex={0} aria-label={`${snippet.name}: how to connect`}>
          {isShown ? snippet.code(place) : masked(snippet, place)}
        </pre>
        <CopyButton text={snippet.code(place)} />
      </div>
      <dl className="place">
        <Part name="Host" text={place.hostname} />
        <Part name="Port" text={String(place.port)} />
        <Part name="User" text={place.username} />
        <Part name="Database" text={place.dbname} />
      </dl>
      <p className="quiet">
        {isPooled
          ? "Clients share a few sessions of the server, and one without a transaction keeps nothing awake. "
          : "A session of its own, for as long as it lasts. "}
        Connecting wakes the branch. What is copied has the password in it.
      </p>
    </>
  );
}

function CopyButton({ text }: { text: string }) {
  const [wasCopied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), SAID_MS);
    } catch {
      tell("The browser did not let it be copied. Show the password and copy it by hand.", true);
    }
  };
  useKeys({ c: () => void copy() });
  return (
    <Button kind="main" onClick={() => void copy()} title="c">
      {wasCopied ? <Check aria-hidden="true" /> : <Copy aria-hidden="true" />}
      {wasCopied ? "Copied" : "Copy"}
    </Button>
  );
}

function Part({ name, text }: { name: string; text: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <code>{text}</code>
      </dd>
    </div>
  );
}

function Rotate({ path, username, onClose }: { path: InBranch; username: string; onClose: () => void }) {
  const changed = useMutation({
    mutationFn: () => rotatePassword(path, username),
    onSuccess: () => {
      tell(`${username} has a new password.`);
      onClose();
    },
  });
  return (
    <Dialog
      title={`Change the password of ${username}?`}
      does="Change it"
      isDangerous
      isBusy={changed.isPending}
      onDone={() => changed.mutate()}
      onClose={onClose}
    >
      <p>
        The one until now lets nobody in any more. Whoever is connected stays connected; whoever connects again needs
        the new one.
      </p>
      {changed.error && <Trouble error={changed.error} />}
    </Dialog>
  );
}
