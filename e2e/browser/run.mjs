// Tells the stories that are named as arguments, one after the other, in one browser.
import assert from "node:assert/strict";
import { launch, told } from "./browser.mjs";

// Without it each story would look in vain for what it is about, for as long as its patience lasts. Some stories
// make the way there themselves.
const page = await fetch(`${told.url}/console/`).catch(() => null);
assert.notEqual(page?.status, 404, "there is no console: run `make setup`, and build the program again");

const browser = await launch();
let failed = 0;
try {
  for (const name of process.argv.slice(2)) {
    const [file, story] = name.split("/");
    const began = performance.now();
    try {
      const stories = await import(`./stories/${file}.mjs`);
      await stories[story](browser);
      console.log(`told ${name} in ${((performance.now() - began) / 1000).toFixed(1)} s`);
    } catch (error) {
      failed += 1;
      console.error(`${name}, after ${((performance.now() - began) / 1000).toFixed(1)} s:`, error);
      for (const context of browser.contexts()) {
        for (const page of context.pages()) {
          console.error(page.url(), await page.locator("body").innerText().catch(() => ""));
        }
        await context.close();
      }
    }
  }
} finally {
  await browser.close();
}
process.exit(failed === 0 ? 0 : 1);
