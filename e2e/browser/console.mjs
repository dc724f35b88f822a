// What the stories about the console share.
import assert from "node:assert/strict";
import { PATIENCE, api, heading, person, signIn, told } from "./browser.mjs";

export async function project() {
  const { projects } = await api(`/organizations/${told.organization}/projects`);
  return `/organizations/${told.organization}/projects/${projects[0].id}`;
}

export async function branchNamed(name) {
  const { branches } = await api(`${await project()}/tree`);
  return branches.find((branch) => branch.name === name);
}

// Waits for something outside of the page.
export async function until(what, done) {
  const deadline = Date.now() + PATIENCE;
  for (;;) {
    const found = await done();
    if (found) return found;
    assert.ok(Date.now() < deadline, `waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

// Signs out. What the pages asked just before is refused then.
export async function signOut(page) {
  page.refusals.push([401, "/console/api/"]);
  await page.getByRole("button", { name: /^Your account/ }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await heading(page, "Sign in");
}

// A person who is signed in, at this place of the console.
export async function signedIn(browser, place = "") {
  const page = await person(browser, { permissions: ["clipboard-read", "clipboard-write"] });
  await page.goto(`${told.url}/console/${place}`);
  await signIn(page, told.email, told.password);
  return page;
}
