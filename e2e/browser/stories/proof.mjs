// Showing anew who one is, before what can't be undone.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { heading, leave, look, signIn, told } from "../browser.mjs";
import { project, signedIn } from "../console.mjs";

// As if every browser had been signed in for an hour.
function age() {
  const sql = "update browser_sessions set signed_in_at = now() - interval '1 hour'";
  execFileSync("psql", [told.others.metastore, "-v", "ON_ERROR_STOP=1", "-c", sql], { stdio: "pipe" });
}

async function makeKey(page, name, preset) {
  await page.keyboard.press("n");
  await page.getByLabel("Name").fill(name);
  await page.getByRole("radio", { name: preset }).check();
  await page.getByRole("button", { name: "Make it" }).press("Enter");
}

export async function who_was_asked_long_ago_is_asked_before_what_cannot_be_undone(browser) {
  const page = await signedIn(browser, `orgs/${told.organization}/keys`);
  await heading(page, "Keys");
  const refused = async (method, path, body) =>
    page.evaluate(
      async ([method, path, body]) => {
        const headers = { "X-Coppice-Console": "1", "Content-Type": "application/json" };
        const answer = await fetch(`/console/api${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }) });
        return [answer.status, (await answer.json().catch(() => ({}))).id];
      },
      [method, path, body],
    );
  const organization = `/organizations/${told.organization}`;
  const everything = { name: "all", scopes: ["*"] };
  const asking = [
    ["DELETE", organization],
    ["DELETE", await project()],
    ["PUT", `${organization}/members/usr_nobody/role`, { role: "viewer" }],
    ["POST", `${organization}/invitations`, { email: "nobody@example.com", role: "admin" }],
    ["POST", `${organization}/invitations/inv_nowhere/resend`],
    ["POST", `${organization}/deletion-request`],
    ["POST", `${organization}/api-keys`, everything],
    ["POST", `${organization}/api-keys`, { name: "nearly all", scopes: ["project:read", "project:write"] }],
    ["POST", "/api-keys", everything],
  ];
  page.refusals.push([403, "/console/api/"]);
  age();
  for (const [method, path, body] of asking) {
    assert.deepEqual(await refused(method, path, body), [403, "fresh_sign_in_required"], `${method} ${path}`);
  }

  // What can be undone goes on as ever.
  await page.keyboard.press("Escape");
  await makeKey(page, "looks only", "Look only");
  await page.getByRole("button", { name: "I have it" }).click();

  await makeKey(page, "does it all", "Everything");
  await heading(page, "Is it you?");
  await look(page, "console-is-it-you");
  await page.keyboard.press("Escape");
  await page.getByText("sign in again, then ask once more").waitFor();
  await page.getByRole("button", { name: "Make it" }).press("Enter");
  const again = page.getByRole("button", { name: "Sign in again" });
  const [popup] = await Promise.all([page.waitForEvent("popup"), again.press("Enter")]);
  await page.getByRole("button", { name: "Open it again" }).waitFor();
  const closed = popup.waitForEvent("close");
  await signIn(popup, told.email, told.password);
  await closed;
  await heading(page, "The key does it all");
  assert.match(await page.locator(".secret code").textContent(), /^pko_/, "it went on by itself");
  await leave(page);
}
