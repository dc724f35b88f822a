// Connecting a device that has no browser.
import assert from "node:assert/strict";
import { form, heading, leave, look, person, signIn, told } from "../browser.mjs";

const CLIENT = { client_id: told.cli?.id, client_secret: told.cli?.secret };
const GRANT = "urn:ietf:params:oauth:grant-type:device_code";

async function begin() {
  const begun = await form("/oauth/device_authorization", { ...CLIENT, scope: "openid offline_access" });
  assert.equal(begun.status, 200, JSON.stringify(begun.body));
  const poll = () => form("/oauth/token", { ...CLIENT, grant_type: GRANT, device_code: begun.body.device_code });
  return { ...begun.body, poll };
}

export async function a_device_is_connected(browser) {
  const device = await begin();
  assert.equal((await device.poll()).body.error, "authorization_pending");
  const page = await person(browser);
  await page.goto(device.verification_uri_complete);
  await signIn(page, told.email, told.password);
  await heading(page, "Connect a device");
  await look(page, "device-code");
  assert.equal(await page.getByLabel("Code").inputValue(), device.user_code);
  await page.getByLabel("Code").fill("BBBB-BBBB");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("alert").waitFor();
  await look(page, "device-code-wrong");
  await page.getByLabel("Code").fill(device.user_code.toLowerCase().replace("-", ""));
  await page.getByRole("button", { name: "Continue" }).click();
  await heading(page, /^Connect .*\?$/);
  assert.ok((await page.locator("main").innerText()).includes(device.user_code));
  await look(page, "device-confirmation");
  await page.getByRole("button", { name: "Allow" }).click();
  await heading(page, "Device connected");
  await look(page, "device-done");
  const tokens = await device.poll();
  assert.equal(tokens.status, 200, JSON.stringify(tokens.body));
  await leave(page);
}

export async function a_device_is_refused(browser) {
  const device = await begin();
  const page = await person(browser);
  await page.goto(device.verification_uri);
  await signIn(page, told.email, told.password);
  await page.getByLabel("Code").fill(device.user_code);
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("button", { name: "Deny" }).click();
  await heading(page, "Device refused");
  assert.equal((await device.poll()).body.error, "access_denied");
  await leave(page);
}
