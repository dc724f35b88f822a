// What people do where a proxy has put the platform below a path.
import assert from "node:assert/strict";
import { createServer, request as ask } from "node:http";
import { api, heading, leave, signIn, told } from "../browser.mjs";
import { signedIn, signOut } from "../console.mjs";

const { pathname: PATH } = new URL(told.url);

// Takes the path away, as people set proxies up.
async function proxy() {
  const site = createServer((request, response) => {
    if (!request.url.startsWith(`${PATH}/`)) {
      response.statusCode = 404;
      response.end();
      return;
    }
    const { method, headers } = request;
    const onward = ask(told.others.to + request.url.slice(PATH.length), { method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on("error", () => response.destroy());
    response.on("close", () => onward.destroy());
    request.pipe(onward);
  });
  await new Promise((resolve) => site.listen(told.others.port, "127.0.0.1", resolve));
  return site;
}

export async function the_console_works_below_a_path(browser) {
  const site = await proxy();
  const { organizations } = await api("/organizations");
  assert.equal(organizations.length, 1, "the API, too");
  const page = await signedIn(browser);
  const strays = [];
  page.on("request", (request) => {
    const { protocol, pathname } = new URL(request.url());
    if (protocol === "http:" && !pathname.startsWith(`${PATH}/`)) strays.push(pathname);
  });
  await heading(page, "Branches");
  await page.getByRole("row", { name: /main/ }).getByRole("link").click();
  await heading(page, "main");
  await page.reload();
  await heading(page, "main");
  await page.keyboard.press("g");
  await page.keyboard.press("q");
  await heading(page, "SQL");
  const editor = page.getByRole("textbox", { name: "SQL", exact: true });
  await editor.fill("select 6 * 7");
  await editor.press("Control+Enter");
  await page.getByRole("gridcell", { name: "42" }).waitFor();
  const where = page.url();
  await signOut(page);
  assert.ok(page.url().startsWith(`${told.url}/oauth/sign-in`), page.url());
  await page.goto(where);
  await signIn(page, told.email, told.password);
  await heading(page, "SQL");
  assert.equal(page.url(), where, "back where one was");
  assert.deepEqual(strays, [], "nothing is asked outside of the path");
  await leave(page);
  site.closeAllConnections();
  await new Promise((resolve) => site.close(resolve));
}
