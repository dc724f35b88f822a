// Getting an account, and keeping it.
import assert from "node:assert/strict";
import { api, heading, leave, look, person, signIn, told } from "../browser.mjs";

const PASSWORD = "a stump with a new shoot";

async function invite(email) {
  const organization = told.organization;
  const invitation = await api(`/organizations/${organization}/invitations`, { method: "POST", body: { email, role: "editor" } });
  assert.ok(invitation.invite_link, "whoever may invite is shown the link");
  return invitation;
}

async function members() {
  const answer = await api(`/organizations/${told.organization}/members`);
  return (answer.members ?? answer).map((member) => `${member.email} ${member.role}`);
}

export async function a_new_person_accepts_an_invitation(browser) {
  const email = "grace@example.com";
  const { invite_link } = await invite(email);
  const page = await person(browser);
  await page.goto(invite_link);
  await heading(page, /^Join /);
  await look(page, "invitation-new");
  const fill = async (password, again) => {
    await page.getByLabel("Your name").fill("Grace");
    await page.getByLabel("Choose a password").fill(password);
    await page.getByLabel("The same password again").fill(again);
    await page.getByRole("button", { name: "Create the account and join" }).click();
  };
  await fill(PASSWORD, "something else entirely");
  await page.getByRole("alert").waitFor();
  await look(page, "invitation-new-wrong");
  assert.equal(await page.evaluate(() => document.activeElement.id), "repeated");
  assert.equal(await page.getByLabel("Your name").inputValue(), "Grace", "what was typed is kept");
  await fill(PASSWORD, PASSWORD);
  await heading(page, /^You are a member of /);
  await look(page, "invitation-accepted");
  assert.ok((await members()).includes(`${email} editor`));

  // A link works once, and says so.
  await page.goto(invite_link);
  await heading(page, "This invitation no longer exists");
  await look(page, "invitation-gone");

  // Whoever accepted is signed in and has a password.
  await page.goto(`${told.url}/account/password`);
  await heading(page, "Change your password");
  await leave(page);
}

export async function somebody_with_an_account_signs_in_to_accept(browser) {
  const email = "linus@example.com";
  const first = await invite(email);
  const page = await person(browser);
  await page.goto(first.invite_link);
  await page.getByLabel("Your name").fill("Linus");
  await page.getByLabel("Choose a password").fill(PASSWORD);
  await page.getByLabel("The same password again").fill(PASSWORD);
  await page.getByRole("button", { name: "Create the account and join" }).click();
  await heading(page, /^You are a member of /);
  await leave(page);
  const users = await api(`/organizations/${told.organization}/members`);
  const user = (users.members ?? users).find((member) => member.email === email);
  await api(`/organizations/${told.organization}/members/${user.id}`, { method: "DELETE" });
  const { invite_link } = await invite(email);

  // Somebody else has the link open.
  const other = await person(browser);
  await other.goto(`${told.url}/account/password`);
  await signIn(other, told.email, told.password);
  await heading(other, "Change your password");
  await other.goto(invite_link);
  await other.getByRole("alert").waitFor();
  assert.equal(await other.getByRole("button").count(), 0, "they can't accept it");
  await look(other, "invitation-other");
  await leave(other);

  const back = await person(browser);
  await back.goto(invite_link);
  await look(back, "invitation-known");
  await back.getByRole("link", { name: "Sign in to accept" }).click();
  await signIn(back, email, PASSWORD);
  await heading(back, /^Join /);
  await look(back, "invitation-invited");
  await back.getByRole("button", { name: "Accept the invitation" }).click();
  await heading(back, /^You are a member of /);
  assert.ok((await members()).includes(`${email} editor`));
  await leave(back);
}

export async function a_password_is_changed(browser) {
  const email = "barbara@example.com";
  const { invite_link } = await invite(email);
  const page = await person(browser);
  await page.goto(invite_link);
  await page.getByLabel("Your name").fill("Barbara");
  await page.getByLabel("Choose a password").fill(PASSWORD);
  await page.getByLabel("The same password again").fill(PASSWORD);
  await page.getByRole("button", { name: "Create the account and join" }).click();
  await heading(page, /^You are a member of /);

  const elsewhere = await person(browser);
  await elsewhere.goto(`${told.url}/account/password`);
  await signIn(elsewhere, email, PASSWORD);
  await heading(elsewhere, "Change your password");

  await page.goto(`${told.url}/account/password`);
  await look(page, "password");
  const change = async (current, next, again = next) => {
    await page.getByLabel("Current password").fill(current);
    await page.getByLabel("New password").fill(next);
    await page.getByLabel("The same password again").fill(again);
    await page.getByRole("button", { name: "Change the password" }).click();
    await page.waitForLoadState();
  };
  await change("not the password", "another shoot of the stump");
  await page.getByRole("alert").waitFor();
  await look(page, "password-wrong");
  assert.equal(await page.evaluate(() => document.activeElement.id), "password");
  await change(PASSWORD, "another shoot of the stump");
  await heading(page, "Password changed");
  await look(page, "password-changed");

  // Here one stays signed in, elsewhere not.
  await page.goto(`${told.url}/account/password`);
  await heading(page, "Change your password");
  await elsewhere.goto(`${told.url}/account/password`);
  await signIn(elsewhere, email, PASSWORD);
  await elsewhere.getByRole("alert").waitFor();
  await signIn(elsewhere, email, "another shoot of the stump");
  await heading(elsewhere, "Change your password");
  await leave(page);
  await leave(elsewhere);
}

export async function signing_out_is_asked_and_done(browser) {
  const page = await person(browser);
  await page.goto(`${told.url}/account/password`);
  await signIn(page, told.email, told.password);
  await heading(page, "Change your password");
  await page.goto(`${told.url}/oauth/logout`);
  await heading(page, "Sign out?");
  await look(page, "sign-out");
  await page.getByRole("button", { name: "Sign out" }).click();
  await heading(page, "Signed out");
  await look(page, "signed-out");
  await page.goto(`${told.url}/account/password`);
  await heading(page, "Sign in");
  await leave(page);
}
