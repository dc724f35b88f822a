import { expect, test, vi } from "vitest";

// What the client looks at when it is loaded.
vi.stubGlobal("document", { baseURI: "http://localhost/console/" });
vi.stubGlobal("location", { origin: "http://localhost", pathname: "/console/", search: "" });

const queries = await import("./queries");

/** Why these are not asked for again within two seconds. */
const SELDOM: Record<string, string> = {
  choicesQuery: "what the installation offers changes with the installation",
  rolesQuery: "what roles there are, too",
  githubAppQuery: "so does its App",
  credentialsQuery: "a secret is not sent again and again",
  diffQuery: "it connects to branches",
  metricsQuery: "it is measured every 15 seconds",
  usageQuery: "it is counted by the hour",
  invoicesQuery: "there is one a month",
  upcomingInvoiceQuery: "it is counted by the hour, too",
  repositoryQuery: "one for each project is asked for on one page",
};

interface Asked {
  queryKey: unknown[];
  refetchInterval?: unknown;
}

test("what others change is asked for again within two seconds", () => {
  const path = { organizationID: "o", projectID: "p", branchID: "b", webhookID: "w" };
  const question = { span: 1, contains: "", level: "", process: "", month: "2026-01", groupBy: "" };
  let count = 0;
  for (const [name, query] of Object.entries(queries)) {
    if (!name.endsWith("Query")) continue;
    const make = query as unknown as (path: object, question: object, isFollowed: boolean) => Asked;
    const asked = typeof query === "function" ? make(path, question, true) : (query as unknown as Asked);
    const every = asked.refetchInterval;
    const interval = typeof every === "function" ? every({ state: { data: undefined } }) : every;
    if (name in SELDOM) continue;
    expect(interval, name).toBeGreaterThan(0);
    expect(interval, name).toBeLessThan(2000);
    count += 1;
  }
  expect(count).toBeGreaterThan(15);
});
