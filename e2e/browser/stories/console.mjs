// What people do with the console.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { api, heading, leave, look, person, signIn, told } from "../browser.mjs";
import { branchNamed, project, signedIn, signOut, until } from "../console.mjs";

// What a program called itself that connected before.
const LONG_NAME = "x".repeat(63);
const PASSWORD = "a stump with a new shoot";
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; " +
  "connect-src 'self'; form-action 'self'; base-uri 'self'; frame-ancestors 'none'; " +
  "require-trusted-types-for 'script'; trusted-types 'none'";

export async function a_link_signs_in_once(browser) {
  // What shows people a preview of a link looks at it, too.
  for (let time = 0; time < 2; time += 1) assert.equal((await fetch(told.link)).status, 200);
  const page = await person(browser);
  await page.goto(told.link);
  await heading(page, "Sign in");
  await look(page, "sign-in-link");
  await page.keyboard.press("Tab");
  await page.getByRole("button", { name: "Sign in" }).press("Enter");
  await heading(page, "Branches");
  await page.getByRole("row", { name: /main/ }).waitFor();
  await page.getByRole("region", { name: "First steps" }).getByText("Connect", { exact: true }).waitFor();
  await page.goto(told.link);
  await heading(page, "This link is of no use any more");
  await look(page, "sign-in-link-used");
  await leave(page);
}

export async function a_branch_is_made_and_deleted_by_the_keyboard(browser) {
  const page = await person(browser);
  await page.goto(`${told.url}/`);
  await signIn(page, told.email, told.password);
  await heading(page, "Branches");
  const row = (name) => page.getByRole("row", { name: new RegExp(name) });
  await row("main").waitFor();
  await look(page, "console-branches-one");

  await page.keyboard.press("b");
  await page.getByRole("dialog").waitFor();
  await look(page, "console-branch-new");
  await page.keyboard.type("preview/42");
  await page.keyboard.press("Enter");
  await row("preview/42").waitFor();
  await until("the branch is made", async () => (await branchNamed("preview/42"))?.statusType === "STATUS_TYPE_HEALTHY");

  // Two more, so that it is a tree, and one of them asleep: seen without asking.
  const parentID = (await branchNamed("preview/42")).id;
  for (const name of ["preview/42-fix", "nightly"]) {
    const body = { mode: "inherit", name, parentID: name === "nightly" ? (await branchNamed("main")).id : parentID, description: "for the pictures" };
    await api(`${await project()}/branches`, { method: "POST", body });
    await row(name).waitFor();
  }
  const nightly = await branchNamed("nightly");
  await until("it is up", async () => (await branchNamed("nightly")).statusType === "STATUS_TYPE_HEALTHY");
  await api(`${await project()}/branches/${nightly.id}`, { method: "PATCH", body: { hibernate: true } });
  await row("nightly").getByText("Asleep").waitFor();
  await until("all are up", async () => (await branchNamed("preview/42-fix")).statusType === "STATUS_TYPE_HEALTHY");
  await row("preview/42-fix").getByText("Awake").waitFor();
  for (const name of ["main", "preview/42-fix", "nightly"]) await row(name).getByText(/ own$/).waitFor();
  await look(page, "console-branches");

  // What it has that its parent has not.
  await row("preview/42-fix").focus();
  await page.keyboard.press("d");
  await heading(page, "Diff");
  await page.getByText("No difference in the schema").waitFor();
  await page.goBack();

  // What was not typed as it is called is not deleted.
  await row("main").focus();
  await page.keyboard.press("Delete");
  await page.getByRole("heading", { name: "Delete main?" }).waitFor();
  for (const typed of ["", "mai"]) {
    await page.keyboard.type(typed);
    await page.keyboard.press("Enter");
    assert.notEqual(await branchNamed("main"), undefined);
    assert.ok(await page.getByRole("dialog").isVisible());
  }
  await page.keyboard.press("Escape");

  // Down to the branch and up again, and away with it.
  await row("main").focus();
  await page.keyboard.press("End");
  await page.keyboard.press("Delete");
  await page.getByRole("dialog").waitFor();
  const name = await page.getByRole("heading", { name: /^Delete / }).textContent();
  await look(page, "console-branch-delete");
  const word = name.slice("Delete ".length, -1);
  await page.keyboard.type(word);
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal(await branchNamed(word), undefined);
  await several_are_deleted_by_their_count(page);

  await a_thousand_are_drawn_where_one_looks(page);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("main");
  await look(page, "console-palette");
  await page.keyboard.press("Enter");
  await heading(page, "main");
  await page.keyboard.press("?");
  await look(page, "console-keys");
  await page.keyboard.press("Escape");
  await leave(page);
}

async function several_are_deleted_by_their_count(page) {
  const main = await branchNamed("main");
  const names = ["felled-1", "felled-2"];
  for (const name of names) {
    await api(`${await project()}/branches`, { method: "POST", body: { mode: "inherit", name, parentID: main.id } });
    await page.getByRole("row", { name: new RegExp(name) }).focus();
    await page.keyboard.press("x");
  }
  await page.getByRole("status").filter({ hasText: "2 branches selected" }).waitFor();
  await page.keyboard.press("Delete");
  await page.getByRole("heading", { name: "Delete 2 branches?" }).waitFor();
  await page.keyboard.type("2");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  for (const name of names) assert.equal(await branchNamed(name), undefined);
}

// As the server tells of the one branch, a thousand times, fifty of them each from the one before: what that
// costs is drawing them.
async function a_thousand_are_drawn_where_one_looks(page) {
  await page.route("**/tree", async (route) => {
    const { branches } = await (await route.fetch()).json();
    const [main] = branches;
    const parentOf = (at) => (at > 0 && at < 50 ? `b${at - 1}` : main.id);
    const more = Array.from({ length: 1000 }, (_, at) => ({ ...main, id: `b${at}`, name: `b-${at}`, parentID: parentOf(at) }));
    await route.fulfill({ contentType: "application/json", body: JSON.stringify({ branches: [...branches, ...more] }) });
  });
  const last = page.getByRole("row", { name: /b-999/ });
  await last.waitFor();
  assert.equal(await last.getByRole("link").count(), 0, "out of view it is its name");
  await page.getByRole("row", { name: /main/ }).focus();
  await page.keyboard.press("End");
  await last.getByRole("link").waitFor();
  const drawn = page.getByRole("treegrid").getByRole("link");
  await until("those that are left are not drawn any more", async () => (await drawn.count()) < 100);
  await page.keyboard.press("Home");
  await page.getByRole("row", { name: /main/ }).getByRole("link").waitFor();
  await page.getByRole("row", { name: "b-48", exact: true }).focus();
  await page.keyboard.press("ArrowRight");
  const deepest = page.getByRole("row", { name: /^b-49( |$)/ });
  assert.equal(await deepest.getAttribute("aria-level"), "51");
  const state = await deepest.getByText("Awake").boundingBox();
  const name = await deepest.getByRole("link").boundingBox();
  assert.ok(name.x + name.width < state.x, "there is room for the name of the deepest");
  await page.setViewportSize({ width: 375, height: 740 });
  await deepest.scrollIntoViewIfNeeded();
  const { x, width } = await deepest.getByRole("link").boundingBox();
  assert.ok(x + width < 375, `its name begins at ${x}, out of sight`);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "it fits");
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.unrouteAll({ behavior: "wait" });
  await last.waitFor({ state: "detached" });
}

export async function a_person_connects_and_lets_it_sleep(browser) {
  const main = await branchNamed("main");
  const place = `${(await project()).replace("/organizations", "orgs")}/branches/${main.id}/overview`;
  const page = await signedIn(browser, place);
  await heading(page, "main");
  const snippet = page.locator(".snippet pre");
  await snippet.waitFor();
  const password = (await api(`${await project()}/branches/${main.id}/credentials`)).password;
  assert.ok(!(await snippet.textContent()).includes(password), "it is hidden");
  await look(page, "console-overview");
  await page.getByRole("button", { name: "Pooled" }).click();
  await page.getByText("-pooler").first().waitFor();
  await page.getByRole("button", { name: "Direct" }).click();
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("c");
  await until("all of it is copied", () => page.evaluate(async (password) => (await navigator.clipboard.readText()).includes(password), password));
  const kept = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + location.href + document.cookie);
  assert.ok(!kept.includes(password), "nothing keeps it");
  await page.keyboard.press("y");
  await until("it is shown", async () => (await snippet.textContent()).includes(password));

  await page.keyboard.press("s");
  await page.getByRole("button", { name: "Wake it" }).waitFor();
  await look(page, "console-overview-asleep");
  await page.keyboard.press("s");
  await page.getByRole("button", { name: "Let it sleep" }).waitFor();

  // Signing out in one tab ends the other.
  const other = await page.context().newPage();
  await other.goto(`${told.url}/console/${place}`);
  await heading(other, "main");
  await page.getByRole("button", { name: /^Your account/ }).click();
  await look(page, "console-account-menu");
  await page.keyboard.press("Escape");
  await signOut(page);
  await heading(other, "Sign in");
  await leave(page);
}

export async function nobody_else_gets_in_by_the_door(browser) {
  const page = await signedIn(browser);
  await heading(page, "Branches");
  const at = `${told.url}/console/api${await project()}/branches`;
  const asked = (headers) => page.request.get(at, { headers }).then((answer) => answer.status());
  const own = { "X-Coppice-Console": "1" };
  assert.equal(await asked(own), 200, "a page of the console");
  assert.equal(await asked({}), 403, "without its header");
  assert.equal(await asked({ ...own, origin: "https://evil.example" }), 403, "from another origin");
  assert.equal(await asked({ ...own, "sec-fetch-site": "same-site" }), 403, "from another port");
  const sql = async (headers) => {
    const data = { query: "select 7" };
    return page.request.post(`${at}/${(await branchNamed("main")).id}/sql`, { headers, data });
  };
  assert.deepEqual((await (await sql(own)).json()).results[0].rows, [["7"]]);
  assert.equal((await sql({})).status(), 403, "statements, too");
  assert.equal((await sql({ ...own, origin: "https://evil.example" })).status(), 403);
  const stranger = await fetch(at, { headers: { ...own, authorization: `Bearer ${told.key}` } });
  assert.equal(stranger.status, 401, "a key is nothing there");

  // A page of somebody else on the same machine: same site, another origin.
  const site = createServer((request, response) => {
    response.setHeader("content-type", "text/html");
    response.end("<!doctype html><title>Evil</title><h1>Evil</h1>");
  });
  await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
  const evil = await page.context().newPage();
  const host = new URL(told.url).hostname;
  await evil.goto(`http://${host}:${site.address().port}/`);
  const outcome = await evil.evaluate(async (at) => {
    const body = JSON.stringify({ mode: "inherit", name: "evil", parentID: "x" });
    const ways = [{ "X-Coppice-Console": "1", "content-type": "application/json" }, { "content-type": "text/plain" }];
    const sent = ways.map((headers) =>
      fetch(at, { method: "POST", credentials: "include", headers, body }).then(() => "read", () => "refused"),
    );
    const frame = document.createElement("iframe");
    frame.src = new URL("/console/", at).href;
    document.body.append(frame);
    await new Promise((resolve) => frame.addEventListener("load", resolve));
    let shows = "nothing";
    try {
      shows = frame.contentDocument ? "something" : "nothing";
    } catch {
      shows = "nothing";
    }
    return [...(await Promise.all(sent)), shows];
  }, at);
  assert.deepEqual(outcome, ["refused", "refused", "nothing"]);
  site.close();
  await evil.close();
  await leave(page);
}

export async function a_new_version_is_told_and_loaded(browser) {
  const main = await branchNamed("main");
  const inProject = (await project()).replace("/organizations", "orgs");
  const page = await signedIn(browser, `${inProject}/branches/${main.id}/sql`);
  await heading(page, "SQL");
  const editor = page.getByRole("textbox", { name: "SQL", exact: true });
  await editor.fill("select 'a draft'");
  const note = page.getByText("There is a new version of the console");
  assert.equal(await note.count(), 0);
  await page.route("**/console/api/session", async (route) => {
    const session = await (await route.fetch()).json();
    assert.match(session.console, /^[A-Za-z0-9_-]{43}$/);
    await route.fulfill({ contentType: "application/json", body: JSON.stringify({ ...session, console: "another" }) });
  });
  await note.waitFor();
  await look(page, "console-new-version");
  await page.evaluate(() => Object.assign(window, { isFirst: true }));
  const isFirst = () => page.evaluate(() => window.isFirst === true).catch(() => true);
  await page.getByRole("button", { name: "Load it now" }).press("Enter");
  await until("the page is loaded", async () => !(await isFirst()));
  await editor.getByText("select 'a draft'").waitFor();
  assert.equal(await note.count(), 0, "now it is the new one");
  await page.unrouteAll({ behavior: "wait" });
  await leave(page);
}

export async function what_is_shown_stays_while_the_server_is_away(browser) {
  const page = await signedIn(browser, `${(await project()).replace("/organizations", "orgs")}/branches`);
  await page.getByRole("row", { name: /main/ }).waitFor();
  await page.route("**/console/api/**", (route) => route.abort("connectionrefused"));
  const note = page.getByText("What you see is from before");
  await note.waitFor();
  assert.equal(await page.getByText("can't be reached").count(), 1, "it is said once");
  assert.equal(await page.getByRole("row", { name: /main/ }).count(), 1);
  await look(page, "console-server-away");
  await page.unrouteAll({ behavior: "wait" });
  await note.waitFor({ state: "detached" });
  page.complaints = page.complaints.filter((complaint) => !complaint.includes("ERR_CONNECTION_REFUSED"));
  await leave(page);
}

export async function a_script_in_a_name_is_text(browser) {
  const name = "<img src=x onerror=\"document.title='x'\">";
  const made = await api(`/organizations/${told.organization}/projects`, { method: "POST", body: { name } });
  const page = await signedIn(browser, `orgs/${told.organization}/projects`);
  await page.getByRole("link", { name }).click();
  await heading(page, "Branches");
  await page.getByText("No branches yet").waitFor();
  await until("the title names it", async () => (await page.title()) === `Branches of ${name} · Coppice`);
  await look(page, "console-branches-none");
  const policy = (await page.request.get(`${told.url}/console/`)).headers()["content-security-policy"];
  assert.equal(policy, POLICY);

  // In the name of a branch, and in a line of a log. Descriptions have words only.
  const main = await branchNamed("main");
  const script = "<img src=x onerror=alert(1)>";
  const branches = `${await project()}/branches`;
  const refused = await fetch(`${told.url}${branches}/${main.id}`, {
    method: "PATCH",
    headers: { authorization: `Bearer ${told.key}`, "content-type": "application/json" },
    body: JSON.stringify({ description: script }),
  });
  assert.equal(refused.status, 400);
  const evil = await api(branches, { method: "POST", body: { mode: "inherit", name: script, parentID: main.id } });
  const inProject = (await project()).replace("/organizations", "orgs");
  await page.goto(`${told.url}/console/${inProject}/branches`);
  await page.getByRole("row", { name: script }).getByRole("link", { name: script }).click();
  await heading(page, script);
  await page.goto(`${told.url}/console/${inProject}/branches/${main.id}/overview`);
  await heading(page, "main");
  const data = { query: `do $$begin raise warning '%', '${script}'; end$$` };
  const sql = `${told.url}/console/api${await project()}/branches/${main.id}/sql`;
  assert.equal((await page.request.post(sql, { headers: { "X-Coppice-Console": "1" }, data })).status(), 200);
  await page.keyboard.press("g");
  await page.keyboard.press("l");
  await heading(page, "Logs");
  await page.keyboard.press("/");
  await page.keyboard.type("onerror");
  const log = page.getByRole("list", { name: "Log, newest first" });
  const others = log.getByRole("listitem").filter({ hasNotText: "onerror" });
  await log.getByText(script).first().waitFor();
  await until("only what has these letters is shown", async () => (await others.count()) === 0);
  assert.equal(await page.locator("main img").count(), 0);
  await look(page, "console-logs-found");
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("ready to|onerr.r");
  await page.getByText("Nothing in this time fits the filter.").waitFor();
  await page.getByRole("button", { name: "Regular expression" }).click();
  await log.getByText("database system is ready to accept connections").first().waitFor();
  await log.getByRole("listitem").filter({ hasText: script }).first().getByRole("link").click();
  await heading(page, "Metrics");
  await page.getByText(/^30 min until /).waitFor();
  await leave(page);
  await api(`${branches}/${evil.id}`, { method: "DELETE" });
  await api(`/organizations/${told.organization}/projects/${made.id}`, { method: "DELETE" });
}

export async function a_parameter_is_changed_and_everything_is_seen(browser) {
  const main = await branchNamed("main");
  const inProject = (await project()).replace("/organizations", "orgs");
  const page = await signedIn(browser, `${inProject}/branches/${main.id}/parameters`);
  await heading(page, "Parameters");
  await page.keyboard.press("/");
  await page.keyboard.type("work_mem");
  const field = page.getByLabel("work_mem", { exact: true });
  await page.getByLabel("autovacuum", { exact: true }).waitFor({ state: "detached" });
  await field.fill("8MB");
  await page.keyboard.press("Control+Enter");
  await page.getByRole("dialog").waitFor();
  await look(page, "console-parameters-review");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await until("the parameter is changed", async () => {
    const { parameters } = await api(`${await project()}/branches/${main.id}/postgres-config`);
    return parameters.find(({ name }) => name === "work_mem").currentValue === "8MB";
  });
  await page.getByLabel("Find a parameter").fill("max_conn");
  await page.getByLabel("max_connections", { exact: true }).fill("90");
  await page.keyboard.press("Control+Enter");
  await page.getByRole("dialog").getByText("The server restarts").waitFor();
  await look(page, "console-parameters-restart");
  await page.keyboard.press("Escape");
  await page.getByLabel("max_connections", { exact: true }).fill("100");
  await page.getByLabel("Find a parameter").fill("");
  await look(page, "console-parameters");

  // By two keys to each other page.
  for (const [key, name, picture] of [
    ["m", "Metrics", "metrics"],
    ["l", "Logs", "logs"],
    ["t", "Activity", "activity"],
    ["r", "Backups", "backups"],
    [",", "Settings", "settings"],
    [".", "Project settings", "project-settings"],
    ["a", "Audit log", "audit"],
    ["h", "Projects", "projects"],
    ["i", "Organization settings", "organization-settings"],
  ]) {
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await heading(page, name);
    await page.getByLabel("Loading").first().waitFor({ state: "detached" });
    if (key === "t") await page.getByText(LONG_NAME).first().waitFor();
    await look(page, `console-${picture}`);
    if (key === "m") await draws_over_a_chart(page);
    // The project, and with it its pages, is left with the organization's.
    if (key === ",") assert.match(page.url(), /settings$/);
    if (key === ",") await chooses_how_long_it_stays(page, main);
    if (key === ".") await adds_where_one_is(page);
  }
  await leave(page);
}

async function adds_where_one_is(page) {
  await page.getByRole("button", { name: "Add mine, 127.0.0.1" }).click();
  assert.equal(await page.getByLabel("Range 1", { exact: true }).inputValue(), "127.0.0.1/32");
  await page.getByRole("button", { name: "Remove range 1" }).click();
}

async function draws_over_a_chart(page) {
  const chart = page.getByRole("region", { name: "Memory" }).locator(".u-over");
  let box;
  // It is drawn anew when what it shows comes.
  await until("there is a chart", async () => (box = await chart.boundingBox()) !== null);
  const [middle, step] = [box.y + box.height / 2, box.width / 4];
  await page.mouse.move(box.x + step, middle);
  await page.mouse.down();
  await page.mouse.move(box.x + 3 * step, middle, { steps: 5 });
  await page.mouse.up();
  await until("all show that time", async () => new URL(page.url()).searchParams.has("end"));
  await page.getByRole("button", { name: "1 h", exact: true }).click();
  await until("they show the last hour again", async () => !new URL(page.url()).searchParams.has("end"));
}

async function chooses_how_long_it_stays(page, branch) {
  const card = page.getByRole("form", { name: "How long it stays" });
  const end = async () => (await api(`${await project()}/branches/${branch.id}`)).expiresAt;
  await card.getByLabel("Keep it").selectOption({ label: "For a week" });
  await card.getByRole("button", { name: "Save" }).click();
  await until("it has an end", async () => Math.abs(Date.parse(await end()) - Date.now() - 7 * 86_400_000) < 60_000);
  await card.getByRole("option", { name: /^Until / }).waitFor({ state: "attached" });
  await card.getByLabel("Keep it").selectOption({ label: "For good" });
  await card.getByRole("button", { name: "Save" }).click();
  await until("it has none", async () => (await end()) === undefined);
}

export async function each_server_of_a_branch_is_looked_at(browser) {
  const main = await branchNamed("main");
  const place = `${await project()}/branches/${main.id}`;
  await api(place, { method: "PATCH", body: { replicas: 1 } });
  await until("the replica serves", async () => {
    const { instances } = (await api(place)).status;
    return instances.length === 2 && instances.every(({ status }) => status === "healthy");
  });
  const page = await signedIn(browser, `${place.replace("/organizations", "orgs")}/metrics`);
  await heading(page, "Metrics");
  await page.getByLabel("Instance").selectOption("Replica 1");
  await page.waitForURL(/instance=/);
  // It is measured from time to time.
  await page.getByRole("region", { name: "Memory", exact: true }).getByText(/iB$/).waitFor();
  await look(page, "console-metrics-replica");

  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("g");
  await page.keyboard.press("l");
  await heading(page, "Logs");
  const follows = page.getByText("ready to accept read-only connections").first();
  await follows.waitFor();
  await page.getByLabel("Instance").selectOption("Primary");
  await follows.waitFor({ state: "detached" });
  await page.getByLabel("Instance").selectOption("Replica 1");
  await follows.waitFor();
  await api(place, { method: "PATCH", body: { replicas: 0 } });
  await leave(page);
}

export async function a_branch_is_restored_into_another_one(browser) {
  const main = await branchNamed("main");
  const inProject = (await project()).replace("/organizations", "orgs");
  const page = await signedIn(browser, `${inProject}/branches/${main.id}/backups`);
  await heading(page, "Backups");
  const form = page.getByRole("form", { name: "Restore" });
  await form.waitFor();
  const moment = form.getByLabel("As of, in UTC");
  const said = form.getByRole("status");
  await said.filter({ hasText: /main-\d+ is going to have what main had last.* Nothing happens to main/ }).waitFor();
  await moment.fill("2020-01-01T00:00:00");
  await form.locator(".wrong", { hasText: "Choose a moment from" }).waitFor();
  const button = form.getByRole("button", { name: "Restore", exact: true });
  assert.equal(await button.getAttribute("aria-disabled"), "true");
  await look(page, "console-backups-outside");
  const { backups } = await api(`${await project()}/backups`);
  const latest = backups.find(({ branchID }) => branchID === main.id).latestRestore;
  await moment.fill(latest.slice(0, 19));
  await form.getByLabel("Name of the new branch").fill("restored");
  await until("it says what comes", async () => (await said.textContent()).includes("restored is going to have what main had at"));
  await button.press("Enter");
  await heading(page, "restored");
  const made = await branchNamed("restored");
  assert.equal(made.parentID, main.id);
  assert.ok(page.url().includes(made.id), "it is shown");
  await leave(page);
  await api(`${await project()}/branches/${made.id}`, { method: "DELETE" });
}

export async function what_a_branch_was_is_copied_and_taken_back(browser) {
  const main = await branchNamed("main");
  const branches = `${await project()}/branches`;
  const old = await api(branches, { method: "POST", body: { mode: "inherit", name: "coppiced", parentID: main.id } });
  const place = `${branches.replace("/organizations", "orgs")}/${old.id}/backups`;
  const page = await signedIn(browser, place);
  await heading(page, "Backups");
  const isKept = async (id, query = "select to_regclass('kept') is not null") => {
    const asked = { headers: { "X-Coppice-Console": "1" }, data: { queries: [{ query }] } };
    const answer = await page.request.post(`${told.url}/console/api${branches}/${id}/sql`, asked);
    return answer.ok() && (await answer.json()).results[0]?.rows[0]?.[0] === "t";
  };
  await until("it is up", async () => (await branchNamed("coppiced")).statusType === "STATUS_TYPE_HEALTHY");
  await isKept(old.id, "create table kept ()");
  assert.ok(await isKept(old.id));
  await api(`${branches}/${old.id}/reset`, { method: "POST", body: {} });

  await page.getByRole("button", { name: /^Make a branch of what it was until / }).click();
  await page.getByRole("dialog").getByText("Nothing happens to coppiced.").waitFor();
  await look(page, "console-version-copy");
  await page.getByRole("dialog").getByLabel("Name").fill("copied");
  await page.keyboard.press("Enter");
  await heading(page, "copied");
  const copy = await branchNamed("copied");
  await until("it has what the other one had", () => isKept(copy.id));
  assert.ok(!(await isKept(old.id)), "the other one is as it was reset");

  await page.goto(`${told.url}/console/${place}`);
  await heading(page, "Backups");
  await page.getByRole("button", { name: /^Go back to what it was until / }).click();
  await page.keyboard.type("coppiced");
  await look(page, "console-version-back");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await until("it is what it was", () => isKept(old.id));
  await until("what it was meanwhile is a version", async () => (await page.getByRole("button", { name: /^Go back to / }).count()) === 2);
  await look(page, "console-versions");
  await leave(page);
  for (const { id } of [copy, old]) await api(`${branches}/${id}`, { method: "DELETE" });
}

export async function a_key_is_shown_once_and_people_are_invited(browser) {
  const page = await signedIn(browser, `orgs/${told.organization}/projects`);
  await heading(page, "Projects");
  await page.keyboard.press("g");
  await page.keyboard.press("k");
  await heading(page, "Keys");
  await page.getByRole("region", { name: "Your keys" }).waitFor();
  await page.keyboard.press("n");
  await page.getByLabel("Name").fill("agent");
  await page.getByLabel("It connects to branches").selectOption("reader");
  await look(page, "console-key-new");
  await page.getByLabel("Name").press("Enter");
  await heading(page, "The key agent");
  const token = await page.locator(".secret code").textContent();
  assert.match(token, /^pko_/);
  assert.equal((await fetch(`${told.url}/organizations`, { headers: { authorization: `Bearer ${token}` } })).status, 200);
  await page.getByRole("button", { name: "I have it" }).click();
  assert.ok(!(await page.content()).includes(token), "it is not shown again");
  await page.getByRole("row", { name: /agent/ }).getByText("SQL as a user of its own, reader").waitFor();
  await look(page, "console-keys-list");
  await page.getByRole("row", { name: /agent/ }).getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("row", { name: /agent/ }).waitFor({ state: "detached" });
  assert.equal((await fetch(`${told.url}/organizations`, { headers: { authorization: `Bearer ${token}` } })).status, 401);

  await page.keyboard.press("g");
  await page.keyboard.press("u");
  await heading(page, "People");
  await page.getByRole("cell", { name: /you/ }).waitFor();
  await page.keyboard.press("n");
  await page.getByLabel("Email").fill("joan@example.com");
  await look(page, "console-invite");
  await page.keyboard.press("Enter");
  await page.getByRole("row", { name: /joan@example.com/ }).waitFor();
  await look(page, "console-people");
  await page.getByRole("row", { name: /joan@example.com/ }).getByRole("button", { name: "Withdraw" }).click();
  await page.getByRole("row", { name: /joan@example.com/ }).waitFor({ state: "detached" });
  await leave(page);
}

export async function a_viewer_changes_nothing(browser) {
  const body = { email: "viewer@example.com", role: "viewer" };
  const { invite_link } = await api(`/organizations/${told.organization}/invitations`, { method: "POST", body });
  const page = await person(browser);
  await page.goto(invite_link);
  await page.getByLabel("Your name").fill("Vera");
  await page.getByLabel("Choose a password").fill(PASSWORD);
  await page.getByLabel("The same password again").fill(PASSWORD);
  await page.getByRole("button", { name: "Create the account and join" }).click();
  await heading(page, /^You are a member of /);
  await page.getByRole("link", { name: "Open the console" }).click();
  await heading(page, "Branches");
  const make = page.locator("button[aria-disabled=true]", { hasText: "New branch" });
  await make.click({ force: true });
  await page.keyboard.press("b");
  assert.equal(await page.getByRole("dialog").count(), 0, "nothing is asked");
  await look(page, "console-viewer");
  await page.getByRole("link", { name: "main" }).click();
  await page.getByText("does not show passwords").waitFor();
  await look(page, "console-viewer-overview");
  await nothing_that_changes_can_be_pressed(page);

  // The server says so, too.
  const main = await branchNamed("main");
  const at = `${told.url}/console/api${await project()}`;
  for (const [method, path, data] of [
    ["POST", "/branches", { mode: "inherit", name: "no", parentID: main.id }],
    ["PATCH", `/branches/${main.id}`, { hibernate: true }],
    ["DELETE", `/branches/${main.id}`, undefined],
    ["PATCH", "", { name: "no" }],
    ["DELETE", "", undefined],
    ["POST", `/branches/${main.id}/credentials/rotate`, { username: "xata" }],
    ["GET", `/branches/${main.id}/credentials`, undefined],
    ["POST", `/branches/${main.id}/sql`, { query: "select 1" }],
  ]) {
    const answer = await page.request.fetch(`${at}${path}`, { method, data, headers: { "X-Coppice-Console": "1" } });
    assert.equal(answer.status(), 403, `${method} ${path}`);
    assert.equal((await answer.json()).id, "role_not_allowed", `${method} ${path}`);
  }
  await leave(page);
}

// On every page there is, all that can be pressed or filled in only shows something.
async function nothing_that_changes_can_be_pressed(page) {
  const shows =
    /^(Organization: |Project: |Branch: |Your account|Find and do|Hide the first steps|Show |Hide |Copy|Pause|Follow|More about |As a table|As charts|\d+ (min|h|d)$|Projects$|Branches$|Labels$|Days$|CSV|Earlier|Filter|Default$|To the content|Schema$|History$|New$|New tab$|Read only|Max rows|Text in the message|Regular expression$|Process$|Level$|How far back|Month in UTC|Find a parameter|Changed only|Compare with$)/;
  const links = page.getByRole("navigation", { name: "Pages" }).getByRole("link");
  const pages = await links.evaluateAll((all) => all.map((link) => [link.textContent.trim(), link.href]));
  const seen = [];
  for (const [name, to] of pages) {
    await page.goto(to);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.getByLabel("Loading").first().waitFor({ state: "detached" });
    const enabled = await page.evaluate(() => {
      const found = document.querySelectorAll("button, input, select, textarea, [contenteditable=true]");
      const usable = [...found].filter(
        (one) => !one.disabled && one.ariaDisabled !== "true" && !one.closest("fieldset:disabled") && one.checkVisibility(),
      );
      return usable.map((one) => (one.ariaLabel || one.labels?.[0]?.textContent || one.textContent).trim());
    });
    for (const what of enabled) if (!shows.test(what)) seen.push(`${name}: ${what}`);
  }
  // An invoice, as a file.
  assert.deepEqual(seen.filter((one) => one !== "Usage: Save"), []);
}
