import { useMutation, useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useState } from "react";
import { deleteBudget, setBudget } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { budgetsQuery, projectsQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { useKeys } from "../../app/keys";
import { amount } from "../../lib/usage";
import { Dialog } from "../../ui/Dialog";
import { ActionsHead, Band, Button, Field, Outlines, TextField } from "../../ui/parts";
import { tell } from "../../ui/toasts";
import { Failed, Trouble } from "../../ui/Trouble";

type Budget = Schemas["Budget"];

const COVERS = { organization: "Organization", project: "Project", branch: "Branch", key: "Key" };
const LIMIT = /^([1-9]\d{0,8}(\.\d{1,6})?|0\.0{0,5}[1-9]\d{0,5})$/;

/** What may be used in a month, and how much of it is. */
export function Budgets({ org }: { org: string }) {
  const rights = useRights(org);
  const why = rights.why("org:write");
  const found = useQuery(budgetsQuery({ organizationID: org }));
  const [asked, setAsked] = useState<Budget | "new" | null>(null);
  const [leaving, setLeaving] = useState<Budget | null>(null);
  const add = () => !why && setAsked("new");
  useKeys({ n: add });
  const budgets = found.data?.budgets;
  const spent = budgets?.filter(({ reached }) => reached === 100) ?? [];
  return (
    <>
      {spent.length > 0 && (
        <Band kind="warn">
          {spent.map(named).join(", ")}: used up. What is covered sleeps until an admin raises it, or until{" "}
          {spent[0]?.renewsAt.slice(0, 10)}.
        </Band>
      )}
      <section className="card wide" aria-labelledby="budgets">
        <header>
          <h2 id="budgets">Budgets</h2>
          <Button why={why} onClick={add}>
            <Plus aria-hidden="true" />
            Set a budget
          </Button>
        </header>
        <Failed query={found} />
        {found.isPending && <Outlines count={2} />}
        {budgets?.length === 0 && (
          <p className="inside quiet">None. With one, branches sleep before a month costs more than it should.</p>
        )}
        {budgets && budgets.length > 0 && (
          <List budgets={budgets} why={why} onChange={setAsked} onRemove={setLeaving} />
        )}
      </section>
      {asked && <Ask org={org} budget={asked === "new" ? undefined : asked} onClose={() => setAsked(null)} />}
      {leaving && <Leave org={org} budget={leaving} onClose={() => setLeaving(null)} />}
    </>
  );
}

interface ListProps {
  budgets: readonly Budget[];
  why: string | undefined;
  onChange: (budget: Budget) => void;
  onRemove: (budget: Budget) => void;
}

function List({ budgets, why, onChange, onRemove }: ListProps) {
  return (
    <table className="table">
      <thead>
        <tr>
          <th>Of</th>
          <th>Used this month</th>
          <th className="number">Limit</th>
          <ActionsHead />
        </tr>
      </thead>
      <tbody>
        {budgets.map((budget) => (
          <tr key={budget.subjectID}>
            <td>
              {budget.name ?? budget.subjectID}
              <div className="quiet">{COVERS[budget.covers]}</div>
            </td>
            <td>
              <Used budget={budget} />
            </td>
            <td className="number">
              {budget.limit} {budget.unit}
            </td>
            <td className="number">
              <Button kind="bare" why={why} onClick={() => onChange(budget)}>
                Change
              </Button>
              <Button kind="bare" why={why} onClick={() => onRemove(budget)}>
                Remove
              </Button>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function named({ name, subjectID, covers }: Budget) {
  return `The budget of the ${covers} ${name ?? subjectID}`;
}

function Used({ budget: { used, limit, unit, reached, name, subjectID } }: { budget: Budget }) {
  if (used === null) return <span className="quiet">Unknown: there are no prices in {unit}.</span>;
  return (
    <div className="used">
      <meter
        className={`meter reached-${reached}`}
        aria-label={`Used of the budget of ${name ?? subjectID}`}
        max={Number(limit)}
        value={Math.min(Number(used), Number(limit))}
      />
      {amount(Number(used))} {unit}
    </div>
  );
}

interface AskProps {
  org: string;
  /** The one to change; without it a new one. */
  budget: Budget | undefined;
  onClose: () => void;
}

function Ask({ org, budget, onClose }: AskProps) {
  const projects = useQuery(projectsQuery({ organizationID: org })).data?.projects ?? [];
  const [subject, setSubject] = useState(budget?.subjectID ?? org);
  const [limit, setLimit] = useState(budget?.limit ?? "");
  const done = useMutation({
    mutationFn: () =>
      setBudget({ organizationID: org, subjectID: subject }, { limit, ...(budget && { unit: budget.unit }) }),
    onSuccess: () => {
      tell("The budget is set.");
      onClose();
    },
  });
  const isLimit = LIMIT.test(limit);
  return (
    <Dialog
      title={budget ? `${named(budget)}` : "Set a budget"}
      does="Set it"
      isBusy={done.isPending}
      why={isLimit ? undefined : "It needs an amount, like 20.00."}
      onDone={() => done.mutate()}
      onClose={onClose}
    >
      {!budget && (
        <Field label="Of" hint="Budgets of branches and keys are set by the command line or the API.">
          {(ids) => (
            <select {...ids} className="select" value={subject} onChange={(event) => setSubject(event.target.value)}>
              <option value={org}>The whole organization</option>
              {projects.map(({ id, name }) => (
                <option key={id} value={id}>
                  Project {name}
                </option>
              ))}
            </select>
          )}
        </Field>
      )}
      <TextField
        label={budget ? `${budget.unit} a month` : "How much a month"}
        hint="In the currency of the prices here, or in instance-hours where there are none. Admins hear of it at 50, 80 and 100 %."
        wrong={limit && !isLimit ? "An amount, like 20.00." : undefined}
        inputMode="decimal"
        autoComplete="off"
        value={limit}
        onChange={(text) => setLimit(text.trim())}
      />
      {done.error && <Trouble error={done.error} />}
    </Dialog>
  );
}

function Leave({ org, budget, onClose }: { org: string; budget: Budget; onClose: () => void }) {
  const done = useMutation({
    mutationFn: () => deleteBudget({ organizationID: org, subjectID: budget.subjectID }),
    onSuccess: () => {
      tell("The budget is removed.");
      onClose();
    },
  });
  return (
    <Dialog
      title={`Remove the budget of ${budget.name ?? budget.subjectID}?`}
      does="Remove"
      isDangerous
      isBusy={done.isPending}
      onDone={() => done.mutate()}
      onClose={onClose}
    >
      <p>Nothing stops what it covers any more. Branches that sleep for it may wake.</p>
      {done.error && <Trouble error={done.error} />}
    </Dialog>
  );
}
