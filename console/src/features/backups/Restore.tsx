import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { restoreBranch } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { type InBranch, treeQuery } from "../../api/queries";
import { ago, exact, fromField, inField, took } from "../../lib/time";
import { freeName } from "../../lib/tree";
import { Button, TextField } from "../../ui/parts";
import { Trouble } from "../../ui/Trouble";
import { tell } from "../../ui/toasts";

const MINUTE = 60_000;
const JUMPS: [string, number][] = [
  ["1 min ago", MINUTE],
  ["10 min ago", 10 * MINUTE],
  ["1 h ago", 60 * MINUTE],
  ["1 d ago", 1440 * MINUTE],
];

interface RestoreProps {
  path: InBranch;
  name: string;
  from: string;
  to: string;
  /** Times between these two of which nothing was kept. */
  gaps: Schemas["HistoryGap"][];
  why: string | undefined;
}

/** What is wrong with a moment, if there is something. */
function problem(at: number | undefined, { from, to, gaps }: RestoreProps): string | undefined {
  if (at === undefined) return undefined;
  const isOutside = Number.isNaN(at) || at < Date.parse(from) || at > Date.parse(to);
  if (isOutside) return `Choose a moment from ${exact(from)} to ${exact(to)}.`;
  const gap = gaps.find((gap) => at > Date.parse(gap.from) && at < Date.parse(gap.to));
  return gap && `Nothing was kept from ${exact(gap.from)} to ${exact(gap.to)}: choose a moment before or after.`;
}

/** What was typed, what is wrong with it, and the moment that it means; none is the latest. */
function useDraft(props: RestoreProps) {
  const { path, name: branch, why } = props;
  const branches = useQuery(treeQuery(path)).data?.branches ?? [];
  const names = new Set(branches.map(({ name }) => name));
  const [chosen, choose] = useState("");
  const [typed, type] = useState<string>();
  const name = (typed ?? freeName(branch, names)).trim();
  const at = chosen === "" ? undefined : fromField(chosen);
  const wrongTime = problem(at, props);
  const wrongName = typed !== undefined && names.has(name) ? "There is a branch with this name." : undefined;
  const blocked = why ?? wrongTime ?? wrongName ?? (name ? undefined : "It needs a name.");
  return { chosen, choose, typed: typed ?? name, type, name, at, wrongTime, wrongName, blocked };
}

/** Makes the branch and leads to it. */
function useRestore(path: InBranch, name: string, at: number | undefined) {
  const navigate = useNavigate();
  return useMutation({
    mutationFn: async () => {
      const began = performance.now();
      const targetTime = at === undefined ? undefined : new Date(at).toISOString();
      const found = await restoreBranch(path, { name, ...(targetTime && { targetTime }) });
      return { found, milliseconds: performance.now() - began };
    },
    onSuccess: ({ found, milliseconds }) => {
      tell(`${found.name} was made in ${took(milliseconds)}.`);
      void navigate({
        to: "/orgs/$org/projects/$project/branches/$branch/overview",
        params: { org: path.organizationID, project: path.projectID, branch: found.id },
      });
    },
  });
}

/** Makes a branch of what this one was at a moment; says what is going to happen before it does. */
export function Restore(props: RestoreProps) {
  const { path, name: branch, from, to, why } = props;
  const draft = useDraft(props);
  const { name, at, wrongTime, blocked } = draft;
  const made = useRestore(path, name, at);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!blocked && !made.isPending) made.mutate();
  };
  return (
    <form className="card restore" aria-label="Restore" onSubmit={submit}>
      <header>
        <h2>Restore</h2>
        <Button type="submit" kind="main" why={blocked} disabled={made.isPending}>
          Restore
        </Button>
      </header>
      <fieldset className="inside" disabled={why !== undefined}>
        <TextField
          label="As of, in UTC"
          hint="Empty is the latest there is."
          wrong={wrongTime}
          type="datetime-local"
          step={1}
          min={inField(Date.parse(from))}
          max={inField(Date.parse(to))}
          value={draft.chosen}
          onChange={draft.choose}
        />
        <Jumps first={Date.parse(from)} onChoose={draft.choose} />
        <TextField
          label="Name of the new branch"
          wrong={draft.wrongName}
          maxLength={255}
          spellCheck={false}
          autoComplete="off"
          value={draft.typed}
          onChange={draft.type}
        />
        <p className="preview" role="status">
          {!wrongTime && (
            <>
              <strong>{name || "A branch"}</strong> is going to have what {branch} had{" "}
              {at === undefined ? "last" : `at ${exact(at)}, ${ago(at, Date.now())}`}, with a password of its own.
              Nothing happens to {branch}, nor to who uses it.
            </>
          )}
        </p>
      </fieldset>
      {made.error && <Trouble error={made.error} />}
    </form>
  );
}

/** Moments that people mean most of the time. */
function Jumps({ first, onChoose }: { first: number; onChoose: (moment: string) => void }) {
  return (
    <div className="jumps">
      {JUMPS.filter(([, before]) => Date.now() - before >= first).map(([said, before]) => (
        <Button key={said} onClick={() => onChoose(inField(Date.now() - before))}>
          {said}
        </Button>
      ))}
      <Button onClick={() => onChoose("")}>The latest</Button>
    </div>
  );
}
