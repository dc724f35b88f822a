// What a person waits for at the console's page of branches, in Chromium. Told what to do, and tells
// what it found, in JSON. See bench/README.md.
import { createRequire } from "node:module";

const { chromium } = createRequire(`${process.cwd()}/`)("playwright-core");
const { link, page: place } = JSON.parse(process.env.COPPICE_BENCH);
const ROUNDS = 7;
const PATIENCE = 120_000;

const median = (numbers) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)];

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium-headless-shell";
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
const first = await browser.newContext({ viewport: { width: 1280, height: 800 } });
const visitor = await first.newPage();
visitor.setDefaultTimeout(PATIENCE);
await visitor.goto(link);
await visitor.getByRole("button", { name: "Sign in" }).click();
await visitor.getByRole("row", { name: /main/ }).waitFor();
const url = new URL(`/console/${place}`, visitor.url()).href;
const storageState = await first.storageState();
await first.close();

// Milliseconds from the beginning of the navigation until the row of `main` was painted.
async function shown(page, go) {
  await go();
  await page.waitForFunction(() => performance.getEntriesByName("rows").length > 0, undefined, { timeout: PATIENCE });
  return page.evaluate(() => performance.getEntriesByName("rows")[0].startTime);
}

// Marks the frame after the one in which the first row is in the page.
const WATCH = () => {
  const look = () => {
    if (!document.querySelector('[role="treegrid"] [data-branch] a')) return requestAnimationFrame(look);
    requestAnimationFrame(() => performance.mark("rows"));
  };
  requestAnimationFrame(look);
};

// Nothing kept; after the first reload; after later ones, for which the browser has kept what it compiled.
const [cold, warm, again] = [[], [], []];
for (let round = 0; round < ROUNDS; round += 1) {
  const context = await browser.newContext({ storageState, viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  await page.addInitScript(WATCH);
  cold.push(await shown(page, () => page.goto(url)));
  warm.push(await shown(page, () => page.reload()));
  for (let reload = 0; reload < 2; reload += 1) again.push(await shown(page, () => page.reload()));
  await context.close();
}

// From a key to the next frame that shows what it did, by the browser's own clock, which steps by 8 ms.
const context = await browser.newContext({ storageState, viewport: { width: 1280, height: 800 } });
const page = await context.newPage();
await page.addInitScript(WATCH);
await shown(page, () => page.goto(url));
await page.evaluate(() => {
  window.felt = [];
  new PerformanceObserver((list) => {
    for (const { name, duration } of list.getEntries()) if (name === "keydown") window.felt.push(duration);
  }).observe({ type: "event", durationThreshold: 16, buffered: true });
});
const grid = page.getByRole("treegrid");
await grid.locator("[data-branch]").first().focus();
let keys = 0;
const press = async (key, times) => {
  for (let count = 0; count < times; count += 1) {
    await page.keyboard.press(key, { delay: 20 });
    await page.evaluate(() => new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next))));
    keys += 1;
  }
};
await press("ArrowDown", 30);
await press("ArrowLeft", 2);
await press("ArrowRight", 2);
await press("End", 1);
await press("Home", 1);
await page.keyboard.press("/");
for (const letter of "preview/9") await press(letter, 1);
await press("Backspace", 9);
await page.waitForTimeout(200);
const felt = await page.evaluate(() => window.felt);
// Shorter ones are not told.
const all = [...felt, ...Array(Math.max(0, keys - felt.length)).fill(16)];
await browser.close();
console.log(JSON.stringify({ cold: median(cold), warm: median(warm), again: median(again), key: median(all), keyMost: Math.max(...all), keys }));
