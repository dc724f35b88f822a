import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useCallback, useMemo, useRef, useState } from "react";
import { updateBranch } from "../../api/changes";
import type { Schemas } from "../../api/client";
import type { InProject } from "../../api/queries";
import type { Rights } from "../../api/rights";
import { counted } from "../../lib/amounts";
import { type Row, rows } from "../../lib/tree";
import { Button } from "../../ui/parts";
import { tellError } from "../../ui/toasts";
import { BranchRow, type RowActs } from "./BranchRow";

export type BranchInTree = Schemas["BranchInTree"];

interface TreeProps {
  path: InProject;
  branches: readonly BranchInTree[];
  rights: Rights;
  onMake: (from: BranchInTree) => void;
  onDelete: (branches: BranchInTree[]) => void;
}

/** Rows that are drawn before it is known what is in view. */
const FIRST = 40;

/** Ids that are turned on and off, one at a time. */
function useIds(): [ReadonlySet<string>, (id: string) => void, () => void] {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  const turn = useCallback((id: string) => {
    setIds((before) => {
      const after = new Set(before);
      if (!after.delete(id)) after.add(id);
      return after;
    });
  }, []);
  return [ids, turn, useCallback(() => setIds(new Set()), [])];
}

/** What rows can do: the same functions as long as the tree is there, so that rows are drawn once. */
function useActs({ organizationID, projectID }: InProject, asks: Pick<TreeProps, "onMake" | "onDelete">) {
  const [folded, fold] = useIds();
  const [current, focus] = useState<string>();
  const path = useMemo(() => ({ organizationID, projectID }), [organizationID, projectID]);
  const latest = useRef(asks);
  latest.current = asks;
  const acts = useMemo(
    (): RowActs => ({
      fold,
      focus,
      make: (from) => latest.current.onMake(from),
      remove: (branch) => latest.current.onDelete([branch]),
      turn: ({ id, statusType }) => {
        const hibernate = statusType === "STATUS_TYPE_HEALTHY";
        updateBranch({ ...path, branchID: id }, { hibernate }).catch(tellError);
      },
    }),
    [fold, path],
  );
  return { path, folded, current, acts };
}

/** Who was made from whom, and what each is doing. One row has the focus; keys act on it. */
export function Tree({ path: project, branches, rights, onMake, onDelete }: TreeProps) {
  const { path, folded, current, acts } = useActs(project, { onMake, onDelete });
  const [selected, select, selectNone] = useIds();
  const grid = useRef<HTMLDivElement>(null);
  const go = useGo(path);
  const shown = useMemo(() => rows(branches, folded), [branches, folded]);
  const at = Math.max(0, shown.findIndex(({ branch }) => branch.id === current));
  const chosen = branches.filter(({ id }) => selected.has(id));
  const why = rights.why("branch:write");

  const hear = (event: KeyboardEvent) => {
    const row = shown[at];
    if (!row || (event.target as HTMLElement).dataset["branch"] === undefined) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { branch } = row;
    const keys: Record<string, () => unknown> = {
      ...moves(grid.current, shown, at, folded.has(branch.id), () => acts.fold(branch.id)),
      Enter: () => go(branch, "overview"),
      d: () => go(branch, "diff"),
      x: () => select(branch.id),
      b: () => !why && onMake(branch),
      s: () => !why && acts.turn(branch),
      Delete: () => !why && onDelete(chosen.length > 0 ? chosen : [branch]),
    };
    const heard = keys[event.key];
    if (!heard) return;
    event.preventDefault();
    event.stopPropagation();
    heard();
  };

  return (
    <>
      {chosen.length > 0 && (
        <Selection count={chosen.length} why={why} onNone={selectNone} onDelete={() => onDelete(chosen)} />
      )}
      {/* biome-ignore lint: the rows have the focus, one at a time */}
      <div className="tree card" role="treegrid" aria-label="Branches" ref={grid} onKeyDown={hear}>
        <Head />
        {shown.map((row, index) => (
          <BranchRow
            key={row.branch.id}
            branch={row.branch}
            depth={row.depth}
            below={row.below}
            hasChildren={row.children > 0}
            lines={row.goesOn.map((goesOn) => (goesOn ? "1" : "0")).join("")}
            isFolded={folded.has(row.branch.id)}
            isSelected={selected.has(row.branch.id)}
            hasFocus={index === at}
            isFirst={index < FIRST}
            path={path}
            why={why}
            acts={acts}
          />
        ))}
      </div>
    </>
  );
}

/** Leads to a page of a branch. */
function useGo({ organizationID, projectID }: InProject) {
  const navigate = useNavigate();
  return ({ id }: BranchInTree, page: "overview" | "diff") =>
    navigate({
      to: `/orgs/$org/projects/$project/branches/$branch/${page}`,
      params: { org: organizationID, project: projectID, branch: id },
    });
}

interface SelectionProps {
  count: number;
  why: string | undefined;
  onNone: () => void;
  onDelete: () => void;
}

/** What can be done with all that are selected. */
function Selection({ count, why, onNone, onDelete }: SelectionProps) {
  return (
    <div className="band selection" role="status">
      <p>{counted(count, "branch", "branches")} selected</p>
      <Button onClick={onNone}>None</Button>
      <Button kind="danger" why={why} onClick={onDelete}>
        Delete {count}
      </Button>
    </div>
  );
}

/** What the keys do that lead from row to row. */
function moves(
  grid: HTMLElement | null,
  shown: readonly Row<BranchInTree>[],
  at: number,
  isFolded: boolean,
  fold: () => void,
): Record<string, () => unknown> {
  const row = shown[at];
  const focus = (index: number) => {
    const id = shown[Math.min(Math.max(index, 0), shown.length - 1)]?.branch.id;
    if (id) grid?.querySelector<HTMLElement>(`[data-branch="${id}"]`)?.focus();
  };
  const hasChildren = (row?.children ?? 0) > 0;
  return {
    ArrowDown: () => focus(at + 1),
    ArrowUp: () => focus(at - 1),
    Home: () => focus(0),
    End: () => focus(shown.length - 1),
    ArrowLeft: () =>
      hasChildren && !isFolded ? fold() : focus(shown.findIndex(({ branch }) => branch.id === row?.branch.parentID)),
    ArrowRight: () => (isFolded ? fold() : hasChildren && focus(at + 1)),
  };
}

function Head() {
  return (
    <div className="tree-head" role="row">
      {["Branch", "State", "Why", "Own data", "Made"].map((name) => (
        <span key={name} role="columnheader">
          {name}
        </span>
      ))}
      <span role="columnheader">
        <span className="hidden-visually">What to do with it</span>
      </span>
    </div>
  );
}
