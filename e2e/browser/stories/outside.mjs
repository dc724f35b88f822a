// Signing in at somebody else's provider.
import assert from "node:assert/strict";
import { api, authorizeUrl, heading, leave, look, person, signIn, told } from "../browser.mjs";

const BUTTON = "Continue with Example ID";

// From the page to sign in on to the provider, and there as `email`.
async function continueAt(page, email) {
  await page.getByRole("link", { name: BUTTON }).click();
  await page.locator("input[name=login]").fill(email);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
  await page.getByRole("button", { name: "Continue" }).click();
}

async function begin(browser, options) {
  const page = await person(browser, options);
  await page.goto(`${told.url}/account/password`);
  await heading(page, "Sign in");
  return page;
}

// Changes what the provider's answer says on its way through the browser; null takes it away.
async function tamper(changes) {
  await fetch(`${told.others.issuer}/tamper`, { method: "POST", body: JSON.stringify(changes) });
}

export async function a_person_is_recognised_by_the_verified_address(browser) {
  const page = await begin(browser);
  await look(page, "outside-sign-in");
  let answer;
  page.on("request", (request) => {
    if (request.url().includes("/oauth/outside/callback?")) answer = request.url();
  });
  // However it is written.
  await continueAt(page, told.email.toUpperCase());
  await heading(page, "Change your password");
  assert.equal(await page.getByLabel("Email").inputValue(), told.email);
  const cookies = await page.context().cookies(told.url);
  assert.ok(cookies.every((cookie) => cookie.httpOnly && cookie.sameSite === "Lax"), JSON.stringify(cookies));
  assert.ok(!cookies.some((cookie) => cookie.name.includes("outside")), "the attempt is over");

  // What came back counts once, and in this browser only.
  for (const there of [page, await person(browser)]) {
    await there.goto(answer);
    await heading(there, "This sign-in can't be completed");
    await look(there, "outside-foreign");
    await leave(there);
  }
}

export async function no_script_is_needed(browser) {
  const page = await begin(browser, { javaScriptEnabled: false });
  await continueAt(page, told.email);
  await heading(page, "Change your password");
  await leave(page);
}

export async function an_answer_to_another_attempt_is_refused(browser) {
  const changes = [
    { state: "x".repeat(43) },
    { state: null },
    // Another provider's answer, mixed up with this one's.
    { iss: "https://evil.example" },
    { iss: null },
    { code: "made-up" },
  ];
  for (const change of changes) {
    await tamper(change);
    const page = await begin(browser);
    await continueAt(page, told.email);
    await heading(page, "This sign-in can't be completed");
    await page.goto(`${told.url}/account/password`);
    await heading(page, "Sign in");
    await leave(page);
  }
  await tamper({});
}

export async function a_token_for_another_attempt_is_refused(browser) {
  const page = await begin(browser);
  await continueAt(page, told.email);
  await heading(page, "This sign-in can't be completed");
  await leave(page);
}

export async function an_address_that_nobody_verified_is_refused(browser) {
  const page = await begin(browser);
  await continueAt(page, "unverified@example.com");
  await heading(page, "Your email address is not verified");
  await look(page, "outside-unverified");
  await leave(page);
}

export async function a_stranger_gets_no_account(browser) {
  const page = await begin(browser);
  await continueAt(page, "stranger@example.com");
  await heading(page, "You have no account here");
  await look(page, "outside-no-account");
  await leave(page);
}

export async function giving_up_leaves_little_behind(browser) {
  const page = await begin(browser);
  for (let attempts = 0; attempts < 12; attempts += 1) {
    await page.getByRole("link", { name: BUTTON }).click();
    await page.locator("input[name=login]").waitFor();
    await page.goBack();
    await heading(page, "Sign in");
  }
  const cookies = await page.context().cookies(told.url);
  const attempts = cookies.filter((cookie) => cookie.name.includes("outside"));
  assert.ok(attempts.length <= 4, `${attempts.length} attempts are kept`);
  await continueAt(page, told.email);
  await heading(page, "Change your password");
  await leave(page);
}

export async function passwords_are_not_accepted(browser) {
  const page = await begin(browser);
  assert.equal(await page.locator("input[type=password]").count(), 0);
  await look(page, "outside-only");
  await continueAt(page, told.email);
  await heading(page, "There are no passwords here");
  await look(page, "outside-no-passwords");
  await leave(page);
}

export async function everybody_gets_an_account(browser) {
  const page = await begin(browser);
  await continueAt(page, "Welcome@example.com");
  await heading(page, /password$/);
  await look(page, "outside-first-password");
  await leave(page);
}

export async function an_invited_person_gets_an_account(browser) {
  const email = "alan@example.com";
  const path = `/organizations/${told.organization}/invitations`;
  const { invite_link } = await api(path, { method: "POST", body: { email, role: "viewer" } });
  const page = await person(browser);
  await page.goto(invite_link);
  await look(page, "outside-invitation");
  await continueAt(page, email);
  await heading(page, /^Join /);
  await page.getByRole("button", { name: "Accept the invitation" }).click();
  await heading(page, /^You are a member of /);
  await leave(page);
}

// What a page of ours gives to a client that needs no consent, and what that says.
async function tokenOf(page) {
  const parameters = { client_id: "console", response_type: "token", redirect_uri: `${told.url}/callback`, scope: "openid *" };
  await page.goto(authorizeUrl(parameters));
  const token = new URLSearchParams(new URL(page.url()).hash.slice(1)).get("access_token");
  assert.ok(token, page.url());
  return { token, claims: JSON.parse(Buffer.from(token.split(".")[1], "base64url")) };
}

async function statusWith(token) {
  return (await fetch(`${told.url}/user`, { headers: { authorization: `Bearer ${token}` } })).status;
}

export async function an_account_that_somebody_else_made_is_its_owners(browser) {
  const email = "owner@example.com";
  const password = "of somebody else entirely";
  const path = `/organizations/${told.organization}/invitations`;
  // Whoever invites sees the link, and may use it.
  const { invite_link } = await api(path, { method: "POST", body: { email, role: "viewer" } });
  const inviter = await person(browser);
  await inviter.goto(invite_link);
  await inviter.getByLabel("Your name").fill("Not the owner");
  await inviter.getByLabel("Choose a password").fill(password);
  await inviter.getByLabel("The same password again").fill(password);
  await inviter.getByRole("button", { name: "Create the account and join" }).click();
  await heading(inviter, /^You are a member of /);
  const before = await tokenOf(inviter);
  assert.equal(before.claims.email_verified, false);
  const { key } = await api("/api-keys", { method: "POST", body: { name: "kept" }, token: before.token });
  for (const credential of [before.token, key.token]) assert.equal(await statusWith(credential), 200);

  const owner = await begin(browser);
  await continueAt(owner, email);
  await heading(owner, "This account is yours now");
  await owner.getByText("still a member of 1 organization").waitFor();
  await look(owner, "outside-taken");
  await owner.getByRole("link", { name: "Go on" }).click();
  await heading(owner, "Set a password");
  const after = await tokenOf(owner);
  assert.deepEqual([after.claims.sub, after.claims.email_verified], [before.claims.sub, true]);
  for (const credential of [before.token, key.token]) assert.equal(await statusWith(credential), 401);
  await inviter.goto(`${told.url}/account/password`);
  await signIn(inviter, email, password);
  await inviter.getByRole("alert").waitFor();
  assert.equal(await statusWith(after.token), 200);
  await leave(inviter);
  await leave(owner);
}

// The provider knows the person, and does not ask although it should.
export async function nobody_sets_a_password_whom_the_provider_did_not_ask(browser) {
  const page = await begin(browser);
  await continueAt(page, "silent@example.com");
  for (let times = 0; times < 2; times += 1) {
    await heading(page, "Show who you are first");
    assert.equal(await page.locator("input[type=password]").count(), 0);
    if (times === 0) await look(page, "outside-not-asked");
    await page.getByRole("link", { name: "Sign in again" }).click();
    await page.getByRole("link", { name: BUTTON }).click();
  }
  await heading(page, "Show who you are first");
  await leave(page);
}

export async function an_invited_person_gets_no_account(browser) {
  const email = "barbara@example.com";
  const path = `/organizations/${told.organization}/invitations`;
  const { invite_link } = await api(path, { method: "POST", body: { email, role: "viewer" } });
  const page = await begin(browser);
  await page.goto(invite_link);
  await heading(page, "You need an account first");
  assert.equal(await page.getByRole("button").count(), 0, "nothing can be sent");
  await look(page, "invitation-no-accounts");
  await page.goto(`${told.url}/account/password`);
  await continueAt(page, email);
  await heading(page, "You have no account here");
  await page.getByText("Ask the operator of this installation").waitFor();
  await leave(page);
}

export async function a_person_may_go_back_from_there(browser) {
  const page = await begin(browser);
  await page.getByRole("link", { name: BUTTON }).click();
  await page.getByRole("link", { name: "[ Cancel ]" }).click();
  await heading(page, "You are not signed in");
  await look(page, "outside-cancelled");
  await page.getByRole("link", { name: "Begin again" }).click();
  await heading(page, "Sign in");
  await leave(page);
}

export async function a_provider_that_is_down_is_named_and_passwords_work(browser) {
  const page = await begin(browser);
  await page.getByRole("link", { name: BUTTON }).click();
  await heading(page, "Example ID does not answer");
  await look(page, "outside-down");
  await page.getByRole("link", { name: "Begin again" }).click();
  await signIn(page, told.email, told.password);
  await heading(page, "Change your password");
  await leave(page);
}

// Soon after what was wrong is over, but perhaps not at once.
export async function a_person_signs_in_at_last(browser) {
  const deadline = Date.now() + 120_000;
  for (;;) {
    const page = await begin(browser);
    await page.getByRole("link", { name: BUTTON }).click();
    await page.waitForLoadState();
    if (!page.url().startsWith(told.url)) {
      await page.goBack();
      await continueAt(page, told.email);
      const title = await page.getByRole("heading", { level: 1 }).textContent();
      if (title === "Change your password") return leave(page);
    }
    assert.ok(Date.now() < deadline, `still: ${await page.title()}`);
    await page.context().close();
  }
}
