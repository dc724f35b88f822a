// A real OpenID Connect provider (npm's oidc-provider) that a story rules over.
//
// Arguments: port (0 for any). Commands come as lines of JSON on standard input, each answered by a
// line on standard output; the first line out is the issuer. It ends with its standard input.
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { exportJWK, generateKeyPair } from "jose";
import Provider from "oidc-provider";

export const CLIENT_ID = "coppice & friends";
export const CLIENT_SECRET = "s3cret: +/%&=";

// What a command may change.
const settings = {
  redirectUris: ["http://127.0.0.1/none"],
  inToken: false,
  nonce: null,
  secretIn: "client_secret_basic",
  tamper: {},
  // Never asks whom it knows, who has been signed in for this many seconds.
  silentFor: 0,
};
let keys = await newKeys();
let provider = null;
let asked = [];

async function newKeys() {
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  const kid = Math.random().toString(36).slice(2);
  return { keys: [{ ...(await exportJWK(privateKey)), kid, use: "sig", alg: "RS256" }] };
}

// An account is its address; some of them were never verified.
function account(id) {
  const local = id.split("@")[0];
  return {
    accountId: id,
    claims: async () => ({
      sub: id,
      email: id,
      email_verified: !local.startsWith("unverified"),
      name: `${local} of the provider`,
    }),
  };
}

// What browsers are sent back with, when somebody changes it on the way.
function tampered(location) {
  const address = new URL(location);
  for (const [name, value] of Object.entries(settings.tamper)) {
    if (value === null) address.searchParams.delete(name);
    else address.searchParams.set(name, value);
  }
  return address.href;
}

function build(issuer) {
  const built = new Provider(issuer, {
    clients: [
      {
        client_id: CLIENT_ID,
        client_secret: CLIENT_SECRET,
        redirect_uris: settings.redirectUris,
        grant_types: ["authorization_code"],
        response_types: ["code"],
        token_endpoint_auth_method: settings.secretIn,
        require_auth_time: true,
      },
    ],
    clientAuthMethods: [settings.secretIn],
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"] },
    conformIdTokenClaims: !settings.inToken,
    cookies: { keys: ["of a test"] },
    features: { devInteractions: { enabled: true } },
    findAccount: (_context, id) => account(id),
    jwks: keys,
    pkce: { methods: ["S256"], required: () => true },
  });
  built.Session.prototype.authTime = function authTime() {
    return this.loginTs - settings.silentFor;
  };
  built.use(async (context, next) => {
    asked.push(context.path);
    // As a provider would that mixes up its answers.
    if (settings.nonce && context.path === "/auth") context.query = { ...context.query, nonce: settings.nonce };
    if (settings.silentFor && context.path === "/auth") {
      const { prompt, max_age, ...others } = context.query;
      context.query = others;
    }
    await next();
    const location = context.response.get("location");
    if (location.includes("/oauth/outside/callback?")) context.response.set("location", tampered(location));
  });
  return built;
}

// A story in the browser changes what browsers are sent back with, at this path.
const TAMPER = "/tamper";

const server = createServer(async (request, response) => {
  if (request.url !== TAMPER) return provider.callback()(request, response);
  settings.tamper = JSON.parse(Buffer.concat(await request.toArray()).toString());
  return response.end();
});
await new Promise((resolve) => server.listen(Number(process.argv[2] ?? 0), "127.0.0.1", resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
provider = build(issuer);
console.log(JSON.stringify({ issuer, clientId: CLIENT_ID, clientSecret: CLIENT_SECRET }));

for await (const line of createInterface({ input: process.stdin })) {
  const { rotate, ...changes } = JSON.parse(line);
  Object.assign(settings, changes);
  if (rotate) keys = await newKeys();
  provider = build(issuer);
  console.log(JSON.stringify({ asked }));
  asked = [];
}
process.exit(0);
