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

/** Who was made from whom, and what each is doing. One row has the focus; keys act on it. */
export function Tree({ path, branches, rights, onMake, onDelete }: TreeProps) {
  const [folded, fold] = useIds();
  const [selected, select, selectNone] = useIds();
  const [current, setCurrent] = useState<string>();
  const grid = useRef<HTMLDivElement>(null);
  const navigate = useNavigate();
  const shown = useMemo(() => rows(branches, folded), [branches, folded]);
  const at = Math.max(0, shown.findIndex(({ branch }) => branch.id === current));
  const chosen = branches.filter(({ id }) => selected.has(id));
  const why = rights.why("branch:write");
  const { organizationID, projectID } = path;
  const inProject = useMemo(() => ({ organizationID, projectID }), [organizationID, projectID]);
  const asks = useRef({ onMake, onDelete });
  asks.current = { onMake, onDelete };
  const acts = useMemo(
    (): RowActs => ({
      fold,
      focus: setCurrent,
      make: (from) => asks.current.onMake(from),
      remove: (branch) => asks.current.onDelete([branch]),
      turn: ({ id, statusType }) => {
        const hibernate = statusType === "STATUS_TYPE_HEALTHY";
        updateBranch({ ...inProject, branchID: id }, { hibernate }).catch(tellError);
      },
    }),
    [fold, inProject],
  );

  const hear = (event: KeyboardEvent) => {
    const row = shown[at];
    if (!row || (event.target as HTMLElement).dataset["branch"] === undefined) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { branch } = row;
    const to = "/orgs/$org/projects/$project/branches/$branch/overview";
    const keys: Record<string, () => unknown> = {
      ...moves(grid.current, shown, at, folded.has(branch.id), () => fold(branch.id)),
      Enter: () => navigate({ to, params: { org: organizationID, project: projectID, branch: branch.id } }),
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
        <div className="band selection" role="status">
          <p>{counted(chosen.length, "branch", "branches")} selected</p>
          <Button onClick={selectNone}>None</Button>
          <Button kind="danger" why={why} onClick={() => onDelete(chosen)}>
            Delete {chosen.length}
          </Button>
        </div>
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
            path={inProject}
            why={why}
            acts={acts}
          />
        ))}
      </div>
    </>
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
