// A real browser, and what every story does with it.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SIZES = { desktop: { width: 1280, height: 800 }, phone: { width: 375, height: 740 } };
// How long a busy machine may take: longer than what a page asks for once a minute.
export const PATIENCE = 120_000;

// What the test that started this tells of its platform.
export const told = JSON.parse(process.env.COPPICE_BROWSER);

export async function launch() {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium-headless-shell";
  // Chromium refuses its own sandbox to root; these pages are ours.
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

// A person with a browser of their own: nothing is kept from one to the next. Whatever a page of ours
// complains of on the console fails the story, and so does asking another machine for anything. What the
// story lets be refused by the door is in `refusals`, each as a status and a part of the address.
export async function person(browser, options = {}) {
  // What moves has the colours of neither its beginning nor its end while axe looks at it.
  const context = await browser.newContext({ viewport: SIZES.desktop, reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  page.complaints = [];
  page.refusals = [];
  await context.route((address) => !["127.0.0.1", "localhost"].includes(address.hostname), (route) => {
    const from = route.request().frame().url();
    if (from.startsWith(told.url)) page.complaints.push(`${from} asks for ${route.request().url()}`);
    return route.abort();
  });
  page.on("console", (message) => {
    const { url } = message.location();
    if (!["error", "warning"].includes(message.type()) || !url.startsWith(told.url)) return;
    const [, status] = /^Failed to load resource: the server responded with a status of (\d+)/.exec(message.text()) ?? [];
    // A page for people that says no has a status that says so, which is no complaint.
    if (status && !url.startsWith(`${told.url}/console/`)) return;
    if (page.refusals.some(([code, part]) => `${code}` === status && url.includes(part))) return;
    page.complaints.push(`${message.text()} (${url})`);
  });
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  return page;
}

export async function leave(page) {
  assert.deepEqual(page.complaints, [], "the browser complains");
  await page.context().close();
}

// Looks at a page in both schemes and sizes, asks axe, and takes pictures for whoever wants some.
export async function look(page, name) {
  if (told.pictures) mkdirSync(told.pictures, { recursive: true });
  assert.match(await page.title(), / · Coppice$/, "a title says where one is");
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const [size, viewport] of Object.entries(SIZES)) {
      await page.setViewportSize(viewport);
      if (told.pictures) await page.screenshot({ path: `${told.pictures}/${name}-${colorScheme}-${size}.png` });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(overflow <= 0, `${name} is wider than a ${size}`);
      // Of what axe looks at, only colours change with the scheme.
      await check(page, `${name}, ${colorScheme}, ${size}`, colorScheme === "dark" ? ["color-contrast"] : undefined);
    }
  }
  await page.emulateMedia({ colorScheme: null });
  await page.setViewportSize(SIZES.desktop);
}

async function check(page, where, rules) {
  await page.evaluate(AXE);
  // Colours on their way from one scheme to the other are nobody's to read.
  await page.evaluate(() => document.getAnimations().forEach((one) => one instanceof CSSTransition && one.finish()));
  const { violations } = await page.evaluate((rules) => window.axe.run(rules ? { runOnly: rules } : {}), rules);
  const said = violations.map((one) => `${one.id}: ${one.help}\n${one.nodes.map((node) => node.html).join("\n")}`);
  assert.deepEqual(said, [], `axe finds something at ${where}`);
}

// The heading, once the page with this one is there.
export async function heading(page, text) {
  await page.getByRole("heading", { level: 1, name: text }).waitFor();
}

export async function signIn(page, email, password) {
  await heading(page, "Sign in");
  await page.getByLabel("Email").fill(email);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
}

// A client's site: a page that reads what it is sent, calls the API with the token and shows what
// it got. Returns its address and its end.
export async function clientSite() {
  const site = createServer((request, response) => {
    response.setHeader("content-type", "text/html; charset=utf-8");
    response.end(`<!doctype html><html lang="en"><title>A client</title><link rel="icon" href="data:,">
      <h1>A client</h1><pre id="got"></pre><script>
      const got = Object.fromEntries(new URLSearchParams(location.hash.slice(1) || location.search));
      const show = (more) => { document.querySelector("#got").textContent = JSON.stringify({ ...got, ...more }); };
      if (got.access_token) {
        fetch(${JSON.stringify(told.url)} + "/organizations", { headers: { authorization: "Bearer " + got.access_token } })
          .then(async (answer) => show({ status: answer.status, body: await answer.json() }), (error) => show({ failed: String(error) }));
      } else show({});
      </script>`);
  });
  await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
  return { address: `http://127.0.0.1:${site.address().port}`, close: () => site.close() };
}

// What the client's page shows.
export async function got(page) {
  const place = page.locator("#got");
  await page.waitForFunction(() => document.querySelector("#got")?.textContent);
  return JSON.parse(await place.textContent());
}

// Where a client sends a person to sign in.
export function authorizeUrl(parameters) {
  return `${told.authUrl}?${new URLSearchParams(parameters)}`;
}

export async function api(path, { method = "GET", body, token = told.key } = {}) {
  const answer = await fetch(told.url + path, {
    method,
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status}`);
  return answer.status === 204 ? null : answer.json();
}

export async function form(path, fields) {
  const answer = await fetch(told.url + path, { method: "POST", body: new URLSearchParams(fields) });
  return { status: answer.status, body: await answer.json() };
}
