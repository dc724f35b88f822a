import { lazy, memo, Suspense, useEffect, useImperativeHandle, useRef, type Ref } from "react";
import type { InBranch } from "../../api/queries";
import type { Catalogue } from "../../api/sql";
import { placeOf, statementAt, statements, writes } from "../../lib/statements";
import { Outlines } from "../../ui/parts";
import { Trouble } from "../../ui/Trouble";
import { Bar, type Choices, Stopped } from "./Bar";
import type { EditorHandle } from "./Editor";
import { Results } from "./Results";
import { type Asked, type Run, useRun } from "./useRun";

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

export interface DeskHandle {
  insert: (text: string) => void;
}

interface DeskProps {
  handle: Ref<DeskHandle>;
  id: number;
  isShown: boolean;
  path: InBranch;
  /** What the files of an export are called. */
  name: string;
  initial: string;
  /** Whether it is run as soon as it is there. */
  isRun: boolean;
  readOnly: boolean;
  rowsMax: number;
  why: string | undefined;
  catalogue: Catalogue | undefined;
  onChoose: (choices: Choices) => void;
  onChange: (id: number, text: string) => void;
  /** What runs, and what has ended. */
  onRun: (id: number, run: Run) => void;
}

/** One text, what is done with it, and what came of it. */
export const Desk = memo(function Desk(props: DeskProps) {
  const { handle, id, isShown, path, name, initial, isRun, readOnly, rowsMax, why, catalogue, onChoose, onChange, onRun } = props;
  const choices: Choices = { readOnly, rowsMax };
  const editor = useRef<EditorHandle>(null);
  useImperativeHandle(handle, () => ({ insert: (text) => editor.current?.insert(text) }), []);
  const { run, start, stop, isRunning } = useRun(path, (ended) => {
    if (editor.current) showWrong(editor.current, ended);
  });
  // Nothing else than the run itself says that there is another one.
  useEffect(() => {
    if (run) onRun(id, run);
  }, [id, run, onRun]);
  useEffect(() => {
    if (isRun && !why) start({ asked: [{ query: initial, from: 0 }], ...choices });
    // biome-ignore lint: once, when it is opened
  }, []);
  const go = (all: boolean, isExplained = false) => {
    const asked = editor.current ? wanted(editor.current, all) : [];
    const [first] = asked;
    if (why || !first) return;
    const isAnalyzed = !writes(first.query);
    const explain = { prefix: isAnalyzed ? ANALYZE : EXPLAIN, isAnalyzed };
    start({ asked: isExplained ? [first] : asked, ...(isExplained && { explain }), ...choices });
  };
  return (
    <div className="desk" role="tabpanel" id={`desk-${id}`} aria-labelledby={`tab-${id}`} hidden={!isShown}>
      <section className="card writing" aria-label="Editor">
        <Suspense fallback={<Outlines count={3} />}>
          <Editor
            handle={editor}
            label="SQL"
            initial={initial}
            catalogue={catalogue}
            onChange={(text) => onChange(id, text)}
            onRun={(all) => go(all)}
          />
        </Suspense>
        <Bar choices={choices} why={why} began={isRunning ? run?.began : undefined} onChoose={onChoose} onRun={go} onStop={stop} />
      </section>
      {run?.error && <Trouble error={run.error} />}
      {run?.isStopped && <Stopped run={run} />}
      {run?.answer && <Results run={run} name={name} onShow={() => editor.current && showWrong(editor.current, run)} />}
    </div>
  );
});
