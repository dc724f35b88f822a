import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, memo, useCallback, useMemo, useRef, useState } from "react";
import { updateBranch } from "../../api/changes";
import type { Schemas } from "../../api/client";
import type { InProject } from "../../api/queries";
import type { Rights } from "../../api/rights";
import { counted } from "../../lib/amounts";
import { rows } from "../../lib/tree";
import { Button } from "../../ui/parts";
import { tellError } from "../../ui/toasts";
import { BranchRow } from "./BranchRow";

export type BranchInTree = Schemas["BranchInTree"];

interface TreeProps {
  path: InProject;
  branches: readonly BranchInTree[];
  rights: Rights;
  onMake: (from: BranchInTree) => void;
  onDelete: (branches: BranchInTree[]) => void;
}

const Row = memo(BranchRow);

/** Who was made from whom, and what each is doing. One row has the focus; keys act on it. */
export function Tree({ path, branches, rights, onMake, onDelete }: TreeProps) {
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [current, setCurrent] = useState<string>();
  const grid = useRef<HTMLDivElement>(null);
  const navigate = useNavigate();
  const shown = useMemo(() => rows(branches, folded), [branches, folded]);
  const at = Math.max(0, shown.findIndex(({ branch }) => branch.id === current));
  const chosen = branches.filter(({ id }) => selected.has(id));

  const focus = (index: number) => {
    const id = shown[Math.min(Math.max(index, 0), shown.length - 1)]?.branch.id;
    if (id) grid.current?.querySelector<HTMLElement>(`[data-branch="${id}"]`)?.focus();
  };
  const toggle = useCallback((set: typeof setFolded, id: string) => {
    set((before) => {
      const after = new Set(before);
      if (!after.delete(id)) after.add(id);
      return after;
    });
  }, []);
  const sleepOrWake = useCallback(
    (branch: BranchInTree) => {
      const hibernate = branch.statusType === "STATUS_TYPE_HEALTHY";
      updateBranch({ ...path, branchID: branch.id }, { hibernate }).catch(tellError);
    },
    [path.organizationID, path.projectID],
  );
  const open = (branch: BranchInTree) =>
    void navigate({
      to: "/orgs/$org/projects/$project/branches/$branch/overview",
      params: { org: path.organizationID, project: path.projectID, branch: branch.id },
    });

  const hear = (event: KeyboardEvent) => {
    const row = shown[at];
    if (!row || (event.target as HTMLElement).dataset["branch"] === undefined) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { branch } = row;
    const isFolded = folded.has(branch.id);
    const mayWrite = !rights.why("branch:write");
    const up = () => focus(shown.findIndex((other) => other.branch.id === branch.parentID));
    const keys: Record<string, () => void> = {
      ArrowDown: () => focus(at + 1),
      ArrowUp: () => focus(at - 1),
      Home: () => focus(0),
      End: () => focus(shown.length - 1),
      ArrowLeft: () => (row.children > 0 && !isFolded ? toggle(setFolded, branch.id) : up()),
      ArrowRight: () => (isFolded ? toggle(setFolded, branch.id) : row.children > 0 && focus(at + 1)),
      Enter: () => open(branch),
      x: () => toggle(setSelected, branch.id),
      b: () => mayWrite && onMake(branch),
      s: () => mayWrite && sleepOrWake(branch),
      Delete: () => mayWrite && onDelete(chosen.length > 0 ? chosen : [branch]),
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
          <Button onClick={() => setSelected(new Set())}>None</Button>
          <Button kind="danger" why={rights.why("branch:write")} onClick={() => onDelete(chosen)}>
            Delete {chosen.length}
          </Button>
        </div>
      )}
      {/* biome-ignore lint: the rows have the focus, one at a time */}
      <div className="tree card" role="treegrid" aria-label="Branches" ref={grid} onKeyDown={hear}>
        <div className="tree-head" role="row">
          <span role="columnheader">Branch</span>
          <span role="columnheader">State</span>
          <span role="columnheader">Why</span>
          <span role="columnheader">Data</span>
          <span role="columnheader">Made</span>
          <span role="columnheader">
            <span className="hidden-visually">What to do with it</span>
          </span>
        </div>
        {shown.map((row, index) => (
          <Row
            key={row.branch.id}
            branch={row.branch}
            depth={row.depth}
            below={row.below}
            hasChildren={row.children > 0}
            lines={row.goesOn.map((goesOn) => (goesOn ? "1" : "0")).join("")}
            isFolded={folded.has(row.branch.id)}
            isSelected={selected.has(row.branch.id)}
            hasFocus={index === at}
            path={path}
            why={rights.why("branch:write")}
            onFold={() => toggle(setFolded, row.branch.id)}
            onFocus={setCurrent}
            onMake={onMake}
            onSleepOrWake={sleepOrWake}
            onDelete={onDelete}
          />
        ))}
      </div>
    </>
  );
}
