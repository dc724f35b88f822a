// What people see of what they use, and how they limit it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { heading, leave, look, told } from "../browser.mjs";
import { branchNamed, project, signedIn, until } from "../console.mjs";

export async function a_budget_is_set_reached_and_raised(browser) {
  const page = await signedIn(browser, `orgs/${told.organization}/usage`);
  await heading(page, "Usage");
  await page.getByRole("row", { name: /^default / }).first().waitFor();
  await page.getByText("None. With one, branches sleep").waitFor();
  await look(page, "console-usage");
  await page.getByRole("button", { name: "Branches" }).click();
  await page.getByRole("region", { name: "By branch" }).getByRole("row", { name: /main/ }).waitFor();
  await page.getByRole("button", { name: "Days" }).click();
  await page.getByRole("region", { name: "By day" }).getByRole("row").nth(1).waitFor();
  await look(page, "console-usage-days");

  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save" }).click();
  const invoice = await saved;
  assert.match(invoice.suggestedFilename(), /^invoice-\d{4}-000001\.pdf$/);
  const text = execFileSync("pdftotext", ["-layout", await invoice.path(), "-"], { encoding: "utf8" });
  assert.match(text, /1 Wood Lane/);

  await page.keyboard.press("n");
  await page.getByLabel("Of", { exact: true }).selectOption({ label: "Project default" });
  await page.getByLabel("How much a month").fill("1.00");
  await look(page, "console-budget-new");
  await page.keyboard.press("Enter");
  const row = page.getByRole("region", { name: "Budgets" }).getByRole("row", { name: /default/ });
  await row.getByText("1.00 EUR").waitFor();
  await page.getByText("used up. What is covered sleeps").waitFor();
  await page.mouse.move(0, 0);
  await look(page, "console-usage-used-up");
  await until("it sleeps", async () => (await branchNamed("main"))?.statusType === "STATUS_TYPE_HIBERNATED");
  const place = (await project()).replace("/organizations", "orgs");
  await page.goto(`${told.url}/console/${place}/branches/${(await branchNamed("main")).id}/overview`);
  await page.getByText("the budget of its project, 1.00 EUR a month, is used up").waitFor();
  await look(page, "console-overview-used-up");
  page.refusals.push([403, "/branches/"], [409, "/branches/"]);
  await page.getByRole("button", { name: "Wake it" }).click();
  await page.getByRole("alert").getByText("is used up").waitFor();

  await page.goto(`${told.url}/console/orgs/${told.organization}/usage`);
  await row.getByRole("button", { name: "Change" }).click();
  await page.getByLabel("EUR a month").fill("100000");
  await page.keyboard.press("Enter");
  await row.getByText("100000 EUR").waitFor();
  await page.getByText("used up. What is covered sleeps").waitFor({ state: "detached" });
  await row.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await row.waitFor({ state: "detached" });
  await leave(page);
}
