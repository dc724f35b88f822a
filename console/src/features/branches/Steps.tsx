import { Check, X } from "lucide-react";
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { Button } from "../../ui/parts";

const KEY = "coppice-steps-done";

/** The first steps of a project; each ticks itself when it really happened. */
export function Steps({ branches, project }: { branches: readonly Schemas["BranchInTree"][]; project: string }) {
  const [isClosed, setClosed] = useState(() => localStorage.getItem(KEY) === project);
  const steps = [
    {
      name: "Connect",
      how: "Open main and copy how to connect.",
      done: branches.some(({ sessions, lastUsedAt }) => sessions > 0 || lastUsedAt !== null),
    },
    {
      name: "Branch",
      how: "Press b: a copy with all data, in a blink.",
      done: branches.some(({ parentID }) => parentID !== null),
    },
    {
      name: "Watch it sleep",
      how: "Unused branches fall asleep, and wake when somebody connects.",
      done: branches.some(({ asleepSince }) => asleepSince !== null),
    },
  ];
  if (isClosed || steps.every(({ done }) => done)) return null;
  const close = () => {
    localStorage.setItem(KEY, project);
    setClosed(true);
  };
  return (
    <section className="steps card" aria-label="First steps">
      <ol>
        {steps.map(({ name, how, done }, index) => (
          <li key={name} className={done ? "done" : undefined}>
            <span className="tick">{done ? <Check aria-label="Done" /> : index + 1}</span>
            <span>
              <strong>{name}</strong>
              <span className="quiet">{how}</span>
            </span>
          </li>
        ))}
      </ol>
      <Button kind="bare" icon aria-label="Hide the first steps" onClick={close}>
        <X aria-hidden="true" />
      </Button>
    </section>
  );
}
