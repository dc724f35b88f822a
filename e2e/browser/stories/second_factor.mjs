// A second factor from its beginning to its end.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { api, heading, leave, look, person, signIn, told } from "../browser.mjs";

const PASSWORD = "the first of two factors";
const PLACE = `${told.url}/account/second-factor`;

// What an authenticator app shows `ahead` steps from now (RFC 4226, RFC 6238).
function shown(secret, ahead = 0) {
  const bits = [...secret].map((letter) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(letter).toString(2).padStart(5, "0")).join("");
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => parseInt(byte, 2)));
  const step = Buffer.alloc(8);
  step.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000) + ahead));
  const hash = createHmac("sha1", key).update(step).digest();
  const number = hash.readUInt32BE(hash[19] & 15) & 0x7fffffff;
  return String(number % 1_000_000).padStart(6, "0");
}

export async function a_second_factor_is_added_used_and_removed(browser) {
  const email = "hedy@example.com";
  const { invite_link } = await api(`/organizations/${told.organization}/invitations`, { method: "POST", body: { email, role: "editor" } });
  const page = await person(browser);
  await page.goto(invite_link);
  await page.getByLabel("Your name").fill("Hedy");
  await page.getByLabel("Choose a password").fill(PASSWORD);
  await page.getByLabel("The same password again").fill(PASSWORD);
  await page.getByRole("button", { name: "Create the account and join" }).click();
  await heading(page, /^You are a member of /);

  await page.goto(`${told.url}/account/password`);
  await page.getByRole("link", { name: "Your second factor" }).click();
  await heading(page, "Add a second factor");
  await look(page, "second-factor-new");
  const add = async (code) => {
    await page.getByLabel("Code", { exact: true }).fill(code);
    await page.getByRole("button", { name: "Add the second factor" }).click();
    await page.waitForLoadState();
  };
  const secret = (await page.locator(".secret").textContent()).replaceAll(" ", "").trim();
  await add("000000");
  await page.getByRole("alert").waitFor();
  await look(page, "second-factor-new-wrong");
  assert.equal((await page.locator(".secret").textContent()).replaceAll(" ", "").trim(), secret, "the app keeps it");
  await add(shown(secret));
  await heading(page, "Your recovery codes");
  await look(page, "recovery-codes");
  const codes = await page.locator(".codes li").allTextContents();
  assert.equal(codes.length, 10);

  const elsewhere = await person(browser);
  await elsewhere.goto(PLACE);
  await signIn(elsewhere, email, PASSWORD);
  await heading(elsewhere, "Second step");
  await look(elsewhere, "second-step");
  assert.equal(await elsewhere.evaluate(() => document.activeElement.id), "code", "typing can begin at once");
  await elsewhere.keyboard.type("000000");
  await elsewhere.keyboard.press("Enter");
  await elsewhere.getByRole("alert").waitFor();
  await look(elsewhere, "second-step-wrong");
  await elsewhere.getByLabel("Code", { exact: true }).fill(codes[0]);
  await elsewhere.getByRole("button", { name: "Continue" }).click();
  await heading(elsewhere, "Your second factor");
  await elsewhere.getByText("9 are left.").waitFor();
  await look(elsewhere, "second-factor");

  const form = elsewhere.locator("form").last();
  const remove = async (password, code) => {
    await form.getByLabel("Password").fill(password);
    await form.getByLabel("Code", { exact: true }).fill(code);
    await elsewhere.getByRole("button", { name: "Remove the second factor" }).click();
    await elsewhere.waitForLoadState();
  };
  await remove("not the password", codes[1]);
  await elsewhere.getByRole("alert").waitFor();
  await look(elsewhere, "second-factor-wrong");
  assert.equal(await elsewhere.evaluate(() => document.activeElement.id), "password");
  await remove(PASSWORD, codes[1]);
  await heading(elsewhere, "Second factor removed");
  await look(elsewhere, "second-factor-removed");

  // The password alone does again, also here.
  await page.goto(PLACE);
  await signIn(page, email, PASSWORD);
  await heading(page, "Add a second factor");
  await leave(page);
  await leave(elsewhere);
}
