// Where everything is. A screen is loaded when somebody goes there.
import type { FetchQueryOptions, QueryKey } from "@tanstack/react-query";
import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { branchQuery, projectQuery, projectsQuery, queryClient, sessionQuery, treeQuery } from "../api/queries";
import { Boot } from "./Boot";
import { Broken, Missing } from "./Broken";
import { Home } from "./Home";
import type { AuditSearch } from "../features/audit/Audit";
import type { DiffSearch } from "../features/diff/Diff";
import type { LogSearch } from "../features/logs/Logs";
import type { MetricsSearch } from "../features/metrics/Metrics";
import type { ParameterSearch } from "../features/parameters/Parameters";
import type { TablesSearch } from "../features/tables/Tables";
import type { UsageSearch } from "../features/usage/Usage";
import { Shell } from "./Shell";
import { SignedIn } from "./SignedIn";

/** Asks for what will be shown; whoever shows it says what went wrong. */
function ahead<Data, Key extends QueryKey>(query: FetchQueryOptions<Data, Error, Data, Key>) {
  void queryClient.prefetchQuery(query);
}

/** What an address says of these, as far as it says something. */
function texts<Name extends string>(search: Record<string, unknown>, ...names: Name[]): Partial<Record<Name, string>> {
  const said = names.flatMap((name) => {
    const value = search[name];
    return typeof value === "string" && value !== "" ? [[name, value] as const] : [];
  });
  return Object.fromEntries(said) as Partial<Record<Name, string>>;
}

// What a place shows is asked for as soon as it is known where somebody goes, beside the code that shows it.
const root = createRootRoute({
  component: Boot,
  notFoundComponent: Missing,
  loader: () => ahead(sessionQuery),
});

const home = createRoute({ getParentRoute: () => root, path: "/", component: Home });
const organization = createRoute({
  getParentRoute: () => root,
  path: "/orgs/$org",
  component: Shell,
  loader: ({ params }) => ahead(projectsQuery({ organizationID: params.org })),
});
const organizationIndex = createRoute({
  getParentRoute: () => organization,
  path: "/",
  beforeLoad: ({ params }) => {
    throw redirect({ to: "/orgs/$org/projects", params, replace: true });
  },
});
const projects = createRoute({
  getParentRoute: () => organization,
  path: "projects",
  component: lazyRouteComponent(() => import("../features/projects/Projects"), "Projects"),
});
const project = createRoute({
  getParentRoute: () => organization,
  path: "projects/$project",
  loader: ({ params }) => {
    const path = { organizationID: params.org, projectID: params.project };
    ahead(projectQuery(path));
    ahead(treeQuery(path));
  },
});
const projectIndex = createRoute({
  getParentRoute: () => project,
  path: "/",
  beforeLoad: ({ params }) => {
    throw redirect({ to: "/orgs/$org/projects/$project/branches", params, replace: true });
  },
});
const branches = createRoute({
  getParentRoute: () => project,
  path: "branches",
  component: lazyRouteComponent(() => import("../features/branches/Branches"), "Branches"),
  validateSearch: (search): { find?: string } => texts(search, "find"),
});
const branch = createRoute({
  getParentRoute: () => project,
  path: "branches/$branch",
  loader: ({ params }) =>
    ahead(branchQuery({ organizationID: params.org, projectID: params.project, branchID: params.branch })),
});
const branchIndex = createRoute({
  getParentRoute: () => branch,
  path: "/",
  beforeLoad: ({ params }) => {
    throw redirect({ to: "/orgs/$org/projects/$project/branches/$branch/overview", params, replace: true });
  },
});
const overview = createRoute({
  getParentRoute: () => branch,
  path: "overview",
  component: lazyRouteComponent(() => import("../features/overview/Overview"), "Overview"),
});

const sql = createRoute({
  getParentRoute: () => branch,
  path: "sql",
  component: lazyRouteComponent(() => import("../features/sql/Sql"), "Sql"),
});
const tables = createRoute({
  getParentRoute: () => branch,
  path: "tables",
  component: lazyRouteComponent(() => import("../features/tables/Tables"), "Tables"),
  validateSearch: (search): TablesSearch => ({
    ...texts(search, "table", "order"),
    ...(search["down"] === true && { down: true }),
  }),
});
const diff = createRoute({
  getParentRoute: () => branch,
  path: "diff",
  component: lazyRouteComponent(() => import("../features/diff/Diff"), "Diff"),
  validateSearch: (search): DiffSearch => texts(search, "against", "object"),
});
const metrics = createRoute({
  getParentRoute: () => branch,
  path: "metrics",
  component: lazyRouteComponent(() => import("../features/metrics/Metrics"), "Metrics"),
  validateSearch: (search): MetricsSearch => ({
    ...texts(search, "instance"),
    ...(Number(search["span"]) > 0 && { span: Number(search["span"]) }),
    ...(Number(search["end"]) > 0 && { end: Number(search["end"]) }),
  }),
});
const logs = createRoute({
  getParentRoute: () => branch,
  path: "logs",
  component: lazyRouteComponent(() => import("../features/logs/Logs"), "Logs"),
  validateSearch: (search): LogSearch => ({
    ...texts(search, "text", "level", "process", "instance"),
    ...(search["regex"] === true && { regex: true }),
    ...(Number(search["span"]) > 0 && { span: Number(search["span"]) }),
  }),
});
const parameters = createRoute({
  getParentRoute: () => branch,
  path: "parameters",
  component: lazyRouteComponent(() => import("../features/parameters/Parameters"), "Parameters"),
  validateSearch: (search): ParameterSearch => ({
    ...texts(search, "find"),
    ...(search["changed"] === true && { changed: true }),
  }),
});
const activity = createRoute({
  getParentRoute: () => branch,
  path: "activity",
  component: lazyRouteComponent(() => import("../features/activity/Activity"), "Activity"),
});
const backups = createRoute({
  getParentRoute: () => branch,
  path: "backups",
  component: lazyRouteComponent(() => import("../features/backups/Backups"), "Backups"),
});
const branchSettings = createRoute({
  getParentRoute: () => branch,
  path: "settings",
  component: lazyRouteComponent(() => import("../features/settings/BranchSettings"), "BranchSettings"),
});
const projectSettings = createRoute({
  getParentRoute: () => project,
  path: "settings",
  component: lazyRouteComponent(() => import("../features/settings/ProjectSettings"), "ProjectSettings"),
});
const organizationSettings = createRoute({
  getParentRoute: () => organization,
  path: "settings",
  component: lazyRouteComponent(() => import("../features/settings/OrganizationSettings"), "OrganizationSettings"),
});
const keys = createRoute({
  getParentRoute: () => organization,
  path: "keys",
  component: lazyRouteComponent(() => import("../features/keys/Keys"), "Keys"),
});
const people = createRoute({
  getParentRoute: () => organization,
  path: "people",
  component: lazyRouteComponent(() => import("../features/people/People"), "People"),
});
const audit = createRoute({
  getParentRoute: () => organization,
  path: "audit",
  component: lazyRouteComponent(() => import("../features/audit/Audit"), "Audit"),
  validateSearch: (search): AuditSearch => texts(search, "actor", "action"),
});

const usage = createRoute({
  getParentRoute: () => organization,
  path: "usage",
  component: lazyRouteComponent(() => import("../features/usage/Usage"), "Usage"),
  validateSearch: (search): UsageSearch => texts(search, "month", "by"),
});
const integrations = createRoute({
  getParentRoute: () => organization,
  path: "integrations",
  component: lazyRouteComponent(() => import("../features/integrations/Integrations"), "Integrations"),
});
const webhook = createRoute({
  getParentRoute: () => organization,
  path: "integrations/$webhook",
  component: lazyRouteComponent(() => import("../features/integrations/Webhook"), "WebhookPage"),
});

const signedIn = createRoute({ getParentRoute: () => root, path: "signed-in", component: SignedIn });

const tree = root.addChildren([
  home,
  signedIn,
  organization.addChildren([
    organizationIndex,
    projects,
    keys,
    people,
    audit,
    usage,
    integrations,
    webhook,
    organizationSettings,
    project.addChildren([
      projectIndex,
      branches,
      projectSettings,
      branch.addChildren([branchIndex, overview, sql, tables, diff, metrics, logs, parameters, activity, backups, branchSettings]),
    ]),
  ]),
]);

export const router = createRouter({
  routeTree: tree,
  basepath: new URL(document.baseURI).pathname.replace(/\/$/, ""),
  defaultErrorComponent: Broken,
  defaultPreload: "intent",
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
