// What is asked, how often, and under which key it is kept.
import { infiniteQueryOptions, keepPreviousData, QueryClient, queryOptions } from "@tanstack/react-query";
import { ApiError, Unreachable } from "../lib/errors";
import { monthOf } from "../lib/usage";
import { api, getGithubApp, getSession, type Schemas, take } from "./client";

const SECOND = 1000;
/** How soon what others do is seen, wherever it is shown; sooner while something is on its way. */
const WATCH = 1.75 * SECOND;
const WATCH_CLOSELY = SECOND / 2;

/** What may go well if it is only tried again. */
function isPassing(error: Error) {
  return error instanceof Unreachable || (error instanceof ApiError && error.status >= 500);
}

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 10 * SECOND,
      retry: (count, error) => isPassing(error) && count < 2,
      retryDelay: (count) => 500 * 2 ** count,
      throwOnError: false,
    },
    mutations: { retry: false },
  },
});

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: getSession,
  staleTime: 60 * SECOND,
  refetchInterval: WATCH,
});

export interface InOrganization {
  organizationID: string;
}
export interface InProject extends InOrganization {
  projectID: string;
}
export interface InBranch extends InProject {
  branchID: string;
}

export const projectsQuery = ({ organizationID }: InOrganization) =>
  queryOptions({
    queryKey: ["projects", { organizationID }],
    queryFn: () => take(api.GET("/organizations/{organizationID}/projects", { params: { path: { organizationID } } })),
    refetchInterval: WATCH,
  });

export const projectQuery = (path: InProject) =>
  queryOptions({
    queryKey: ["project", path],
    queryFn: () => take(api.GET("/organizations/{organizationID}/projects/{projectID}", { params: { path } })),
    refetchInterval: WATCH,
  });

export const treeQuery = (path: InProject) =>
  queryOptions({
    queryKey: ["tree", path],
    queryFn: () => take(api.GET("/organizations/{organizationID}/projects/{projectID}/tree", { params: { path } })),
    refetchInterval: ({ state }) => {
      const branches = state.data?.branches ?? [];
      const moves = branches.some((branch) => branch.statusType === "STATUS_TYPE_TRANSIENT");
      return moves ? WATCH_CLOSELY : WATCH;
    },
  });

export const trashQuery = (path: InProject) =>
  queryOptions({
    queryKey: ["trash", path],
    queryFn: () => take(api.GET("/organizations/{organizationID}/projects/{projectID}/trash", { params: { path } })),
    refetchInterval: WATCH,
  });

const BRANCH = "/organizations/{organizationID}/projects/{projectID}/branches/{branchID}";

export const branchQuery = (path: InBranch) =>
  queryOptions({
    queryKey: ["branch", path],
    queryFn: () => take(api.GET(BRANCH, { params: { path } })),
    refetchInterval: ({ state }) =>
      state.data?.status.statusType === "STATUS_TYPE_TRANSIENT" ? WATCH_CLOSELY : WATCH,
  });

/** Kept as long as it is shown, and asked for again by whoever comes back to it. */
export const credentialsQuery = (path: InBranch) =>
  queryOptions({
    queryKey: ["credentials", path],
    queryFn: () => take(api.GET(`${BRANCH}/credentials`, { params: { path } })),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
    // Somebody may have changed the password meanwhile.
    refetchOnWindowFocus: "always",
  });

export const choicesQuery = (path: InOrganization) =>
  queryOptions({
    queryKey: ["choices", path],
    queryFn: async () => {
      const at = { params: { path } };
      const [regions, images, types] = await Promise.all([
        take(api.GET("/organizations/{organizationID}/regions", at)),
        take(api.GET("/organizations/{organizationID}/images", at)),
        take(api.GET("/organizations/{organizationID}/instanceTypes", at)),
      ]);
      return { regions: regions.regions, images: images.images, types: types.instanceTypes };
    },
    staleTime: 600 * SECOND,
  });

export const parametersQuery = (path: InBranch) =>
  queryOptions({
    queryKey: ["parameters", path],
    queryFn: () => take(api.GET(`${BRANCH}/postgres-config`, { params: { path } })),
    refetchInterval: WATCH,
  });

/** It wakes both branches, so it is asked when somebody says so. */
export const diffQuery = (path: InBranch, against: string) =>
  queryOptions({
    queryKey: ["diff", path, against],
    queryFn: () => take(api.GET(`${BRANCH}/diff`, { params: { path, query: { against, bytes: true } } })),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
    retry: false,
    refetchOnWindowFocus: false,
  });

export const activityQuery = (path: InBranch) =>
  queryOptions({
    queryKey: ["activity", path],
    queryFn: () => take(api.GET(`${BRANCH}/activity`, { params: { path } })),
    refetchInterval: WATCH,
  });

export const historyQuery = (path: InBranch) =>
  queryOptions({
    queryKey: ["history", path],
    queryFn: () => take(api.GET(`${BRANCH}/history`, { params: { path } })),
    refetchInterval: WATCH,
  });

/** From when to when it can be restored. */
export const backupQuery = ({ branchID: backupID, ...project }: InBranch) =>
  queryOptions({
    queryKey: ["backup", project, backupID],
    queryFn: () =>
      take(
        api.GET("/organizations/{organizationID}/projects/{projectID}/backups/{backupID}", {
          params: { path: { ...project, backupID } },
        }),
      ),
    refetchInterval: WATCH,
  });

export interface LogQuestion {
  /** How far back, in milliseconds. */
  span: number;
  contains: string;
  /** Whether that is a regular expression. */
  isRegex: boolean;
  level: string;
  process: string;
  /** The id of one; empty is every one. */
  instance: string;
}

/** Newest first, and on from there by cursor. */
export const logsQuery = (path: InBranch, question: LogQuestion, isFollowed: boolean) =>
  infiniteQueryOptions({
    queryKey: ["logs", path, question],
    initialPageParam: { cursor: null as string | null, end: "" },
    queryFn: ({ pageParam }) => {
      const end = pageParam.end || new Date().toISOString();
      const start = new Date(Date.parse(end) - question.span).toISOString();
      const filters: Schemas["LogFilter"][] = [];
      if (question.contains) {
        filters.push({ field: "body", op: question.isRegex ? "iregex" : "icontains", value: question.contains });
      }
      if (question.level) filters.push({ field: "level", op: "in", values: question.level.split(",") });
      if (question.instance) filters.push({ field: "instance", op: "in", values: [question.instance] });
      if (question.process) filters.push({ field: "process", op: "icontains", value: question.process });
      const body = { start, end, filters, limit: 200, cursor: pageParam.cursor };
      return take(api.POST(`${BRANCH}/logs`, { params: { path }, body }));
    },
    getNextPageParam: (last) => (last.nextCursor ? { cursor: last.nextCursor, end: last.end } : undefined),
    refetchInterval: isFollowed ? WATCH : false,
  });

export interface MetricsQuestion {
  instance: string;
  /** Milliseconds since 1970; none is now. */
  end?: number | undefined;
  span: number;
}

export const metricsQuery = (path: InBranch, metrics: Schemas["MetricName"][], question: MetricsQuestion) =>
  queryOptions({
    queryKey: ["metrics", path, question],
    queryFn: () => {
      const end = question.end ?? Date.now();
      const body = {
        start: new Date(end - question.span).toISOString(),
        end: new Date(end).toISOString(),
        metrics,
        instances: [question.instance],
        aggregations: ["avg" as const],
      };
      return take(api.POST(`${BRANCH}/metrics`, { params: { path }, body }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: question.end === undefined ? 15 * SECOND : false,
  });

const ORGANIZATION = "/organizations/{organizationID}";

export const organizationQuery = (path: InOrganization) =>
  queryOptions({
    queryKey: ["organization", path],
    queryFn: () => take(api.GET(ORGANIZATION, { params: { path } })),
    refetchInterval: WATCH,
  });

export const keysQuery = (path: InOrganization) =>
  queryOptions({
    queryKey: ["keys", path],
    queryFn: () => take(api.GET(`${ORGANIZATION}/api-keys`, { params: { path } })),
    refetchInterval: WATCH,
  });

export const ownKeysQuery = queryOptions({
  queryKey: ["own-keys"],
  queryFn: () => take(api.GET("/api-keys")),
  refetchInterval: WATCH,
});

export const peopleQuery = (path: InOrganization) =>
  queryOptions({
    queryKey: ["people", path],
    queryFn: () => take(api.GET(`${ORGANIZATION}/members`, { params: { path } })),
    refetchInterval: WATCH,
  });

export const rolesQuery = (path: InOrganization) =>
  queryOptions({
    queryKey: ["roles", path],
    queryFn: () => take(api.GET(`${ORGANIZATION}/roles`, { params: { path } })),
    staleTime: 600 * SECOND,
  });

export const invitationsQuery = (path: InOrganization) =>
  queryOptions({
    queryKey: ["invitations", path],
    queryFn: () => take(api.GET(`${ORGANIZATION}/invitations`, { params: { path } })),
    refetchInterval: WATCH,
  });

export interface UsageQuestion {
  /** A month of UTC, like 2026-01. */
  month: string;
  groupBy: string;
}

export const usageQuery = (path: InOrganization, { month, groupBy }: UsageQuestion) =>
  queryOptions({
    queryKey: ["usage", path, month, groupBy],
    queryFn: () => {
      const [from, to] = monthOf(month);
      // It can also be had as a table.
      const asked = api.GET(`${ORGANIZATION}/usage`, { params: { path, query: { from, to, groupBy } } });
      return take(asked as Promise<{ data?: Schemas["Usage"] }>);
    },
    placeholderData: keepPreviousData,
    refetchInterval: 60 * SECOND,
  });

export const budgetsQuery = (path: InOrganization) =>
  queryOptions({
    queryKey: ["budgets", path],
    queryFn: () => take(api.GET(`${ORGANIZATION}/budgets`, { params: { path } })),
    refetchInterval: WATCH,
  });

export const invoicesQuery = (path: InOrganization) =>
  infiniteQueryOptions({
    queryKey: ["invoices", path],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam }) => {
      const query = { limit: 24, ...(pageParam && { cursor: pageParam }) };
      return take(api.GET(`${ORGANIZATION}/billing/invoices`, { params: { path, query } }));
    },
    getNextPageParam: (last) => last.pagination_metadata.next_cursor ?? undefined,
  });

/** How an organization is billed. */
export const customerQuery = (path: InOrganization) =>
  queryOptions({
    queryKey: ["customer", path],
    queryFn: () => take(api.GET(`${ORGANIZATION}/billing/customer`, { params: { path } })),
    refetchInterval: WATCH,
  });

/** What this month would cost if it were over now; null where nobody is charged yet. */
export const upcomingInvoiceQuery = (path: InOrganization) =>
  queryOptions({
    queryKey: ["upcoming", path],
    queryFn: () =>
      take(api.GET(`${ORGANIZATION}/billing/invoices/upcoming`, { params: { path } })).catch((error: unknown) => {
        if (error instanceof ApiError && error.id === "invoice_not_found") return null;
        throw error;
      }),
    refetchInterval: 60 * SECOND,
  });

/** An invoice as a PDF. */
export const invoiceSheet = (path: InOrganization & { invoiceID: string }): Promise<Blob> =>
  take(
    api.GET(`${ORGANIZATION}/billing/invoices/{invoiceID}`, {
      params: { path, query: { format: "pdf" } },
      parseAs: "blob",
    }) as Promise<{ data?: Blob }>,
  );

export interface AuditQuestion {
  actor?: string | undefined;
  action?: string | undefined;
}

export const auditQuery = (path: InOrganization, question: AuditQuestion) =>
  infiniteQueryOptions({
    queryKey: ["audit", path, question],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam }) => {
      const asked = { ...question, cursor: pageParam, limit: 100 };
      const query = Object.fromEntries(Object.entries(asked).filter(([, value]) => value));
      return take(api.GET(`${ORGANIZATION}/audit-log`, { params: { path, query } }));
    },
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    // Whoever reads on in it looks at what was: all pages again would be much for nothing.
    refetchInterval: ({ state }) => ((state.data?.pages.length ?? 0) > 1 ? false : WATCH),
  });

export const githubAppQuery = queryOptions({
  queryKey: ["github-app"],
  queryFn: getGithubApp,
  staleTime: 60 * SECOND,
  retry: false,
});

export const installationsQuery = (path: InOrganization) =>
  queryOptions({
    queryKey: ["installations", path],
    queryFn: () => take(api.GET(`${ORGANIZATION}/githubapp/installations`, { params: { path } })),
    // It is linked by the command, too.
    refetchInterval: WATCH,
  });

/** The repository of a project, by any of its branches. */
export const repositoryQuery = (path: InBranch) =>
  queryOptions({
    queryKey: ["repository", path],
    queryFn: () => take(api.GET(`${BRANCH}/githubapp/repository`, { params: { path } })),
    refetchInterval: 10 * SECOND,
  });

export const webhooksQuery = (path: InOrganization) =>
  queryOptions({
    queryKey: ["webhooks", path],
    queryFn: () => take(api.GET(`${ORGANIZATION}/webhooks`, { params: { path } })),
    refetchInterval: WATCH,
  });

export interface AtWebhook extends InOrganization {
  webhookID: string;
}

export const webhookQuery = (path: AtWebhook) =>
  queryOptions({
    queryKey: ["webhook", path],
    queryFn: () => take(api.GET(`${ORGANIZATION}/webhooks/{webhookID}`, { params: { path } })),
    refetchInterval: WATCH,
  });

export const deliveriesQuery = (path: AtWebhook) =>
  infiniteQueryOptions({
    queryKey: ["deliveries", path],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam }) => {
      const query = { limit: 50, ...(pageParam && { cursor: pageParam }) };
      return take(api.GET(`${ORGANIZATION}/webhooks/{webhookID}/deliveries`, { params: { path, query } }));
    },
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    refetchInterval: WATCH,
  });
