// What people connect their organization with.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { createServer } from "node:http";
import { api, heading, leave, look, told } from "../browser.mjs";
import { branchNamed, project, signedIn, until } from "../console.mjs";

// Whoever listens for deliveries: answers with this status, and keeps what it got.
async function receiver() {
  const got = { status: 410, deliveries: [] };
  const server = createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    got.deliveries.push({ headers: request.headers, body: Buffer.concat(pieces).toString() });
    response.writeHead(got.status).end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return Object.assign(got, { url: `http://127.0.0.1:${server.address().port}/hook`, close: () => server.close() });
}

// Whether a delivery is signed with this secret, as Standard Webhooks says.
function isSigned({ headers, body }, secret) {
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  const signed = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`;
  const signature = `v1,${createHmac("sha256", key).update(signed).digest("base64")}`;
  return headers["webhook-signature"].split(" ").includes(signature);
}

async function secretShown(page) {
  const secret = await page.locator(".secret code").textContent();
  assert.match(secret, /^whsec_/);
  return secret;
}

export async function a_webhook_is_told_and_what_failed_is_sent_again(browser) {
  const listener = await receiver();
  const page = await signedIn(browser, `orgs/${told.organization}/audit`);
  await heading(page, "Audit log");
  await page.keyboard.press("g");
  await page.keyboard.press("w");
  await heading(page, "Integrations");
  await page.getByRole("heading", { name: "This platform has no GitHub App" }).waitFor();
  await page.getByRole("heading", { name: "No webhooks yet" }).waitFor();
  await look(page, "console-integrations-none");

  await page.keyboard.press("n");
  page.refusals.push([400, "/webhooks"]);
  await page.getByLabel("Where to").fill("http://10.0.0.1/hook");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").getByRole("alert").waitFor();
  await page.getByLabel("Where to").fill(listener.url);
  await page.getByLabel("What it is for").fill("chat");
  const choice = page.getByRole("group", { name: "It is told of" });
  await choice.getByLabel("Only these").check();
  for (const type of ["key made", "key deleted", "ready"]) await choice.getByLabel(type, { exact: true }).check();
  await look(page, "console-webhook-new");
  await page.getByLabel("Where to").press("Enter");
  await heading(page, "The secret of the webhook");
  const secret = await secretShown(page);
  await look(page, "console-webhook-secret");
  await page.getByRole("button", { name: "I have it" }).click();
  assert.ok(!(await page.content()).includes(secret), "it is not shown again");
  await page.getByText("3 types of events").waitFor();
  await look(page, "console-integrations");
  await page.getByRole("link", { name: "chat" }).press("Enter");
  await heading(page, "chat");
  await page.getByRole("heading", { name: "Nothing was sent yet" }).waitFor();

  // Its receiver says that it is gone; what was due to it is sent again once it is not.
  const { key } = await api(`/organizations/${told.organization}/api-keys`, {
    method: "POST",
    body: { name: "told of", scopes: ["org:read"] },
  });
  const deliveries = page.getByRole("region", { name: "Deliveries" });
  const item = (type) => deliveries.getByRole("listitem").filter({ hasText: type });
  const row = item("key.created");
  await row.getByText("Given up").waitFor();
  await page.getByText("Its receiver answered 410").waitFor();
  await look(page, "console-webhook-gone");
  assert.ok(isSigned(listener.deliveries[0], secret));
  listener.status = 204;
  await page.getByRole("button", { name: "Turn it on" }).press("Enter");
  await page.getByRole("button", { name: "Turn it off" }).waitFor();
  await row.getByRole("button", { name: "Send again" }).press("Enter");
  await row.getByText("Delivered").waitFor();
  const [first, again] = listener.deliveries;
  assert.equal(again.headers["webhook-id"], first.headers["webhook-id"]);
  assert.equal(JSON.parse(again.body).data.key_id, key.id);

  await page.getByRole("button", { name: "New secret" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Replace it" }).click();
  await heading(page, "The new secret");
  const next = await secretShown(page);
  await page.getByRole("button", { name: "I have it" }).click();
  await page.getByText("Its secret was replaced").waitFor();
  await api(`/organizations/${told.organization}/api-keys`, { method: "DELETE", body: { ids: [key.id] } });
  await item("key.deleted").getByText("Delivered").waitFor();
  assert.ok([secret, next].every((one) => isSigned(listener.deliveries[2], one)), "by both");
  await look(page, "console-webhook");
  // The page may ask for it once more before it is left.
  page.refusals.push([404, `/webhooks/${new URL(page.url()).pathname.split("/").at(-1)}`]);
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await heading(page, "Integrations");
  await page.getByRole("heading", { name: "No webhooks yet" }).waitFor();
  await leave(page);
  listener.close();
}

export async function an_installation_is_linked_and_a_repository_mapped(browser) {
  const page = await signedIn(browser, `orgs/${told.organization}/integrations`);
  await heading(page, "Integrations");
  const install = page.getByRole("link", { name: "Install it at GitHub" });
  await install.waitFor();
  assert.equal(await install.getAttribute("href"), `${told.others.github}/apps/coppice/installations/new`);
  await look(page, "console-github-none");

  // Where GitHub leads whoever has installed it; what is there is all that is to be pasted.
  const back = await page.context().newPage();
  await back.goto(`${told.url}/github/setup?installation_id=100&code=${told.others.code}`);
  const command = await back.getByText(/^coppice github link/).textContent();
  await back.close();
  await page.getByRole("button", { name: "Link an installation" }).press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Installation, or the whole command").fill("100");
  page.refusals.push([400, "/githubapp/installations"], [403, "/githubapp/installations"]);
  await dialog.getByLabel("Code").fill("made-up");
  await page.keyboard.press("Enter");
  await dialog.getByText("does not say that installation 100 is yours").waitFor();
  await look(page, "console-github-refused");
  await dialog.getByLabel("Code").fill(command);
  assert.equal(await dialog.getByLabel("Code").inputValue(), told.others.code);
  await page.keyboard.press("Enter");
  await page.getByText("Installation 100").waitFor();

  const row = page.getByRole("row", { name: /^default/ });
  await row.getByRole("button", { name: "Map" }).press("Enter");
  await dialog.getByLabel("The repository's number at GitHub").fill(String(told.others.repository));
  await look(page, "console-github-map");
  await page.keyboard.press("Enter");
  await row.getByText(String(told.others.repository)).waitFor();
  const main = await branchNamed("main");
  const mapping = async () => (await api(`${await project()}/branches/${main.id}/githubapp/repository`)).mapping;
  const { rootBranchId, previews, forks } = await mapping();
  assert.deepEqual([rootBranchId, previews, forks], [main.id, true, false]);
  await row.getByLabel(/^Those from forks/).press("Space");
  await until("forks have branches", async () => (await mapping()).forks);
  await look(page, "console-github");
  await row.getByLabel(/^Those from forks/).press("Space");
  await until("they have none again", async () => !(await mapping()).forks);
  await row.getByRole("button", { name: "Unmap" }).press("Enter");
  await heading(page, "Unmap the repository of default?");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await leave(page);
}
