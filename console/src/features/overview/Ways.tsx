import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { httpEndpoint } from "../../api/client";
import { useKeys } from "../../app/keys";
import { by, masked, type Place, type Snippet, SNIPPETS, type Way, WEB_SNIPPETS } from "../../lib/snippets";
import { Button } from "../../ui/parts";
import { tell } from "../../ui/toasts";

const KEY = "coppice-snippet";
const SAID_MS = 2000;

const WAYS: { id: Way; name: string; says: string }[] = [
  { id: "direct", name: "Direct", says: "A session of its own, for as long as it lasts." },
  {
    id: "pooled",
    name: "Pooled",
    says: "Clients share a few sessions of the server, and one without a transaction keeps nothing awake.",
  },
  { id: "replicas", name: "Replicas", says: "Each session goes to the next replica that is ready. It only reads." },
  { id: "http", name: "HTTP", says: "A statement at a time, from where nothing can stay connected." },
];

interface WaysProps {
  branchID: string;
  direct: Place;
  hasReplicas: boolean;
  /** Whether the password is. */
  isShown: boolean;
}

/** By one way or another, in one language or another. */
export function Ways({ branchID, direct, hasReplicas, isShown }: WaysProps) {
  const [chosen, setChosen] = useState(() => localStorage.getItem(KEY) ?? "psql");
  const [asked, setAsked] = useState<Way>("direct");
  const ways = WAYS.filter(({ id }) => hasReplicas || id !== "replicas");
  const way = ways.find(({ id }) => id === asked) ?? (ways[0] as (typeof WAYS)[0]);
  const place = { ...by(way.id, direct, branchID), endpoint: httpEndpoint };
  const snippets: Snippet<typeof place>[] = way.id === "http" ? WEB_SNIPPETS : SNIPPETS;
  const snippet = snippets.find(({ id }) => id === chosen) ?? (snippets[0] as Snippet<typeof place>);
  const choose = (id: string) => {
    localStorage.setItem(KEY, id);
    setChosen(id);
  };
  return (
    <>
      <Segments label="How" choices={ways} chosen={way.id} onChoose={setAsked} />
      <Segments label="Language" choices={snippets} chosen={snippet.id} onChoose={choose} />
      <div className="snippet">
        {/* Wider than its box, it has to be reached by the keyboard, too. */}
        <pre tabIndex={0} aria-label={`${snippet.name}: how to connect`}>
          {isShown ? snippet.code(place) : masked(snippet, place)}
        </pre>
        <CopyButton text={snippet.code(place)} />
      </div>
      {snippet.needs && (
        <p className="quiet needs">
          First <code>{snippet.needs}</code>
        </p>
      )}
      <dl className="place">
        <Part name="Host" text={place.hostname} />
        <Part name="Port" text={String(place.port)} />
        <Part name="User" text={place.username} />
        <Part name="Database" text={place.dbname} />
      </dl>
      <p className="quiet">{way.says} Connecting wakes the branch. What is copied has the password in it.</p>
    </>
  );
}

interface SegmentsProps<Id> {
  label: string;
  choices: readonly { id: Id; name: string }[];
  chosen: Id;
  onChoose: (id: Id) => void;
}

function Segments<Id extends string>({ label, choices, chosen, onChoose }: SegmentsProps<Id>) {
  return (
    <div className="segments" role="group" aria-label={label}>
      {choices.map(({ id, name }) => (
        <button key={id} type="button" aria-pressed={id === chosen} onClick={() => onChoose(id)}>
          {name}
        </button>
      ))}
    </div>
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
