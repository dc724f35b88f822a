import { Check, Copy } from "lucide-react";
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { useKeys } from "../../app/keys";
import { counted } from "../../lib/amounts";
import { Band, Button } from "../../ui/parts";
import { tell } from "../../ui/toasts";

const SAID_MS = 2000;

/** What makes the other branch the same, in the order in which it can be carried out. */
export function Statements({ found }: { found: Schemas["BranchDiff"] }) {
  const [wasCopied, setCopied] = useState(false);
  const losing = found.statements.filter(({ losesData }) => losesData).length;
  const manual = found.statements.filter(({ manual }) => manual).length;
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(found.sql);
      setCopied(true);
      setTimeout(() => setCopied(false), SAID_MS);
    } catch {
      tell("The browser did not let it be copied. Mark it and copy it by hand.", true);
    }
  };
  useKeys({ c: () => void copy() });
  return (
    <section className="card" aria-labelledby="statements">
      <header>
        <h2 id="statements">SQL for {found.against.name}</h2>
        <p className="quiet">{counted(found.statements.length, "statement")} that make it what {found.branch.name} is</p>
        <Button kind="main" onClick={() => void copy()} title="c">
          {wasCopied ? <Check aria-hidden="true" /> : <Copy aria-hidden="true" />}
          {wasCopied ? "Copied" : "Copy SQL"}
        </Button>
      </header>
      <div className="inside diff-sql">
        {losing > 0 && <Band kind="warn">{counted(losing, "statement")} would lose or convert data: look for the comments.</Band>}
        {manual > 0 && <Band kind="warn">{counted(manual, "step")} only a person can do: look for “By hand”.</Band>}
        <pre tabIndex={0} aria-label={`SQL for ${found.against.name}`}>
          {found.sql}
        </pre>
      </div>
    </section>
  );
}
