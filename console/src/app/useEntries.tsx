// What Ctrl+K finds: branches, tables, pages and projects.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useRouter } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import type { Schemas } from "../api/client";
import { projectsQuery, treeQuery } from "../api/queries";
import { useRights } from "../api/rights";
import { catalogueQuery } from "../api/sql";
import { fullName, kindOf } from "../lib/tables";
import { State, stateOf } from "../ui/State";
import { pagesAt } from "./Rail";
import type { Where } from "./where";

export interface Entry {
  id: string;
  name: string;
  kind: string;
  end?: ReactNode;
  go: () => void;
}

/** All that can be gone to from here. */
export function useEntries(where: Where): Entry[] {
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
