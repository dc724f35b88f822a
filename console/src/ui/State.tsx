import { CircleAlert, CircleHelp, LoaderCircle, Moon, Sprout } from "lucide-react";
import type { Schemas } from "../api/client";

export type StateName = "awake" | "asleep" | "moving" | "failed" | "unknown";

const STATES: Record<Schemas["BranchStatusType"], StateName> = {
  STATUS_TYPE_HEALTHY: "awake",
  STATUS_TYPE_HIBERNATED: "asleep",
  STATUS_TYPE_TRANSIENT: "moving",
  STATUS_TYPE_FAULT: "failed",
  STATUS_TYPE_UNSPECIFIED: "unknown",
};

const ICONS = { awake: Sprout, asleep: Moon, moving: LoaderCircle, failed: CircleAlert, unknown: CircleHelp };
const WORDS = { awake: "Awake", asleep: "Asleep", failed: "Failed", unknown: "Unknown" };
/** What the server says while a branch goes from one state to another. */
const MOVES: Record<string, string> = {
  Creating: "Being made",
  "Waking up": "Waking up",
  Hibernating: "Falling asleep",
  Updating: "Restarting",
};

export function stateOf(type: Schemas["BranchStatusType"]): StateName {
  return STATES[type];
}

export function stateWords(state: StateName, said?: string): string {
  return state === "moving" ? (MOVES[said ?? ""] ?? "Changing") : WORDS[state];
}

interface StateProps {
  state: StateName;
  /** What the server calls it. */
  said?: string;
  /** The sign alone, with its word for who can't see it. */
  isShort?: boolean;
}

export function State({ state, said, isShort }: StateProps) {
  const Icon = ICONS[state];
  const words = stateWords(state, said);
  return (
    <span className={`state ${state}`} title={isShort ? words : undefined}>
      <Icon aria-hidden="true" />
      <span className={isShort ? "hidden-visually" : undefined}>{words}</span>
    </span>
  );
}
