import { Link } from "@tanstack/react-router";
import { ChevronRight, EllipsisVertical, GitBranchPlus, Moon, Sunrise, Trash2 } from "lucide-react";
import { memo, useRef } from "react";
import type { Schemas } from "../../api/client";
import type { InProject } from "../../api/queries";
import { counted } from "../../lib/amounts";
import { Menu } from "../../ui/Menu";
import { Button } from "../../ui/parts";
import { Shares } from "../../ui/Shares";
import { State, stateOf } from "../../ui/State";
import { Ago, Since, Until } from "../../ui/Times";
import { useNear } from "../../ui/useNear";
import { Stump } from "./Stump";

type BranchInTree = Schemas["BranchInTree"];

/** What can be done with a row; the same functions as long as the tree is there. */
export interface RowActs {
  fold: (id: string) => void;
  focus: (id: string) => void;
  make: (from: BranchInTree) => void;
  turn: (branch: BranchInTree) => void;
  remove: (branch: BranchInTree) => void;
}

interface RowProps {
  branch: BranchInTree;
  depth: number;
  below: number;
  hasChildren: boolean;
  /** For each step from the root: whether its line goes on below, as 1 or 0. */
  lines: string;
  isFolded: boolean;
  isSelected: boolean;
  hasFocus: boolean;
  /** Whether it is among the first, and so in view before anybody has looked. */
  isFirst: boolean;
  path: InProject;
  /** Why nothing can be changed, if nothing can. */
  why: string | undefined;
  acts: RowActs;
}

/** A branch in the tree. Far from what is in view it is its name alone: there may be a thousand. */
export const BranchRow = memo(function BranchRow(props: RowProps) {
  const { branch, depth, hasChildren, isFolded, isSelected, hasFocus, isFirst, acts } = props;
  const row = useRef<HTMLDivElement>(null);
  const isNear = useNear(row, isFirst);
  return (
    <div
      ref={row}
      className="tree-row"
      role="row"
      aria-level={depth + 1}
      aria-expanded={hasChildren ? !isFolded : undefined}
      aria-selected={isSelected}
      tabIndex={hasFocus ? 0 : -1}
      data-branch={branch.id}
      onFocus={() => acts.focus(branch.id)}
    >
      {isNear ? <Cells {...props} /> : <div role="gridcell">{branch.name}</div>}
    </div>
  );
});

function Cells(props: RowProps) {
  const { branch, below, hasChildren, lines, isFolded, hasFocus, path, acts } = props;
  const state = stateOf(branch.statusType);
  return (
    <>
      <div role="gridcell" className="cell-name">
        <span className="lines" aria-hidden="true">
          {[...lines].map((goesOn, index) => (
            <span
              // biome-ignore lint: a line is its place
              key={index}
              className={index === lines.length - 1 ? (goesOn === "1" ? "fork" : "end") : goesOn === "1" ? "past" : ""}
            />
          ))}
        </span>
        {hasChildren ? (
          <button
            type="button"
            className="knob fold"
            tabIndex={-1}
            aria-label={isFolded ? `Show the ${counted(below, "branch", "branches")} below` : "Hide the branches below"}
            onClick={() => acts.fold(branch.id)}
          >
            <ChevronRight aria-hidden="true" />
          </button>
        ) : (
          <span className="knob fold" />
        )}
        <Stump state={state} bytes={branch.diskBytes} own={branch.ownBytes} />
        <span className="names">
          <Link
            to="/orgs/$org/projects/$project/branches/$branch/overview"
            params={{ org: path.organizationID, project: path.projectID, branch: branch.id }}
            tabIndex={hasFocus ? 0 : -1}
          >
            {branch.name}
          </Link>
          {isFolded && <span className="tag">+{below}</span>}
          {branch.description && <span className="quiet">{branch.description}</span>}
        </span>
      </div>
      <div role="gridcell" className="cell-state">
        <State state={state} said={branch.status} />
      </div>
      <div role="gridcell" className="cell-why quiet" title={branch.message || branch.summary}>
        <Why branch={branch} />
      </div>
      <div role="gridcell" className="cell-data">
        <Shares all={branch.diskBytes} own={branch.ownBytes} />
      </div>
      <div role="gridcell" className="cell-made quiet">
        <Ago at={branch.createdAt} />
      </div>
      <div role="gridcell" className="cell-actions">
        <Actions {...props} />
      </div>
    </>
  );
}

/** What keeps it awake, or since when it sleeps, in a few words. */
function Why({ branch }: { branch: BranchInTree }) {
  if (branch.message) return branch.message;
  if (branch.statusType === "STATUS_TYPE_HIBERNATED") {
    return branch.asleepSince ? (
      <>
        for <Since at={branch.asleepSince} />
      </>
    ) : null;
  }
  if (branch.statusType !== "STATUS_TYPE_HEALTHY") return null;
  if (branch.sessions > 0) return counted(branch.sessions, "session");
  if (branch.sleepsAt) {
    return (
      <>
        unused, sleeps <Until at={branch.sleepsAt} />
      </>
    );
  }
  return branch.scaleToZero.enabled ? "in use" : "never sleeps";
}

function Actions({ branch, why, hasFocus, acts }: RowProps) {
  const state = stateOf(branch.statusType);
  const canTurn = state === "awake" || state === "asleep";
  return (
    <>
      {canTurn && (
        <Button
          kind="bare"
          icon
          why={why}
          tabIndex={hasFocus ? 0 : -1}
          aria-label={state === "awake" ? `Let ${branch.name} sleep` : `Wake ${branch.name}`}
          title={state === "awake" ? "Let it sleep (s)" : "Wake it (s)"}
          onClick={() => acts.turn(branch)}
        >
          {state === "awake" ? <Moon aria-hidden="true" /> : <Sunrise aria-hidden="true" />}
        </Button>
      )}
      <Menu label={`More about ${branch.name}`} className="button bare icon" button={<EllipsisVertical aria-hidden="true" />}>
        <button type="button" disabled={why !== undefined} onClick={() => acts.make(branch)}>
          <GitBranchPlus aria-hidden="true" />
          Branch from it
          <kbd className="end">b</kbd>
        </button>
        <button type="button" className="bad" disabled={why !== undefined} onClick={() => acts.remove(branch)}>
          <Trash2 aria-hidden="true" />
          Delete…
          <kbd className="end">Del</kbd>
        </button>
        {why && <p className="over">{why}</p>}
      </Menu>
    </>
  );
}
