// A passkey from its beginning to its end, with devices that Chromium makes up.
import assert from "node:assert/strict";
import { api, clientSite, heading, leave, look, person, signIn, told } from "../browser.mjs";

const PASSWORD = "the first of two factors";
const PLACE = `${told.url}/account/passkeys`;

// Gives the browser a device that its person has just unlocked; returns how to take it away.
async function device(page, transport) {
  const session = await page.context().newCDPSession(page);
  await session.send("WebAuthn.enable");
  const { authenticatorId } = await session.send("WebAuthn.addVirtualAuthenticator", {
    options: {
      protocol: "ctap2",
      transport,
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
  return () => session.send("WebAuthn.removeVirtualAuthenticator", { authenticatorId });
}

async function add(page, name) {
  await page.getByLabel("Name").fill(name);
  await page.getByRole("button", { name: "Add a passkey" }).click();
}

async function halfWay(page, email) {
  await page.context().clearCookies();
  await page.goto(PLACE);
  await signIn(page, email, PASSWORD);
  await heading(page, "Second step");
}

// What the page's form carries, and what the device is asked there.
async function question(page) {
  const form = page.locator("form");
  const field = (name) => form.locator(`[name=${name}]`).inputValue();
  const options = JSON.parse(await page.locator("[data-passkey]").getAttribute("data-options"));
  const action = new URL(await form.getAttribute("action"), page.url()).href;
  return { action, options, fields: { csrf: await field("csrf"), next: await field("next") } };
}

// What the device says at the page that is open.
async function signed(page, options) {
  return page.evaluate(async (options) => {
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
    return JSON.stringify((await navigator.credentials.get({ publicKey })).toJSON());
  }, options);
}

async function post(page, { action, fields }, passkey) {
  const answer = await page.context().request.post(action, { form: { ...fields, passkey }, maxRedirects: 0 });
  return { status: answer.status(), text: await answer.text() };
}

export async function a_passkey_is_added_used_and_removed(browser) {
  const email = "annie@example.com";
  const { invite_link } = await api(`/organizations/${told.organization}/invitations`, { method: "POST", body: { email, role: "editor" } });
  const page = await person(browser);
  await page.goto(invite_link);
  await page.getByLabel("Your name").fill("Annie");
  await page.getByLabel("Choose a password").fill(PASSWORD);
  await page.getByLabel("The same password again").fill(PASSWORD);
  await page.getByRole("button", { name: "Create the account and join" }).click();
  await heading(page, /^You are a member of /);

  // The first one, which ends what was begun without.
  const takeAway = await device(page, "internal");
  await page.goto(`${told.url}/account/second-factor`);
  await page.getByRole("link", { name: "use a passkey instead" }).click();
  await heading(page, "Your passkeys");
  await look(page, "passkeys-none");
  await add(page, "Laptop");
  await heading(page, "Your recovery codes");
  const codes = await page.locator(".codes li").allTextContents();
  await page.goto(PLACE);
  await page.getByText("It is your only second factor").waitFor();
  await look(page, "passkeys");
  await add(page, "Laptop again");
  await page.getByRole("alert").getByText("has a passkey of yours already").waitFor();

  // Signing in takes it, and nothing else that looks like it.
  await halfWay(page, email);
  await look(page, "second-step-passkey");
  const asked = await question(page);
  const evil = await clientSite();
  await page.goto(evil.address.replace("127.0.0.1", "localhost"));
  const foreign = await post(page, asked, await signed(page, asked.options));
  assert.equal(foreign.status, 401, "said at another site");
  assert.match(foreign.text, /was not accepted/);
  evil.close();
  await halfWay(page, email);
  const first = await question(page);
  const answer = await signed(page, first.options);
  assert.equal((await post(page, first, answer)).status, 303);
  assert.notEqual((await post(page, first, answer)).status, 303, "said once");
  await halfWay(page, email);
  assert.equal((await post(page, await question(page), answer)).status, 401, "said to another question");
  await halfWay(page, email);
  await page.getByRole("button", { name: "Use a passkey" }).click();
  await heading(page, "Your passkeys");
  await page.getByText(/Last used on /).waitFor();

  // Another one, and the first one is lost.
  await takeAway();
  await device(page, "usb");
  await page.reload();
  await add(page, "Key");
  await page.getByText("Key", { exact: true }).waitFor();
  await look(page, "passkeys-two");
  await page.getByRole("button", { name: "Remove Laptop" }).click();
  await page.getByText("Laptop", { exact: true }).waitFor({ state: "detached" });
  await halfWay(page, email);
  await page.getByLabel("Code", { exact: true }).fill(codes[0]);
  await page.getByRole("button", { name: "Continue" }).click();
  await heading(page, "Your passkeys");

  // All of it goes with the password and a passkey.
  await page.getByRole("link", { name: "remove your second factor" }).click();
  await heading(page, "Your second factor");
  await page.getByText("9 are left.").waitFor();
  await look(page, "second-factor-passkey");
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Remove it with a passkey" }).click();
  await heading(page, "Second factor removed");
  await page.goto(PLACE);
  await signIn(page, email, PASSWORD);
  await heading(page, "Your passkeys");
  await leave(page);
}
