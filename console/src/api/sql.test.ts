import { expect, test, vi } from "vitest";

// What the client looks at when it is loaded.
vi.stubGlobal("document", { baseURI: "http://localhost/console/" });
vi.stubGlobal("location", { origin: "http://localhost", pathname: "/console/", search: "" });

const { catalogueQuery } = await import("./sql");

test("what the page asks by itself is asked with names of the catalogue only, and changes nothing", async () => {
  const asked = vi.fn(async (_address: string) => Response.json({ results: [], inTransaction: false }));
  vi.stubGlobal("fetch", asked);
  const query = catalogueQuery({ organizationID: "o", projectID: "p", branchID: "b" });
  await (query.queryFn as (context: object) => Promise<unknown>)({ signal: undefined });
  expect(asked).toHaveBeenCalledOnce();
  const [address] = asked.mock.calls[0] ?? [""];
  expect(address).toMatch(/[?&]readOnly=true&.*&catalogueOnly=true$/);
});
