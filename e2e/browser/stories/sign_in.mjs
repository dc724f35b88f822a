// Signing in to a client, as people do.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { authorizeUrl, clientSite, form, got, heading, leave, look, person, signIn, told } from "../browser.mjs";

const implicit = (site, more = {}) =>
  authorizeUrl({
    response_type: "token",
    client_id: told.client,
    redirect_uri: `${site.address}/back`,
    scope: "org:read project:read project:write",
    state: "a & b",
    ...more,
  });

export async function a_client_gets_a_token_that_the_api_takes(browser) {
  const site = await clientSite();
  const page = await person(browser);
  await page.goto(implicit(site));
  await heading(page, "Sign in");
  await look(page, "sign-in");
  await signIn(page, told.email, "not the password");
  await page.getByRole("alert").waitFor();
  await look(page, "sign-in-wrong");
  assert.match(await page.title(), /^Error: /);
  const password = page.getByLabel("Password", { exact: true });
  const description = await password.getAttribute("aria-describedby");
  assert.ok((await page.locator(`#${description}`).textContent()).length > 0, "the field says what is wrong");
  assert.equal(await page.evaluate(() => document.activeElement.id), "password");
  assert.equal(await page.getByLabel("Email").inputValue(), told.email, "what was typed is kept");
  assert.equal(await password.inputValue(), "", "but not the password");

  await signIn(page, told.email, told.password);
  await heading(page, /^Allow .* to use your account\?$/);
  await look(page, "consent");
  await page.getByRole("button", { name: "Deny" }).click();
  const denied = await got(page);
  assert.equal(denied.error, "access_denied");
  assert.equal(denied.state, "a & b");
  assert.equal(denied.access_token, undefined);

  // Signed in already: only the question comes again.
  await page.goto(implicit(site));
  await page.getByRole("button", { name: "Allow" }).click();
  const allowed = await got(page);
  assert.equal(allowed.token_type, "Bearer");
  assert.equal(allowed.status, 200);
  assert.ok(allowed.body.organizations.length > 0, JSON.stringify(allowed));
  await leave(page);
  site.close();
}

export async function the_keyboard_is_enough(browser) {
  const site = await clientSite();
  const page = await person(browser);
  await page.goto(implicit(site));
  await heading(page, "Sign in");
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.textContent);
  assert.equal(await focused(), "email", "typing can begin at once");
  await page.keyboard.type(told.email);
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "password");
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(ring, "solid", "one sees where one is");
  await page.keyboard.type(told.password);
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "Sign in");
  await page.keyboard.press("Enter");
  await heading(page, /^Allow /);
  for (let presses = 0; (await focused()) !== "Allow"; presses += 1) {
    assert.ok(presses < 10, "the keyboard reaches the button");
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Space");
  assert.equal((await got(page)).status, 200);
  await leave(page);
  site.close();
}

export async function no_script_is_needed(browser) {
  const site = await clientSite();
  const page = await person(browser, { javaScriptEnabled: false });
  const verifier = randomBytes(32).toString("base64url");
  const code_challenge = createHash("sha256").update(verifier).digest("base64url");
  const redirect_uri = `${site.address}/back`;
  await page.goto(
    authorizeUrl({ response_type: "code", client_id: told.client, redirect_uri, code_challenge, code_challenge_method: "S256", state: "s" }),
  );
  await signIn(page, told.email, told.password);
  await page.getByRole("button", { name: "Allow" }).click();
  await page.waitForURL(`${redirect_uri}?**`);
  const answer = new URL(page.url()).searchParams;
  assert.equal(answer.get("state"), "s");
  const fields = { grant_type: "authorization_code", client_id: told.client, redirect_uri, code: answer.get("code"), code_verifier: verifier };
  const tokens = await form("/oauth/token", fields);
  assert.equal(tokens.status, 200, JSON.stringify(tokens.body));
  await leave(page);
  site.close();
}

export async function too_many_wrong_passwords_are_paused(browser) {
  const site = await clientSite();
  const page = await person(browser);
  await page.goto(implicit(site));
  for (let attempts = 0; ; attempts += 1) {
    assert.ok(attempts < 30, "somebody may guess for ever");
    await signIn(page, "nobody@example.com", `guess ${attempts} of a password`);
    await page.waitForLoadState();
    if ((await page.getByRole("heading", { level: 1 }).textContent()) !== "Sign in") break;
  }
  await heading(page, "Too many attempts");
  await look(page, "too-many");
  await leave(page);
  site.close();
}

export async function a_stranger_is_sent_nowhere(browser) {
  const page = await person(browser);
  await page.goto(authorizeUrl({ response_type: "token", client_id: told.client, redirect_uri: "https://evil.example/" }));
  assert.ok(page.url().startsWith(told.url), page.url());
  await page.getByRole("heading", { level: 1 }).waitFor();
  await look(page, "error");
  await leave(page);
}
