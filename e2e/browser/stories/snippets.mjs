// What people are told to paste, pasted.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { heading, leave, look, told } from "../browser.mjs";
import { branchNamed, project, signedIn, until } from "../console.mjs";

const PACKAGES = fileURLToPath(new URL("../../snippets/node_modules", import.meta.url));
const PYTHON = fileURLToPath(new URL("../../../target/python/bin/python", import.meta.url));
const run = promisify(execFile);

// How each is run, with the file that it is pasted into where there is one.
const SHELL = (text) => run("bash", ["-c", text]);
const PROGRAMS = {
  psql: (text) => SHELL(`${text} -Xc 'select version()'`),
  URL: (text) => run("psql", [text, "-Xc", "select version()"]),
  ".env": (text, file) => SHELL(`set -a; . ${file("env", text)}; psql "$DATABASE_URL" -Xc 'select version()'`),
  "Node.js": (text, file) => run("node", [file("node.mjs", text)]),
  Python: (text, file) => run(PYTHON, [file("python.py", text)]),
  Drizzle: (text, file) => run("node", [file("drizzle.mjs", text)]),
  curl: SHELL,
  JavaScript: (text, file) => run("node", [file("web.mjs", text)]),
};
// These need what not every machine has. Rust's is compiled with the tests.
const NOT_HERE = ["Go", "Java", "Prisma"];

export async function what_is_copied_runs_as_it_is_pasted(browser) {
  const directory = mkdtempSync(join(tmpdir(), "coppice-test-snippets-"));
  symlinkSync(PACKAGES, join(directory, "node_modules"));
  const file = (name, text) => {
    const path = join(directory, name);
    writeFileSync(path, text);
    return path;
  };
  const main = await branchNamed("main");
  const page = await signedIn(browser, `${(await project()).replace("/organizations", "orgs")}/branches/${main.id}/overview`);
  await heading(page, "main");
  const ways = page.getByRole("group", { name: "How" });
  const languages = page.getByRole("group", { name: "Language" });
  const copied = async () => {
    await page.evaluate(() => navigator.clipboard.writeText(""));
    await page.keyboard.press("c");
    return until("it is copied", () => page.evaluate(() => navigator.clipboard.readText()));
  };
  const tried = [];
  for (const way of ["Direct", "Pooled", "Replicas", "HTTP"]) {
    await ways.getByRole("button", { name: way }).click();
    for (const language of await languages.getByRole("button").allTextContents()) {
      await languages.getByRole("button", { name: language, exact: true }).click();
      await page.evaluate(() => document.activeElement.blur());
      const text = await copied();
      assert.ok(!(await page.locator(".snippet pre").textContent()).includes(told.others.password), "it is hidden");
      if (language === "Rust") {
        assert.equal(text.replace(/"postgresql:[^"]*"/, "url()"), told.others.rust.trim());
      } else if (!NOT_HERE.includes(language)) {
        const { stdout, stderr } = await PROGRAMS[language](text, file).catch((error) => assert.fail(`${way}, ${language}: ${error}`));
        assert.match(stdout, /PostgreSQL 17/, `${way}, ${language}`);
        // curl tells there how far it is.
        assert.ok(!stderr || language === "curl", `${way}, ${language}: ${stderr}`);
      }
      tried.push(language);
    }
  }
  assert.equal(tried.length, 3 * 10 + 3);
  await look(page, "console-connect-http");
  await leave(page);
  rmSync(directory, { recursive: true });
}
