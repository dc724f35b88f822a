// What people do with SQL in the console.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { api, heading, leave, look, told } from "../browser.mjs";
import { branchNamed, project, signedIn, signOut, until } from "../console.mjs";

const SCRIPT = "<img src=x onerror=\"document.title='evil'\">";

// Asks the branch in another way than the console does.
async function rows(branch, query) {
  const key = { authorization: `Bearer ${told.key}` };
  const credentials = await fetch(`${told.url}${await project()}/branches/${branch.id}/credentials`, { headers: key });
  const { connectionString } = await credentials.json();
  const headers = { "connection-string": connectionString, "array-mode": "true" };
  const answer = await fetch(`${told.url}/sql`, { method: "POST", headers, body: JSON.stringify({ query }) });
  const said = await answer.json();
  assert.ok(answer.ok, `${query}: ${said.message}`);
  return said.rows;
}

async function place(branch, screen) {
  return `${(await project()).replace("/organizations", "orgs")}/branches/${branch.id}/${screen}`;
}

function writing(page) {
  return page.getByRole("textbox", { name: "SQL", exact: true });
}

// The editor, with this in it and the cursor at its end.
async function write(page, text) {
  const editor = writing(page);
  await editor.click();
  await editor.fill(text);
  await page.keyboard.press("Control+End");
}

export async function statements_are_run_by_the_keyboard(browser) {
  const main = await branchNamed("main");
  const page = await signedIn(browser, await place(main, "overview"));
  await heading(page, "main");
  await page.keyboard.press("g");
  await page.keyboard.press("q");
  await heading(page, "SQL");
  const results = page.getByRole("region", { name: "Results" });
  await write(page, "create table gone ()");
  await page.keyboard.press("Control+Enter");
  await results.getByText("25006").waitFor();
  await write(page, "delete from pg_class");
  await page.keyboard.press("Control+Enter");
  await results.getByText("cannot execute DELETE in a read-only transaction").waitFor();
  await page.getByRole("switch", { name: "Read only" }).uncheck();
  await write(page, "create table stumps (rings int)");
  await page.keyboard.press("Control+Enter");
  await results.getByText("CREATE", { exact: true }).waitFor();

  // Three statements, three results; what is in them is text, whatever it looks like.
  const table = SCRIPT.replaceAll('"', '""');
  const value = SCRIPT.replaceAll("'", "''");
  const three = `create table "${table}" (id int8, note text, settings jsonb);
insert into "${table}" values (9223372036854775807, '${value}', '{"deep": [1.50, {"a": null}]}'), (-1, null, '[]')
  returning *;
do $$begin raise notice '%', '${value}'; end$$;`;
  await write(page, three);
  await page.keyboard.press("Control+Shift+Enter");
  await results.getByRole("button", { name: "3 DO" }).waitFor();
  await results.getByRole("list", { name: "Notices" }).getByText(SCRIPT).waitFor();
  await results.getByRole("button", { name: "1 CREATE" }).click();
  await results.getByRole("button", { name: "2 INSERT" }).click();
  await results.getByRole("gridcell", { name: "9223372036854775807" }).waitFor();
  await results.getByRole("gridcell", { name: SCRIPT }).waitFor();
  await look(page, "console-sql");
  await results.getByRole("grid").focus();
  for (const key of ["ArrowRight", "ArrowRight", "Enter"]) await page.keyboard.press(key);
  await page.getByRole("dialog", { name: "settings" }).getByText("1.50").waitFor();
  await look(page, "console-sql-value");
  await page.keyboard.press("Escape");
  assert.match(await page.title(), /^SQL on main/, "nothing ran");

  // The name of the new table is known, and an error has a place.
  await write(page, "select * from ");
  await page.keyboard.type("stu");
  await page.getByRole("option", { name: "stumps" }).waitFor();
  await write(page, "select 1;\n\nselect nothing\nfrom generate_series(1, 3);\nselect 2");
  await page.keyboard.press("Control+Shift+Enter");
  await results.getByText("42703").waitFor();
  await page.locator(".cm-wrong", { hasText: /^nothing$/ }).waitFor();
  await results.getByText("1 statement after it was not run").waitFor();
  await look(page, "console-sql-error");
  await write(page, "select relkind, count(*) from pg_class join pg_attribute on attrelid = pg_class.oid group by 1 order by 2");
  await page.getByRole("button", { name: "Explain" }).click();
  await results.getByRole("columnheader", { name: "Own time" }).waitFor();
  await look(page, "console-sql-plan");

  await page.getByRole("button", { name: "History" }).click();
  await page.getByRole("dialog", { name: "History" }).getByRole("button", { name: /create table gone/ }).waitFor();
  await look(page, "console-sql-history");
  await page.keyboard.press("Escape");
  const kept = () => page.evaluate(() => Object.keys(localStorage).filter((name) => name.startsWith("coppice-sql")));
  assert.ok((await kept()).length > 0);
  await signOut(page);
  assert.deepEqual(await kept(), [], "nothing of it stays in the browser");
  await leave(page);
}

export async function texts_are_kept_in_tabs_beside_the_schema(browser) {
  const main = await branchNamed("main");
  await rows(main, 'create table "Old growth" (id int primary key, "order" text)');
  await rows(main, `insert into "Old growth" values (1, 'oak')`);
  const page = await signedIn(browser, await place(main, "sql"));
  await heading(page, "SQL");
  const tree = page.getByRole("tree", { name: "Tables and columns" });
  const line = (name) => tree.getByRole("treeitem", { name });
  await line("public schema").waitFor();

  // By the keyboard from the table to its column; what needs quotes gets them.
  await write(page, "-- oaks\nselect  from ");
  await page.getByLabel("Find a table or column").fill("old gr");
  await line("Old growth table").focus();
  await page.keyboard.press("Enter");
  await until("its name is inserted", async () => (await writing(page).innerText()).endsWith('from "Old growth"'));
  await line("Old growth table").focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await until("the column's, too", async () => (await writing(page).innerText()).endsWith('"Old growth" "order"'));
  await look(page, "console-sql-schema");

  // Its first rows are in a tab of their own, and the first text is as it was.
  await line("Old growth table").focus();
  await page.keyboard.press("Shift+Enter");
  await page.getByRole("gridcell", { name: "oak" }).waitFor();
  const tab = (name) => page.getByRole("tab", { name });
  await page.getByRole("button", { name: "New tab" }).click();
  await write(page, "alter role app password 'x'");
  await tab(/^alter role/).focus();
  await page.keyboard.press("ArrowLeft");
  await page.getByRole("gridcell", { name: "oak" }).waitFor();
  await page.keyboard.press("ArrowLeft");
  await page.getByText("-- oaks").waitFor();
  await until("each has its own results", async () => (await page.getByRole("gridcell").count()) === 0);
  await look(page, "console-sql-tabs");
  await page.reload();
  await tab("oaks").and(page.locator("[aria-selected=true]")).waitFor();
  await page.getByText("-- oaks").waitFor();
  const kept = () => page.evaluate(() => JSON.stringify({ ...localStorage }));
  assert.ok(!(await kept()).includes("alter role"), "what sets a password is kept nowhere");
  await tab(/^select \* from/).click();
  await page.keyboard.press("Delete");
  await page.getByRole("dialog").getByRole("button", { name: "Close it" }).click();
  await tab(/^select \* from/).waitFor({ state: "detached" });
  assert.equal(await page.getByRole("tab").count(), 2);
  await leave(page);
  await rows(main, 'drop table "Old growth"');
}

export async function a_table_is_found_and_read(browser) {
  const main = await branchNamed("main");
  await rows(main, "create table grove (id int primary key, tree text)");
  const values = `select n, case when n % 100 = 0 then '${SCRIPT.replaceAll("'", "''")}' else 'tree ' || n end`;
  await rows(main, `insert into grove ${values} from generate_series(1, 250) n`);
  const page = await signedIn(browser, await place(main, "overview"));
  await heading(page, "main");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("grove");
  await page.getByRole("option", { name: "grove" }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByText("Rows 1 to 100").waitFor();
  await page.getByRole("button", { name: "Next" }).click();
  await page.getByText("Rows 101 to 200").waitFor();
  const grid = page.getByRole("grid");
  const head = (name) => grid.getByRole("columnheader", { name }).getByRole("button");
  await head("id").click();
  await head("id").click();
  await grid.getByRole("gridcell", { name: "tree 250" }).waitFor();
  await page.getByRole("button", { name: "Filter", exact: true }).click();
  await page.getByLabel("Column").selectOption("tree");
  await page.getByLabel("How").selectOption("contains");
  await page.getByLabel("Value").fill("IMG SRC");
  await page.getByText("Rows 1 to 2").waitFor();
  await until("both are there", async () => (await grid.getByRole("gridcell", { name: SCRIPT }).count()) === 2);
  await look(page, "console-tables");
  assert.match(page.url(), /tables\?table=grove&order=id&down=true$/, "where one is, and nothing of the rows");
  await leave(page);
}

export async function a_value_is_changed_where_it_is_what_was_shown(browser) {
  const main = await branchNamed("main");
  await rows(main, "create table crowns (id int8 primary key, tree char(6), tall boolean, about json)");
  await rows(main, `insert into crowns values (1, 'elm', true, null), (9223372036854775807, 'oak', true, '{"a": 1.50}')`);
  await rows(main, "create table keyless as select 7 as seven");
  const page = await signedIn(browser, await place(main, "tables?table=crowns"));
  const grid = page.getByRole("grid", { name: "Rows of crowns" });
  const cell = (name) => grid.getByRole("gridcell", { name, exact: true });
  await cell("9223372036854775807").waitFor();
  const dialog = page.getByRole("dialog");
  const open = async (...keys) => {
    await grid.focus();
    for (const key of ["Control+Home", ...keys, "Enter"]) await page.keyboard.press(key);
    await dialog.waitFor();
  };
  const tree = async () => (await rows(main, "select tree from crowns where id = 9223372036854775807"))[0][0];

  // What others are made from is not changed by accident.
  await open("ArrowDown", "ArrowRight");
  await dialog.getByRole("button", { name: "Copy" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("switch", { name: "Read only" }).uncheck();
  await open("ArrowDown", "ArrowRight");
  await dialog.getByRole("textbox").fill("yew's");
  await dialog.getByText(/^update only "public"."crowns" set "tree" = 'yew''s' where "id" operator\(pg_catalog.=\) '9223372036854775807'/).waitFor();
  await look(page, "console-tables-change");
  await page.keyboard.press("Control+Enter");
  await dialog.waitFor({ state: "detached" });
  await cell("yew's ").waitFor();
  assert.equal(await tree(), "yew's ");

  // Whose value it was meanwhile is left alone.
  await rows(main, "update crowns set tree = 'ash' where id = 9223372036854775807");
  await open("ArrowDown", "ArrowRight");
  await dialog.getByRole("textbox").fill("fir");
  await page.keyboard.press("Control+Enter");
  await dialog.getByText("The row is not as it was shown").waitFor();
  await look(page, "console-tables-conflict");
  assert.equal(await tree(), "ash   ");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Read the rows again" }).click();
  await cell("ash   ").waitFor();

  // Types that can't be compared, and NULL.
  await open("ArrowDown", "End");
  await dialog.getByRole("textbox").fill("{");
  await page.keyboard.press("Control+Enter");
  await dialog.getByText(/invalid input syntax for type json/).waitFor();
  await dialog.getByRole("textbox").fill('{"a": 1.500}');
  await page.keyboard.press("Control+Enter");
  await dialog.waitFor({ state: "detached" });
  await cell('{"a": 1.500}').waitFor();
  await open("ArrowDown", "End", "ArrowLeft");
  await dialog.getByLabel("NULL").check();
  await dialog.getByRole("button", { name: "Change it" }).press("Enter");
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual(await rows(main, "select tall, about from crowns order by id desc limit 1"), [[null, { a: 1.5 }]]);

  await page.getByRole("link", { name: /keyless/ }).click();
  await page.getByRole("grid", { name: "Rows of keyless" }).waitFor();
  assert.ok(await page.getByRole("switch", { name: "Read only" }).isDisabled(), "nothing says which row it is");
  await leave(page);
  await rows(main, "drop table crowns, keyless");
}

// What stands before PostgreSQL's own where names are looked for, and would run as whoever looks.
const TRAPS = [
  ["current_setting(text)", "text"],
  ["json_build_array(name, text)", "json"],
  ["json_build_array(name, text, name)", "json"],
  ["format_type(oid, int)", "text"],
  ["has_schema_privilege(oid, text)", "boolean"],
  ["pg_get_keywords(out word text, out catcode char)", "record"],
  ["format(text, varchar)", "text"],
  ["strpos(text, text)", "int"],
  ["lower(text)", "text"],
  ["same(varchar, varchar)", "boolean"],
].map(([head, answer]) => `create function traps.${head} returns ${answer} language plpgsql as 'begin raise exception ''caught''; end'`);

export async function what_another_role_made_is_not_called(browser) {
  const main = await branchNamed("main");
  await rows(main, "create extension citext");
  await rows(main, "create table bait (id citext primary key, tree varchar(9))");
  await rows(main, "insert into bait values ('Oak', 'oak'), ('Elm', 'elm')");
  await rows(main, "create schema traps");
  for (const trap of TRAPS) await rows(main, trap);
  for (const sign of ["=", "<", ">"]) {
    await rows(main, `create operator traps.${sign} (leftarg = varchar, rightarg = varchar, function = traps.same)`);
  }
  await rows(main, "alter role app set search_path = traps, public, pg_catalog");
  const page = await signedIn(browser, await place(main, "tables?table=bait"));
  const grid = page.getByRole("grid", { name: "Rows of bait" });
  const cell = (name) => grid.getByRole("gridcell", { name, exact: true });
  await cell("oak").waitFor();
  await page.getByRole("button", { name: "Filter", exact: true }).click();
  const ways = [
    ["tree", "contains", "AK"],
    ["tree", "=", "oak"],
    ["tree", "≠", "elm"],
    ["tree", ">", "nut"],
    ["id", "=", "OAK"],
  ];
  for (const [column, how, value] of ways) {
    await page.getByLabel("Value").fill("");
    await page.getByText("Rows 1 to 2").waitFor();
    await page.getByLabel("Column").selectOption(column);
    await page.getByLabel("How").selectOption(how);
    await page.getByLabel("Value").fill(value);
    await page.getByText("Rows 1 to 1").waitFor();
    await cell("oak").waitFor();
  }
  await page.getByRole("switch", { name: "Read only" }).uncheck();
  await grid.focus();
  for (const key of ["Control+Home", "ArrowRight", "Enter"]) await page.keyboard.press(key);
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox").fill("yew");
  await page.keyboard.press("Control+Enter");
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual(await rows(main, "select tree from bait order by 1"), [["elm"], ["yew"]]);
  await leave(page);
  for (const sql of ["alter role app reset search_path", "drop schema traps cascade", "drop table bait", "drop extension citext"]) {
    await rows(main, sql);
  }
}

export async function what_a_copy_changed_is_told(browser) {
  const main = await branchNamed("main");
  await rows(main, "create table felled (id int primary key, tree text)");
  const body = { mode: "inherit", name: "grafted", parentID: main.id };
  await api(`${await project()}/branches`, { method: "POST", body });
  await until("it is up", async () => (await branchNamed("grafted"))?.statusType === "STATUS_TYPE_HEALTHY");
  const copy = await branchNamed("grafted");
  const page = await signedIn(browser, await place(copy, "overview"));
  await heading(page, "grafted");
  await page.keyboard.press("g");
  await page.keyboard.press("f");
  await heading(page, "Diff");
  await page.getByRole("heading", { name: "No difference" }).waitFor();
  await look(page, "console-diff-none");
  await rows(copy, "insert into felled select n, repeat('oak', 100) from generate_series(1, 20000) n");
  for (const sql of ["alter table felled add cut date not null default current_date", "create index by_cut on felled (cut)"]) {
    await rows(copy, sql);
  }
  await rows(copy, `create view "cut ${SCRIPT.replaceAll('"', '""')}" as select id from felled`);
  await page.getByRole("button", { name: "Compare again" }).press("Enter");
  const objects = page.getByRole("navigation", { name: "Objects" });
  await objects.getByRole("link", { name: /by_cut/ }).waitFor();
  await objects.getByText(SCRIPT.replaceAll('"', '""')).waitFor();
  await objects.getByRole("link", { name: /felled$/ }).press("Enter");
  await page.getByRole("heading", { name: "table public.felled" }).waitFor();
  await look(page, "console-diff");
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("c");
  const copied = await until("it is copied", () => page.evaluate(async () => (await navigator.clipboard.readText()).includes("ADD COLUMN") && navigator.clipboard.readText()));
  assert.match(copied, /ALTER TABLE public\.felled ADD COLUMN cut date DEFAULT CURRENT_DATE NOT NULL;/);

  // A branch that was sent to sleep is woken by nobody who only came by, and not by connecting.
  const sleeping = { scaleToZero: { enabled: false, inactivityPeriodMinutes: 60 }, hibernate: true };
  await api(`${await project()}/branches/${copy.id}`, { method: "PATCH", body: sleeping });
  await until("it sleeps", async () => (await branchNamed("grafted")).statusType === "STATUS_TYPE_HIBERNATED");
  await page.reload();
  await page.getByRole("button", { name: "Wake and compare" }).waitFor();
  await look(page, "console-diff-asleep");
  assert.equal((await branchNamed("grafted")).statusType, "STATUS_TYPE_HIBERNATED");
  await page.getByRole("button", { name: "Wake and compare" }).press("Enter");
  await objects.getByRole("link", { name: /by_cut/ }).waitFor();
  await page.getByLabel("Compare with").focus();

  // On the page of SQL a button wakes it.
  await api(`${await project()}/branches/${copy.id}`, { method: "PATCH", body: sleeping });
  await until("it sleeps again", async () => (await branchNamed("grafted")).statusType === "STATUS_TYPE_HIBERNATED");
  await page.goto(`${told.url}/console/${await place(copy, "sql")}`);
  await heading(page, "SQL");
  const wake = page.getByRole("button", { name: "Wake it" });
  await wake.waitFor();
  await look(page, "console-sql-sent-to-sleep");
  await wake.press("Enter");
  await wake.waitFor({ state: "detached" });
  await write(page, "select 6 * 7 as answer");
  await page.keyboard.press("Control+Enter");
  await page.getByRole("gridcell", { name: "42" }).waitFor();
  await leave(page);
  await api(`${await project()}/branches/${copy.id}`, { method: "DELETE" });
}

export async function what_is_stopped_ends_on_the_server_and_many_rows_stay_smooth(browser) {
  const main = await branchNamed("main");
  const page = await signedIn(browser, await place(main, "sql"));
  await heading(page, "SQL");
  await write(page, "select pg_sleep(600)");
  await page.keyboard.press("Control+Enter");
  const sleeping = async () =>
    (await rows(main, "select pid from pg_stat_activity where query = 'select pg_sleep(600)' and state = 'active'")).length;
  await until("it sleeps", async () => (await sleeping()) === 1);
  await page.getByRole("button", { name: /^Stop/ }).click();
  await page.getByText("The server was told to cancel it").waitFor();
  await until("it was cancelled", async () => (await sleeping()) === 0);

  await page.getByLabel("Max rows").selectOption("100000");
  await write(page, "select n, 'row ' || n as name from generate_series(1, 100000) n");
  await page.keyboard.press("Control+Enter");
  await page.getByText("SELECT 100,000 rows").waitFor();
  const grid = page.getByRole("grid");
  await grid.focus();
  await page.keyboard.press("Control+End");
  await grid.getByRole("gridcell", { name: "row 100000" }).waitFor();
  await until("only what is in view is drawn", async () => (await grid.getByRole("row").count()) < 100);
  await page.keyboard.press("Control+c");
  await until("it is copied", () => page.evaluate(async () => (await navigator.clipboard.readText()) === "row 100000"));
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV" }).click()]);
  const lines = readFileSync(await download.path(), "utf8").trimEnd().split("\r\n");
  assert.deepEqual([lines.length, lines[0], lines.at(-1)], [100_001, "n,name", "100000,row 100000"], "all of them");
  const [json] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "JSON" }).click()]);
  const objects = JSON.parse(readFileSync(await json.path(), "utf8"));
  assert.deepEqual([objects.length, objects.at(-1)], [100_000, { n: 100_000, name: "row 100000" }], "all of them");
  await leave(page);
}
