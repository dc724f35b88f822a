import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import type { InBranch } from "../../api/queries";
import { type Answer, runSql } from "../../api/sql";
import { changesCatalogue } from "../../lib/statements";

/** A statement, and where in the editor it is. */
export interface Asked {
  query: string;
  from: number;
}

export interface Script {
  /** As people wrote it. */
  asked: Asked[];
  /** What is sent instead of the only statement, where its plan is wanted: what stands before it, and around that. */
  explain?: { prefix: string; isAnalyzed: boolean };
  readOnly: boolean;
  rowsMax: number;
}

export interface Run {
  script: Script;
  /** Milliseconds since 1970. */
  began: number;
  /** Milliseconds; none as long as it goes on. */
  took?: number;
  answer?: Answer;
  error?: Error;
  isStopped?: boolean;
}

/** What is sent, and which of the answers are shown. */
function sent({ asked, explain }: Script): { queries: string[]; from: number; to: number } {
  const queries = asked.map(({ query }) => query);
  if (!explain) return { queries, from: 0, to: queries.length };
  const explained = queries.map((query) => explain.prefix + query);
  // What it does is undone: to look at how something runs changes nothing.
  return explain.isAnalyzed
    ? { queries: ["begin", ...explained, "rollback"], from: 1, to: 2 }
    : { queries: explained, from: 0, to: 1 };
}

/** Runs one script after the other, and stops what still runs when the screen is left. */
export function useRun(path: InBranch, onEnd: (run: Run) => void) {
  const [run, setRun] = useState<Run>();
  const controller = useRef<AbortController>(undefined);
  const client = useQueryClient();
  useEffect(() => () => controller.current?.abort(), []);
  const stop = () => controller.current?.abort();
  const start = (script: Script) => {
    if (run && run.took === undefined) return;
    const began = Date.now();
    const own = new AbortController();
    controller.current = own;
    setRun({ script, began });
    const { queries, from, to } = sent(script);
    const end = (outcome: Partial<Run>) => {
      const ended = { script, began, took: Date.now() - began, ...outcome };
      setRun(ended);
      onEnd(ended);
      const changed = ended.answer?.results.some(({ command }) => changesCatalogue(command));
      if (changed) void client.invalidateQueries({ queryKey: ["catalogue", path] });
    };
    runSql(
      path,
      queries.map((query) => ({ query })),
      { readOnly: script.readOnly, rowsMax: script.rowsMax, signal: own.signal },
    ).then(
      (answer) => {
        const failed = answer.results.find(({ error }) => error);
        const results = answer.results.slice(from, to);
        end({ answer: { ...answer, results: results.length > 0 || !failed ? results : [failed] } });
      },
      (error: Error) => end(own.signal.aborted ? { isStopped: true } : { error }),
    );
  };
  return { run, start, stop, isRunning: run !== undefined && run.took === undefined };
}
