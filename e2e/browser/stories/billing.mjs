// How people say what pays for what they use.
import assert from "node:assert/strict";
import { heading, leave, look, person, signIn, told } from "../browser.mjs";
import { signedIn } from "../console.mjs";

const payment = (page) => page.getByRole("region", { name: "Payment" });

export async function a_card_is_put_on_file(browser) {
  const place = `orgs/${told.organization}/usage`;
  const page = await signedIn(browser, place);
  await heading(page, "Usage");
  await payment(page).getByText("No card is on file.").waitFor();
  await payment(page).getByText("Upcoming invoice").waitFor();
  await look(page, "console-payment-none");
  await payment(page).getByRole("button", { name: "Add a card" }).click();
  await heading(page, "A new card");
  await page.getByRole("button", { name: "Put it on file" }).click();
  await heading(page, "Usage");
  assert.ok(page.url().endsWith(place), page.url());
  await payment(page).getByText("visa ending in 4242").waitFor();
  await payment(page).getByRole("button", { name: "Change" }).click();
  await page.getByLabel("Email").fill("books@example.com");
  await page.keyboard.press("Enter");
  await payment(page).getByText("books@example.com").waitFor();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await look(page, "console-payment-card");
  await payment(page).getByRole("button", { name: "Manage cards" }).click();
  await heading(page, "Your cards");
  await page.getByRole("link", { name: "Go back" }).click();
  await payment(page).getByText("visa ending in 4242").waitFor();
  await leave(page);
}

// As somebody comes from AWS Marketplace, where the button leads.
async function bought(page, license) {
  const to = `${told.url}/marketplace/aws`;
  await page.goto(`${told.others.payers}/bought?${new URLSearchParams({ to, license })}`);
  await page.getByRole("button", { name: "Set up your account" }).click();
  await heading(page, "Thank you for subscribing");
}

export async function who_subscribed_at_aws_has_it_pay_for_an_organization(browser) {
  const page = await person(browser);
  await bought(page, "l-story");
  await page.getByText("An invitation makes one").waitFor();
  await look(page, "marketplace-signed-out");
  await page.getByRole("link", { name: "Sign in" }).click();
  await signIn(page, told.email, told.password);
  await page.getByLabel("Name of the new organization").waitFor();
  await look(page, "marketplace-signed-in");
  await page.getByLabel("Name of the new organization").fill("Bought");
  await page.getByRole("button", { name: "Let AWS Marketplace pay for it" }).click();
  await heading(page, "AWS Marketplace pays");
  await look(page, "marketplace-done");
  await page.goto(`${told.url}/console/`);
  const session = await page.evaluate(async () => {
    const headers = { "X-Coppice-Console": "1" };
    return (await fetch(new URL("api/session", document.baseURI), { headers })).json();
  });
  const made = session.organizations.find(({ name }) => name === "Bought");
  await page.goto(`${told.url}/console/orgs/${made.id}/usage`);
  await payment(page).getByText("on the bill of the AWS account").waitFor();
  assert.equal(await payment(page).getByRole("button").count(), 0, "there is nothing to say here");
  await look(page, "console-payment-aws");
  await leave(page);
}
