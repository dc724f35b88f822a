import { useQuery } from "@tanstack/react-query";
import { useNavigate, useRouter } from "@tanstack/react-router";
import { type KeyboardEvent, type ReactNode, useEffect, useId, useMemo, useRef, useState } from "react";
import type { Schemas } from "../api/client";
import { projectsQuery, treeQuery } from "../api/queries";
import { best } from "../lib/find";
import { State, stateOf } from "../ui/State";
import { useRights } from "../api/rights";
import { catalogueQuery } from "../api/sql";
import { fullName, kindOf } from "../lib/tables";
import { pagesAt } from "./Rail";
import type { Where } from "./where";

interface Entry {
  id: string;
  name: string;
  kind: string;
  end?: ReactNode;
  go: () => void;
}

const SHOWN_MAX = 12;

/** Finds branches, projects and pages by a few letters. */
export function Palette({ where, onClose }: { where: Where; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const list = useId();
  useEffect(() => {
    const opened = dialog.current;
    opened?.showModal();
    return () => opened?.close();
  }, []);
  const entries = useEntries(where);
  const found = useMemo(() => best(entries, text, SHOWN_MAX), [entries, text]);
  const choose = (entry: Entry | undefined) => {
    if (!entry) return;
    onClose();
    entry.go();
  };
  const hear = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((at + step + found.length) % Math.max(1, found.length));
    else if (event.key === "Enter") choose(found[at]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog
      ref={dialog}
      className="palette"
      aria-label="Find and do"
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <input
        role="combobox"
        aria-expanded="true"
        aria-controls={list}
        aria-activedescendant={found[at] && `${list}-${at}`}
        aria-label="Find and do"
        placeholder="A branch, a table, a project, a page"
        spellCheck={false}
        autoComplete="off"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={hear}
      />
      <div id={list} role="listbox" aria-label="Found">
        {found.map((entry, index) => (
          // The field keeps the focus and hears the keys.
          <div
            key={entry.id}
            id={`${list}-${index}`}
            role="option"
            aria-selected={index === at}
            tabIndex={-1}
            onPointerMove={() => setAt(index)}
            onClick={() => choose(entry)}
            onKeyDown={hear}
          >
            <span className="name">{entry.name}</span>
            <span className="quiet">{entry.kind}</span>
            {entry.end}
          </div>
        ))}
      </div>
      {found.length === 0 && <p className="quiet nothing">Nothing is called that.</p>}
    </dialog>
  );
}

function useEntries(where: Where): Entry[] {
  const navigate = useNavigate();
  const router = useRouter();
  const inProject = { organizationID: where.org, projectID: where.project ?? "" };
  const tree = useQuery({ ...treeQuery(inProject), enabled: where.project !== undefined }).data;
  const projects = useQuery(projectsQuery(inProject)).data;
  const tables = useTables(where, tree?.branches);
  return useMemo(() => {
    const pages = pagesAt(where).flatMap(({ of, pages }) =>
      pages.map(({ name, to, key }) => ({
        id: to,
        name,
        kind: of,
        end: <kbd>g {key}</kbd>,
        go: () => void router.navigate({ to, params: where } as never),
      })),
    );
    const branches = (tree?.branches ?? []).map((branch) => ({
      id: branch.id,
      name: branch.name,
      kind: branch.description || "Branch",
      end: <State state={stateOf(branch.statusType)} isShort />,
      go: () =>
        void navigate({
          to: "/orgs/$org/projects/$project/branches/$branch/overview",
          params: { org: where.org, project: where.project ?? "", branch: branch.id },
        }),
    }));
    const others = (projects?.projects ?? []).map(({ id, name }) => ({
      id,
      name,
      kind: "Project",
      go: () =>
        void navigate({ to: "/orgs/$org/projects/$project/branches", params: { org: where.org, project: id } }),
    }));
    return [...branches, ...tables, ...pages, ...others];
  }, [where, tree, projects, tables, navigate, router]);
}

/** The tables of the branch one is at, if looking for them wakes nothing. */
function useTables(where: Where, branches: readonly Schemas["BranchInTree"][] | undefined): Entry[] {
  const navigate = useNavigate();
  const { org, project = "", branch = "" } = where;
  const at = branches?.find(({ id }) => id === branch);
  const isAwake = at !== undefined && stateOf(at.statusType) === "awake";
  const may = useRights(org).can("credentials:read");
  const path = { organizationID: org, projectID: project, branchID: branch };
  const relations = useQuery({ ...catalogueQuery(path), enabled: isAwake && may }).data?.relations;
  return useMemo(
    () =>
      (relations ?? []).map((relation) => ({
        id: `table ${relation.schema} ${relation.name}`,
        name: fullName(relation),
        kind: kindOf(relation.kind),
        go: () =>
          void navigate({
            to: "/orgs/$org/projects/$project/branches/$branch/tables",
            params: { org, project, branch },
            search: { table: fullName(relation) },
          }),
      })),
    [relations, org, project, branch, navigate],
  );
}
