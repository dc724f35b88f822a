// What people see of what others do, and of what the server does, while they only look on.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { api, heading, leave, look, told } from "../browser.mjs";
import { branchNamed, project, signedIn, until } from "../console.mjs";

const organization = `/organizations/${told.organization}`;

// A page at a place of the organization, with its heading.
async function at(page, place, name) {
  await page.goto(`${told.url}/console/orgs/${told.organization}/${place}`);
  await heading(page, name);
}

export async function what_others_do_is_seen_on_every_list(browser) {
  const page = await signedIn(browser, `orgs/${told.organization}/projects`);
  await heading(page, "Projects");
  const grove = await api(`${organization}/projects`, { method: "POST", body: { name: "grove" } });
  await page.getByRole("link", { name: "grove" }).waitFor();
  await api(`${organization}/projects/${grove.id}`, { method: "PATCH", body: { name: "orchard" } });
  await page.getByRole("link", { name: "orchard" }).waitFor();
  await api(`${organization}/projects/${grove.id}`, { method: "DELETE" });
  await page.getByRole("link", { name: "orchard" }).waitFor({ state: "detached" });

  await at(page, "keys", "Keys");
  const body = { name: "of somebody else", scopes: ["org:read"] };
  const { key } = await api(`${organization}/api-keys`, { method: "POST", body });
  const row = (name) => page.getByRole("row", { name });
  await row(/of somebody else/).waitFor();
  await api(`${organization}/api-keys`, { method: "DELETE", body: { ids: [key.id] } });
  await row(/of somebody else/).waitFor({ state: "detached" });

  await at(page, "people", "People");
  const asked = { email: "hazel@example.com", role: "viewer" };
  const { id } = await api(`${organization}/invitations`, { method: "POST", body: asked });
  await row(/hazel@example.com/).waitFor();
  await api(`${organization}/invitations/${id}`, { method: "DELETE" });
  await row(/hazel@example.com/).waitFor({ state: "detached" });

  // Which names it already, and goes on while one looks.
  await at(page, "audit", "Audit log");
  await page.getByText("hazel@example.com").or(page.getByText("deleteInvitation")).first().waitFor();
  const before = await page.getByRole("row").count();
  await api(`${organization}/api-keys`, { method: "POST", body: { ...body, name: "once more" } });
  await until("the log goes on", async () => (await page.getByRole("row").count()) > before);

  await at(page, "usage", "Usage");
  const subject = (await project()).split("/").at(-1);
  await page.getByText("None. With one, branches sleep").waitFor();
  await api(`${organization}/budgets/${subject}`, { method: "PUT", body: { limit: "5000" } });
  await page.getByRole("region", { name: "Budgets" }).getByRole("row", { name: /default/ }).waitFor();
  await api(`${organization}/budgets/${subject}`, { method: "DELETE" });
  await page.getByText("None. With one, branches sleep").waitFor();

  const main = await branchNamed("main");
  const inProject = (await project()).replace(organization, "").slice(1);
  await at(page, `${inProject}/branches/${main.id}/parameters`, "Parameters");
  const parameter = page.getByLabel("work_mem", { exact: true });
  await parameter.waitFor();
  const change = (value) => ({ method: "PATCH", body: { postgresConfigurationParameters: { work_mem: value } } });
  await api(`${await project()}/branches/${main.id}`, change("12MB"));
  await until("it shows the new value", async () => (await parameter.inputValue()) === "12MB");
  await at(page, `${inProject}/branches/${main.id}/activity`, "Activity");
  await page.getByText("Nobody.").waitFor();
  const held = page.request.post(`${told.url}/console/api${await project()}/branches/${main.id}/sql`, {
    headers: { "X-Coppice-Console": "1" },
    data: { query: "select pg_sleep(5)" },
  });
  await page.getByRole("cell", { name: "Coppice console" }).waitFor();
  assert.equal((await held).status(), 200);
  await page.getByText("Nobody.").waitFor();
  await leave(page);
}

export async function a_tab_that_is_open_keeps_nothing_awake(browser) {
  const main = await branchNamed("main");
  const body = { scaleToZero: { enabled: true, inactivityPeriodMinutes: 1 } };
  await api(`${await project()}/branches/${main.id}`, { method: "PATCH", body });
  const inProject = (await project()).replace("/organizations", "orgs");
  const page = await signedIn(browser, `${inProject}/branches/${main.id}/activity`);
  await heading(page, "Activity");
  const others = [];
  for (const screen of ["overview", "metrics", "logs", "parameters", "backups"]) {
    const tab = await page.context().newPage();
    await tab.goto(`${told.url}/console/${inProject}/branches/${main.id}/${screen}`);
    await tab.getByRole("heading", { level: 1 }).waitFor();
    others.push(tab);
  }
  await until("it sleeps", async () => (await branchNamed("main")).statusType === "STATUS_TYPE_HIBERNATED");
  await page.bringToFront();
  await page.getByText("fell asleep: nobody used it").waitFor();
  for (const tab of others) await tab.close();
  await leave(page);
}

export async function a_server_that_is_killed_is_told_and_comes_back(browser) {
  const place = `${(await project()).replace("/organizations", "orgs")}/branches`;
  const page = await signedIn(browser, place);
  const row = page.getByRole("row", { name: /main/ });
  await row.waitFor();
  process.kill(told.others.server, "SIGKILL");
  const note = page.getByText("What you see is from before");
  await note.waitFor();
  assert.equal(await page.getByText("can't be reached").count(), 1, "it is said once");
  assert.equal(await row.count(), 1);
  await look(page, "console-server-away");
  // The test starts it again, where it was.
  writeFileSync(told.others.seen, "");
  await note.waitFor({ state: "detached" });
  await until("it answers", () => branchNamed("main").catch(() => null));
  await api(`${await project()}/branches`, {
    method: "POST",
    body: { mode: "inherit", name: "after", parentID: (await branchNamed("main")).id },
  });
  await page.getByRole("row", { name: /after/ }).waitFor();
  page.complaints = page.complaints.filter((complaint) => !/ERR_(CONNECTION|EMPTY|SOCKET)/.test(complaint));
  await leave(page);
}
