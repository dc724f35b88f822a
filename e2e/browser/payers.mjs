// Doubles of Stripe and of AWS Marketplace for the browser's stories: what a person sees of them is a page with a
// button. They were written from the documents of both, which do not answer here; what they refuse is tested where
// nobody looks at pages.
//
// Prints where it is as a line of JSON, and ends with its standard input.
import { createHmac } from "node:crypto";
import { createServer } from "node:http";

const [webhookSecret, product] = process.argv.slice(2);
const customers = new Map();
const pages = [];

const page = (title, body) =>
  `<!doctype html><html lang="en"><title>${title}</title><link rel="icon" href="data:,"><h1>${title}</h1>${body}`;
const button = (action, text) => `<form method="post" action="${action}"><button>${text}</button></form>`;

/** Tells the platform of a card, as Stripe does. */
async function tell(customer, origin) {
  const object = { id: "cs_1", object: "checkout.session", customer };
  const event = { id: `evt_${customer}`, object: "event", type: "checkout.session.completed", created: 1, data: { object } };
  const body = JSON.stringify(event);
  const time = Math.floor(Date.now() / 1000);
  const tag = createHmac("sha256", webhookSecret).update(`${time}.${body}`).digest("hex");
  await fetch(`${origin}/webhooks/stripe`, { method: "POST", headers: { "stripe-signature": `t=${time},v1=${tag}` }, body });
}

function stripe(method, [kind, id], form) {
  if (method === "POST" && kind === "customers" && !id) {
    const made = `cus_${customers.size + 1}`;
    customers.set(made, { cards: [], chosen: null });
    return { id: made, object: "customer" };
  }
  if (kind === "customers") {
    const known = customers.get(id);
    known.chosen = form.get("invoice_settings[default_payment_method]") ?? known.chosen;
    return { id, object: "customer", invoice_settings: { default_payment_method: known.chosen } };
  }
  if (kind === "payment_methods") return { object: "list", data: customers.get(form.get("customer")).cards, has_more: false };
  pages.push({ kind, form });
  return { id: "x", object: "session", url: `${url}/pages/${pages.length}` };
}

/** What AWS answers: who bought it, by the license that is their token; and nothing in the queue. */
function aws(target, body) {
  if (target !== "AWSMPMeteringService.ResolveCustomer") return {};
  const LicenseArn = `arn:aws:license-manager::294406891311:license:${body.RegistrationToken}`;
  return { CustomerAWSAccountId: "123456789012", LicenseArn, ProductCode: product };
}

/** A page that people see, or where its button leads. */
function shown(method, number, response) {
  const { kind, form } = pages[number - 1];
  response.setHeader("content-type", "text/html; charset=utf-8");
  if (kind !== "checkout") return response.end(page("Your cards", `<a href="${form.get("return_url")}">Go back</a>`));
  if (method !== "POST") return response.end(page("A new card", button(`/pages/${number}`, "Put it on file")));
  const customer = form.get("customer");
  const card = { brand: "visa", last4: "4242", exp_month: 7, exp_year: 2031, funding: "credit" };
  customers.get(customer).cards.push({ id: "pm_1", object: "payment_method", type: "card", created: 1_800_000_000, card });
  const back = form.get("success_url");
  return tell(customer, new URL(back).origin).then(() => response.writeHead(303, { location: back }).end());
}

async function whole(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

const server = createServer(async (request, response) => {
  const { pathname, searchParams } = new URL(request.url, url);
  const [first, ...rest] = pathname.split("/").slice(1);
  const body = await whole(request);
  if (first === "pages") return shown(request.method, Number(rest[0]), response);
  // What is bought at AWS leads to the platform with a token.
  if (first === "bought") {
    const action = searchParams.get("to");
    const token = `<input type="hidden" name="x-amzn-marketplace-token" value="${searchParams.get("license")}">`;
    response.setHeader("content-type", "text/html; charset=utf-8");
    return response.end(page("AWS Marketplace", `<form method="post" action="${action}">${token}<button>Set up your account</button></form>`));
  }
  const target = request.headers["x-amz-target"];
  const form = request.method === "GET" ? searchParams : new URLSearchParams(body);
  response.setHeader("content-type", "application/json");
  return response.end(JSON.stringify(target ? aws(target, JSON.parse(body)) : stripe(request.method, rest, form)));
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${server.address().port}`;
console.log(JSON.stringify({ url }));
process.stdin.resume();
process.stdin.on("end", () => process.exit());
