// Signs tokens as Vercel's marketplace does, and holds what it is told against the schemas of
// Vercel's own client. First it prints its keys; then each line of input is a command, and each
// line of output its answer.
import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { CreateEventRequestBody$outboundSchema as Event } from '@vercel/sdk/models/createeventop.js';
import { ExchangeSsoTokenRequestBody1$outboundSchema as Exchange } from '@vercel/sdk/models/exchangessotokenop.js';
import { GetMemberResponseBody$inboundSchema as Member } from '@vercel/sdk/models/getmemberop.js';
import { GetBillingPlansResponseBody$inboundSchema as Plans } from '@vercel/sdk/models/getbillingplansop.js';
import { ImportResourceRequestBody$outboundSchema as Resource } from '@vercel/sdk/models/importresourceop.js';
import { UpdateResourceSecretsByIdRequestBody$outboundSchema as Secrets } from '@vercel/sdk/models/updateresourcesecretsbyidop.js';
import { exportJWK, exportSPKI, generateKeyPair, SignJWT } from 'jose';

const ours = await generateKeyPair('RS256', { extractable: true });
const strangers = await generateKeyPair('RS256');
const pem = new TextEncoder().encode(await exportSPKI(ours.publicKey));
const unsigned = (part) => Buffer.from(JSON.stringify(part)).toString('base64url');

/** By whom a token is signed. */
const signers = {
  vercel: (token) => token.setProtectedHeader({ alg: 'RS256', kid: 'k' }).sign(ours.privateKey),
  stranger: (token) => token.setProtectedHeader({ alg: 'RS256', kid: 'k' }).sign(strangers.privateKey),
  publicKey: (token) => token.setProtectedHeader({ alg: 'HS256', kid: 'k' }).sign(pem),
  nobody: (_, claims) => `${unsigned({ alg: 'none', kid: 'k' })}.${unsigned(claims)}.`
};

/** What Vercel's client takes for a database, its secrets, and what a product can be charged by. */
const schemas = { Plans, Resource, Secrets };

const key = { ...(await exportJWK(ours.publicKey)), kid: 'k', use: 'sig', alg: 'RS256' };
const keys = JSON.stringify({ keys: [key] });

/** What Vercel was told, and what of that its own client would not have said. */
const told = [];
const wrong = [];
/** Whether it answers; who its people are; what codes stand for. */
let isUp = true;
const members = new Map();
const codes = new Map();

const asked = (name, schema, value) => {
  const { error } = schema.safeParse(value);
  if (error) wrong.push(`${name}: ${error.message}`);
};

/** Whom a code stands for, once. */
async function exchange(body) {
  const { client_id: clientId, client_secret: clientSecret, grant_type: grantType, code, state, ...more } = body;
  asked('sso', Exchange, { code, state, clientId, clientSecret, grantType });
  if (Object.keys(more).length) wrong.push(`sso: ${Object.keys(more)}`);
  const known = codes.get(code);
  if (!known || known.secret !== clientSecret || known.state !== state) return [403, {}];
  codes.delete(code);
  const token = await signers[known.by](new SignJWT(known.claims), known.claims);
  return [200, { id_token: token, access_token: null, token_type: null }];
}

/** What Vercel says of a person, as its client would take it. */
function member(id) {
  const role = members.get(id);
  if (!role) return [404, {}];
  const answer = { id, role };
  asked('member', Member, answer);
  return [200, answer];
}

async function answerTo(method, url, body) {
  if (url === '/keys') return [200, JSON.parse(keys)];
  if (!isUp) return [503, {}];
  const below = url.replace(/^\/v1\/installations\/icfg_[a-z]+\//, '');
  if (url === '/v1/integrations/sso/token') return exchange(body);
  if (method === 'POST' && below === 'billing/finalize') return [204];
  if (method === 'POST' && below === 'events') asked('event', Event, body);
  else if (method === 'PUT' && /^resources\/[^/]+\/secrets$/.test(below)) asked('secrets', Secrets, body);
  else if (method === 'DELETE' && /^resources\/[^/]+$/.test(below)) return [204];
  else if (method === 'GET' && below.startsWith('member/')) return member(below.slice('member/'.length));
  else wrong.push(`${method} ${url}`);
  return [201, {}];
}

/** Where the keys are to be had from now on, and Vercel can be told things. */
const serve = () =>
  new Promise((resolve) => {
    const server = createServer(async (request, response) => {
      const { method, url } = request;
      const pieces = [];
      for await (const piece of request) pieces.push(piece);
      const text = Buffer.concat(pieces).toString();
      const body = text ? JSON.parse(text) : undefined;
      const [status, answer] = await answerTo(method, url, body);
      if (url !== '/keys' && isUp) told.push({ method, url, authorization: request.headers.authorization, body });
      response.writeHead(status, { 'content-type': 'application/json' }).end(answer && JSON.stringify(answer));
    });
    server.listen(0, '127.0.0.1', () => resolve(`http://127.0.0.1:${server.address().port}`));
  });

const commands = {
  sign: ({ claims, by }) => signers[by](new SignJWT(claims), claims),
  serve,
  /** What it was told that has this in its path. */
  told: ({ of }) => told.filter(({ url }) => url.includes(of)),
  /** What it was asked otherwise than its own client does. */
  wrong: () => wrong,
  up: ({ value }) => ((isUp = value), null),
  member: ({ id, role }) => (members.set(id, role), null),
  code: ({ code, ...known }) => (codes.set(code, known), null),
  /** What Vercel signs a webhook's body with. */
  signature: ({ secret, body }) => createHmac('sha1', secret).update(body).digest('hex'),
  /** What is wrong with a value; nothing of a good one. */
  check: ({ schema, value }) => schemas[schema].safeParse(value).error?.message ?? ''
};

console.log(keys);
for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...asked } = JSON.parse(line);
  console.log(JSON.stringify({ answer: await commands[command](asked) }));
}
