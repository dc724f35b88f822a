import { useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { History as HistoryIcon } from "lucide-react";
import { lazy, Suspense, useRef, useState } from "react";
import { branchQuery, type InBranch, sessionQuery, treeQuery } from "../../api/queries";
import { useRights } from "../../api/rights";
import { catalogueQuery } from "../../api/sql";
import { placeOf, statementAt, statements, writes } from "../../lib/statements";
import { keepDraft, noteRun, work } from "../../lib/work";
import { Band, Button, Outlines } from "../../ui/parts";
import { stateOf } from "../../ui/State";
import { Trouble } from "../../ui/Trouble";
import type { EditorHandle } from "./Editor";
import { History } from "./History";
import { Results } from "./Results";
import { Bar, type Choices, Stopped } from "./Bar";
import { type Asked, type Run, useRun } from "./useRun";
import "./sql.css";

const Editor = lazy(() => import("./Editor").then(({ Editor }) => ({ default: Editor })));

const EXPLAIN = "EXPLAIN (FORMAT JSON) ";
const ANALYZE = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ";

/** What the editor has asked for: the selection, the statement at the cursor, or everything. */
function wanted(editor: EditorHandle, all: boolean): Asked[] {
  const [text, { from, to }] = [editor.text(), editor.selection()];
  const at = statementAt(text, from);
  const spans =
    from < to && !all
      ? statements(text.slice(from, to)).map((span) => ({ from: span.from + from, to: span.to + from }))
      : all
        ? statements(text)
        : at
          ? [at]
          : [];
  return spans.map((span) => ({ query: text.slice(span.from, span.to), from: span.from }));
}

/** Shows where an answer says that something is wrong, if the text is still the one that was run. */
function showWrong(editor: EditorHandle, { script, answer }: Run) {
  const at = answer?.results.findIndex(({ error }) => error?.position) ?? -1;
  const [asked, position] = [script.asked[at], Number(answer?.results[at]?.error?.position)];
  if (!asked || editor.text().slice(asked.from, asked.from + asked.query.length) !== asked.query) return;
  const place = placeOf(asked.query, position - (script.explain?.prefix.length ?? 0));
  const word = /^[\w$]+/.exec(asked.query.slice(place))?.[0].length ?? 1;
  editor.mark({ from: asked.from + place, to: asked.from + place + word });
}

/** Says what it takes to run something here. */
function Beforehand({ why, sleepsAfter }: { why: string | undefined; sleepsAfter: number | undefined }) {
  return (
    <>
      {why && <Band kind="info">{why} To run SQL is to have the password.</Band>}
      {sleepsAfter !== undefined && (
        <Band kind="asleep">
          Asleep. To run something wakes it, and it stays awake until nobody has used it for {sleepsAfter} min.
        </Band>
      )}
    </>
  );
}

/** Runs statements on a branch and shows what came of them. */
export function Sql() {
  const { org, project, branch } = useParams({ strict: false }) as Record<"org" | "project" | "branch", string>;
  const path: InBranch = { organizationID: org, projectID: project, branchID: branch };
  const details = useQuery(branchQuery(path)).data;
  const seen = useQuery(treeQuery(path)).data?.branches.find(({ id }) => id === branch);
  const user = useSuspenseQuery(sessionQuery).data.user.id;
  const why = useRights(org).why("credentials:read");
  const state = details && stateOf(details.status.statusType);
  const catalogue = useQuery({ ...catalogueQuery(path), enabled: !why && state === "awake" }).data;
  const editor = useRef<EditorHandle>(null);
  const [kept] = useState(() => work(user, branch));
  const [past, setPast] = useState(kept.history);
  const [isRemembering, setRemembering] = useState(false);
  const [chosen, setChosen] = useState<Partial<Choices>>({});
  // What has no parent is what others are made from, and often what people live on.
  const choices: Choices = { readOnly: seen?.parentID == null, rowsMax: 1000, ...chosen };
  const { run, start, stop, isRunning } = useRun(path, (ended) => {
    const query = ended.script.asked.map(({ query }) => query).join(";\n");
    const isFailed = ended.answer?.results.some(({ error }) => error) ?? true;
    setPast(noteRun(user, branch, { query, at: ended.began, took: ended.took ?? 0, isFailed }));
    if (editor.current) showWrong(editor.current, ended);
  });
  const go = (all: boolean, isExplained = false) => {
    const asked = editor.current ? wanted(editor.current, all) : [];
    const [first] = asked;
    if (why || !first) return;
    const isAnalyzed = !writes(first.query);
    const explain = { prefix: isAnalyzed ? ANALYZE : EXPLAIN, isAnalyzed };
    start({ asked: isExplained ? [first] : asked, ...(isExplained && { explain }), ...choices });
  };
  return (
    <>
      <title>{`SQL on ${details?.name ?? "a branch"} · Coppice`}</title>
      <div className="head">
        <h1>SQL</h1>
        <p className="quiet">
          on <strong>{details?.name ?? "…"}</strong>
          {catalogue && ` as ${catalogue.role}, PostgreSQL ${catalogue.version}`}
        </p>
        <div className="tools">
          <Button kind="bare" onClick={() => setRemembering(true)}>
            <HistoryIcon aria-hidden="true" />
            History
          </Button>
        </div>
      </div>
      <Beforehand why={why} sleepsAfter={state === "asleep" ? details?.scaleToZero.inactivityPeriodMinutes : undefined} />
      <section className="card desk" aria-label="Editor">
        <Suspense fallback={<Outlines count={3} />}>
          <Editor
            handle={editor}
            label="SQL"
            initial={kept.draft}
            catalogue={catalogue}
            onChange={(text) => keepDraft(user, branch, text)}
            onRun={(all) => go(all)}
          />
        </Suspense>
        <Bar choices={choices} why={why} began={isRunning ? run?.began : undefined} onChoose={setChosen} onRun={go} onStop={stop} />
      </section>
      {run?.error && <Trouble error={run.error} />}
      {run?.isStopped && <Stopped run={run} />}
      {run?.answer && (
        <Results
          run={run}
          name={details?.name ?? "result"}
          onShow={() => editor.current && showWrong(editor.current, run)}
        />
      )}
      {isRemembering && (
        <History past={past} onChoose={(query) => editor.current?.replace(query)} onClose={() => setRemembering(false)} />
      )}
    </>
  );
}
