import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { updateBranch } from "../../api/changes";
import type { Schemas } from "../../api/client";
import { branchQuery, type InBranch, parametersQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { useKeys } from "../../app/keys";
import { counted } from "../../lib/amounts";
import { Dialog } from "../../ui/Dialog";
import { Band, Button, Outlines, SearchField } from "../../ui/parts";
import { Failed, Trouble } from "../../ui/Trouble";
import { tell } from "../../ui/toasts";
import "./parameters.css";

type Parameter = Schemas["PostgresParameter"];

export interface ParameterSearch {
  find?: string;
  changed?: boolean;
}

/** PostgreSQL's parameters: what they are, what they could be, and what a change costs. */
export function Parameters() {
  const { org, project, branch } = useParams({ strict: false }) as Record<"org" | "project" | "branch", string>;
  const path: InBranch = { organizationID: org, projectID: project, branchID: branch };
  const search = useSearch({ strict: false }) as ParameterSearch;
  const details = useQuery(branchQuery(path)).data;
  const found = useQuery(parametersQuery(path));
  const why = useRights(org).why("branch:write");
  const [draft, setDraft] = useState<Record<string, string>>({});
  const [isReviewing, setReviewing] = useState(false);
  const all = found.data?.parameters ?? [];
  const letters = (search.find ?? "").toLowerCase();
  const shown = all.filter(
    ({ name, description, currentValue, defaultValue }) =>
      `${name} ${description}`.toLowerCase().includes(letters) &&
      (!search.changed || currentValue !== defaultValue || draft[name] !== undefined),
  );
  const changes = all.filter(({ name, currentValue }) => draft[name] !== undefined && draft[name] !== currentValue);
  const review = () => changes.length > 0 && setReviewing(true);
  return (
    <>
      <title>{`Parameters of ${details?.name ?? "a branch"} · Coppice`}</title>
      <div className="head">
        <h1>Parameters</h1>
        <div className="tools">
          <Chooser search={search} />
          <Button kind="main" why={why ?? (changes.length ? undefined : "Nothing is changed yet.")} onClick={review}>
            {changes.length ? `Review ${counted(changes.length, "change")}` : "Review"}
          </Button>
        </div>
      </div>
      {details?.status.statusType === "STATUS_TYPE_HIBERNATED" && (
        <Band kind="asleep">Asleep. A change does not wake it; it has the new values when it wakes.</Band>
      )}
      <Failed query={found} />
      {found.isPending && <Outlines count={8} />}
      {found.data && shown.length === 0 && <p className="quiet">No parameter fits.</p>}
      <form
        className="sections"
        onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && review()}
        onSubmit={(event) => event.preventDefault()}
      >
        <Sections parameters={shown} draft={draft} why={why} onChange={setDraft} />
      </form>
      {isReviewing && (
        <Review
          path={path}
          changes={changes.map((parameter) => ({ parameter, value: draft[parameter.name] ?? "" }))}
          onClose={() => setReviewing(false)}
          onDone={() => {
            setDraft({});
            setReviewing(false);
          }}
        />
      )}
    </>
  );
}

/** Which parameters are to be seen. */
function Chooser({ search }: { search: ParameterSearch }) {
  const navigate = useNavigate();
  const filter = useRef<HTMLInputElement>(null);
  const set = (change: ParameterSearch) =>
    void navigate({ to: ".", search: { ...search, ...change } as never, replace: true });
  useKeys({ "/": () => filter.current?.focus() });
  return (
    <>
      <SearchField
        field={filter}
        label="Find a parameter"
        placeholder="Find  /"
        value={search.find ?? ""}
        onChange={(text) => set({ find: text })}
      />
      <label className="check">
        <input
          type="checkbox"
          checked={search.changed ?? false}
          onChange={(event) => set({ changed: event.target.checked })}
        />
        Changed only
      </label>
    </>
  );
}

interface SectionsProps {
  parameters: Parameter[];
  /** What was chosen and is not saved yet, by the parameter's name. */
  draft: Record<string, string>;
  why: string | undefined;
  onChange: (draft: Record<string, string>) => void;
}

function Sections({ parameters, draft, why, onChange }: SectionsProps) {
  const sections = [...new Set(parameters.map(({ section }) => section))];
  return sections.map((section) => (
    <section key={section} className="card parameters" aria-label={section}>
      <header>
        <h2>{section}</h2>
      </header>
      {parameters
        .filter((parameter) => parameter.section === section)
        .map((parameter) => (
          <Row
            key={parameter.name}
            parameter={parameter}
            value={draft[parameter.name] ?? parameter.currentValue}
            why={why}
            onChange={(value) => onChange({ ...draft, [parameter.name]: value })}
          />
        ))}
    </section>
  ));
}

interface RowProps {
  parameter: Parameter;
  value: string;
  why: string | undefined;
  onChange: (value: string) => void;
}

function range({ acceptableRange }: Parameter): string | undefined {
  const { minValue, maxValue } = acceptableRange ?? {};
  return minValue !== undefined && maxValue !== undefined ? `${minValue} to ${maxValue}` : undefined;
}

/** The server tells the value, a colon, and why. */
function adviceOf({ recommendation }: Parameter): { value: string; reason: string } | undefined {
  const [value, ...reason] = recommendation.split(": ");
  return value ? { value, reason: reason.join(": ") } : undefined;
}

function Row({ parameter, value, why, onChange }: RowProps) {
  const { name, description, currentValue, defaultValue, restartRequired } = parameter;
  const advice = adviceOf(parameter);
  const choices = parameter.type === "boolean" ? ["on", "off"] : parameter.acceptableRange?.enumValues;
  const field = {
    id: name,
    value,
    disabled: why !== undefined,
    title: why,
    "aria-describedby": `${name}-says`,
    onChange: (event: { target: { value: string } }) => onChange(event.target.value),
  };
  return (
    <div className={value === currentValue ? "parameter" : "parameter is-changed"}>
      <div className="about">
        <label htmlFor={name} className="mono">
          {name}
        </label>
        <p id={`${name}-says`} className="quiet">
          {description}
        </p>
      </div>
      <div className="value">
        {choices ? (
          <select {...field} className="select">
            {[...new Set([...choices, value])].map((choice) => (
              <option key={choice}>{choice}</option>
            ))}
          </select>
        ) : (
          <input {...field} className="input mono" spellCheck={false} autoComplete="off" />
        )}
        <p className="quiet notes">
          {range(parameter) && <span>{range(parameter)}</span>}
          {currentValue !== defaultValue && <span>default {defaultValue}</span>}
          {restartRequired && <span>restarts</span>}
          {advice && advice.value !== value && (
            <span>
              Recommended: {advice.value}, as {advice.reason}
              {!why && (
                <button type="button" className="as-link" onClick={() => onChange(advice.value)}>
                  Take it
                </button>
              )}
            </span>
          )}
          {value !== defaultValue && !why && (
            <button type="button" className="as-link" onClick={() => onChange(defaultValue)}>
              Default
            </button>
          )}
        </p>
      </div>
    </div>
  );
}

interface ReviewProps {
  path: InBranch;
  changes: { parameter: Parameter; value: string }[];
  onClose: () => void;
  onDone: () => void;
}

function Review({ path, changes, onClose, onDone }: ReviewProps) {
  const restarts = changes.some(({ parameter }) => parameter.restartRequired);
  const values = Object.fromEntries(changes.map(({ parameter, value }) => [parameter.name, value]));
  const done = useMutation({
    mutationFn: () => updateBranch(path, { postgresConfigurationParameters: values }),
    onSuccess: () => {
      tell(restarts ? "The server restarts with the new values." : "The server has the new values.");
      onDone();
    },
  });
  return (
    <Dialog
      title={`Change ${counted(changes.length, "parameter")}?`}
      does={restarts ? "Change and restart" : "Change"}
      isBusy={done.isPending}
      onDone={() => done.mutate()}
      onClose={onClose}
    >
      <ul className="review">
        {changes.map(({ parameter, value }) => (
          <li key={parameter.name}>
            <span className="mono">{parameter.name}</span>
            <span>
              <del>{parameter.currentValue}</del> → <ins>{value}</ins>
            </span>
          </li>
        ))}
      </ul>
      {restarts ? (
        <Band kind="warn">The server restarts. Its sessions end, and new clients wait until it is back.</Band>
      ) : (
        <p className="quiet">The server takes them while it runs; no session ends.</p>
      )}
      {done.error && <Trouble error={done.error} />}
    </Dialog>
  );
}
