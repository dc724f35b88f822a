// GitHub for the stories: the published emulator of it, behind a door that adds what the emulator lacks
// (which repositories of an installation a person may do what with, where its App is, deployments, limits) and that
// holds, doubles and loses deliveries as it is told to. GitHub's own library for Apps has the same settings as the
// platform, and checks what comes and what there is.
//
// With a description of GitHub's API as the third argument, all that the platform asks of that is held against it by
// Prism, which stands between them.
//
// Prints where it is as a line of JSON, then carries out commands, a line of JSON each, and answers each with one.

import { spawn } from 'node:child_process';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { App } from '@octokit/app';
import { Octokit } from '@octokit/core';
import { createEmulator } from 'emulate';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';

const webhookSecret = process.argv[2];
const clientSecret = process.argv[3];
const description = process.argv[4];
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const pem = privateKey.export({ type: 'pkcs1', format: 'pem' });

let target = null;
let mode = 'pass';
let held = [];
let job = {};

const listening = (server) => new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port)));

async function freePort() {
  const free = createServer();
  const port = await listening(free);
  await new Promise((resolve) => free.close(resolve));
  return port;
}

async function whole(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return Buffer.concat(pieces);
}

/** Every attempt at a delivery, the latest first, as the App is told of them. */
const attempts = [];

function noted(delivery, status_code, redelivery = false) {
  const guid = delivery.headers['x-github-delivery'];
  const said = { delivered_at: new Date().toISOString(), redelivery, status_code, status: String(status_code) };
  attempts.unshift({ id: attempts.length + 1, guid, event: delivery.headers['x-github-event'], ...said, delivery });
  return status_code;
}

/** Sends a delivery on; its status. */
async function send(delivery, redelivery = false) {
  const { headers, body } = delivery;
  const sent = fetch(`${target}/webhooks/github`, { method: 'POST', headers, body });
  return noted(delivery, await sent.then((answer) => answer.status, () => 0), redelivery);
}

/** What the App's key does not sign is refused by the emulator, as everywhere. */
const isApp = async ({ headers: { authorization } }) => (await fetch(`${inner}/app`, { headers: { authorization } })).ok;

/** Attempts at deliveries, two to a page. */
async function deliveries(request, response) {
  if (!(await isApp(request))) return response.writeHead(401).end('{}');
  const before = Number(new URL(request.url, url).searchParams.get('cursor')?.slice(3) ?? attempts.length + 1);
  const page = attempts.filter(({ id }) => id < before).slice(0, 2);
  const next = `<${url}/app/hook/deliveries?per_page=2&cursor=v1_${page.at(-1)?.id}>; rel="next"`;
  const headers = page.length === 2 ? { link: next } : {};
  response.writeHead(200, { 'content-type': 'application/json', ...headers });
  response.end(JSON.stringify(page.map(({ delivery, ...told }) => told)));
}

async function attemptAgain(request, response) {
  if (!(await isApp(request))) return response.writeHead(401).end('{}');
  const found = attempts.find(({ id }) => id === Number(request.url.split('/').at(-2)));
  if (!found) return response.writeHead(404).end('{}');
  response.writeHead(202, { 'content-type': 'application/json' }).end('{}');
  await send(found.delivery, true);
}

async function delivered(request, response) {
  const names = ['content-type', 'x-github-event', 'x-hub-signature-256'];
  const headers = Object.fromEntries(names.map((name) => [name, request.headers[name]]));
  // The emulator's ids are times, and two deliveries may have the same one.
  const delivery = { headers: { ...headers, 'x-github-delivery': randomUUID() }, body: await whole(request) };
  if (!(await library.webhooks.verify(delivery.body.toString(), headers['x-hub-signature-256']))) unverified += 1;
  if (mode === 'hold') held.push(delivery);
  // As if nobody had answered.
  if (mode === 'lose') noted(delivery, 0);
  if (mode === 'pass') await send(delivery);
  response.writeHead(200).end();
}

const LEVELS = ['pull', 'triage', 'push', 'maintain', 'admin'];

/**
 * Repositories of the installation that a person was given to read, write or administer, with what they may do with
 * each: those that everybody can read are not among them.
 */
async function repositoriesOf(request, response) {
  const { authorization } = request.headers;
  const asked = async (path, who = authorization) => fetch(`${inner}${path}`, { headers: { authorization: who } });
  const user = await asked('/user');
  if (!user.ok) return response.writeHead(401).end('{}');
  const { login } = await user.json();
  const repositories = [];
  for (const repository of await (await asked('/users/octocat/repos', 'token octocat_token')).json()) {
    const people = `/repos/${repository.full_name}/collaborators`;
    const given = await (await asked(people, 'token octocat_token')).json();
    if (repository.owner.login !== login && !given.some((one) => one.login === login)) continue;
    // The emulator says of every caller that they may do everything.
    const { permission } = await (await asked(`${people}/${login}/permission`, 'token octocat_token')).json();
    const permissions = Object.fromEntries(LEVELS.map((level, at) => [level, at <= LEVELS.indexOf(permission)]));
    repositories.push({ ...repository, permissions });
  }
  if (!repositories.length) return response.writeHead(404).end('{}');
  json(response, { total_count: repositories.length, repositories });
}

/** The App itself, whose page is where everything else of it is. */
async function app(request, response) {
  const { authorization } = request.headers;
  const answer = await fetch(`${inner}/app`, { headers: { authorization } });
  response.writeHead(answer.status, { 'content-type': 'application/json' });
  response.end((await answer.text()).replaceAll(inner, url));
}

/** Deployments of the shop with their statuses, the latest first. The emulator has none. */
let deployments = [];
let deploymentCount = 1000;
const DEPLOYMENT = ['ref', 'task', 'auto_merge', 'required_contexts', 'payload', 'environment', 'description', 'transient_environment', 'production_environment'];
const STATUS = ['state', 'target_url', 'log_url', 'description', 'environment', 'environment_url', 'auto_inactive'];
const STATES = ['error', 'failure', 'inactive', 'in_progress', 'queued', 'pending', 'success'];

async function deployed(request, response) {
  const { authorization } = request.headers;
  // Whose token it is, the emulator knows.
  const repository = await fetch(`${inner}/repos/octocat/shop`, { headers: { authorization } });
  if (!authorization || !repository.ok) return response.writeHead(401).end('{}');
  const { pathname, searchParams } = new URL(request.url, url);
  const [id, rest] = pathname.split('/').slice(5);
  const said = request.method === 'POST' ? JSON.parse(await whole(request)) : {};
  const known = deployments.find((one) => one.id === Number(id));
  const refuse = (status) => response.writeHead(status).end('{}');
  if (Object.keys(said).some((key) => !(rest ? STATUS : DEPLOYMENT).includes(key))) return refuse(422);
  if (id && !known) return refuse(404);
  if (request.method === 'GET' && !id) {
    const wanted = ['environment', 'task'].filter((key) => searchParams.has(key));
    return json(response, deployments.filter((one) => wanted.every((key) => one[key] === searchParams.get(key))));
  }
  if (request.method === 'POST' && rest === 'statuses') {
    if (!STATES.includes(said.state)) return refuse(422);
    known.statuses.unshift(said);
    return json(response, said, 201);
  }
  if (request.method === 'DELETE' && id && !rest) {
    if (known.statuses[0]?.state !== 'inactive') return refuse(422);
    deployments = deployments.filter((one) => one !== known);
    return response.writeHead(204).end();
  }
  if (request.method !== 'POST' || id) return refuse(404);
  const commit = await fetch(`${inner}/repos/octocat/shop/commits/${said.ref}`, { headers: { authorization } });
  if (!commit.ok) return refuse(422);
  deploymentCount += 1;
  const made = { id: deploymentCount, sha: said.ref, ...said, statuses: [] };
  deployments.unshift(made);
  json(response, made, 201);
}

const json = (response, body, status = 200) => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));

const jobKey = await generateKeyPair('RS256', { extractable: true });
const jobJwk = { ...(await exportJWK(jobKey.publicKey)), kid: 'jobs', alg: 'RS256', use: 'sig' };

async function jobIssuer(_, response) {
  json(response, { issuer: `${url}/jobs`, jwks_uri: `${url}/jobs/keys`, id_token_signing_alg_values_supported: ['RS256'] });
}

async function jobKeys(_, response) {
  json(response, { keys: [jobJwk] });
}

/** What proves what a job runs for; `job` says what is otherwise in it. */
async function jobToken(request, response) {
  const { alg = 'RS256', ...claims } = job;
  const now = Math.floor(Date.now() / 1000);
  const aud = new URL(request.url, url).searchParams.get('audience');
  const all = { iss: `${url}/jobs`, aud, jti: randomUUID(), iat: now, nbf: now, exp: now + 300, ...claims };
  // What everybody can read, as if it were a secret.
  const key = alg === 'RS256' ? jobKey.privateKey : new TextEncoder().encode(JSON.stringify(jobJwk));
  json(response, { value: await new SignJWT(all).setProtectedHeader({ alg, typ: 'JWT', kid: 'jobs' }).sign(key) });
}

async function passed(request, response) {
  const { host, connection, 'content-length': _, ...headers } = request.headers;
  const body = ['GET', 'HEAD'].includes(request.method) ? undefined : await whole(request);
  const answer = await fetch(`${inner}${request.url}`, { method: request.method, headers, body, redirect: 'manual' });
  response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? 'text/plain', location: answer.headers.get('location') ?? '' });
  response.end(Buffer.from(await answer.arrayBuffer()));
}

const PATTERNS = [
  [/^\/app\/hook\/deliveries\/\d+\/attempts$/, attemptAgain],
  [/^\/repos\/octocat\/shop\/deployments\b/, deployed],
];

const answered = (request, response) => {
  const handler = {
    '/_delivered': delivered,
    '/user/installations/100/repositories': repositoriesOf,
    '/app': app,
    '/jobs/.well-known/openid-configuration': jobIssuer,
    '/jobs/keys': jobKeys,
    '/jobs/token': jobToken,
    '/app/hook/deliveries': deliveries,
  }[request.url.split('?')[0]] ?? PATTERNS.find(([pattern]) => pattern.test(request.url))?.[1] ?? passed;
  handler(request, response).catch((error) => response.writeHead(502).end(String(error)));
};

/** What tokens of installations were refused until `until`, as one that asks too much is. */
const limit = { until: 0, refused: 0, asked: 0 };

function limited({ headers }, response) {
  if (!/\bghs_/.test(headers.authorization ?? '')) return false;
  limit.asked += 1;
  const left = Math.ceil((limit.until - Date.now()) / 1000);
  if (left <= 0) return false;
  limit.refused += 1;
  const message = 'You have exceeded a secondary rate limit.';
  response.writeHead(403, { 'content-type': 'application/json', 'retry-after': left }).end(JSON.stringify({ message }));
  return true;
}

const behind = createServer(answered);
let prism = null;
/** What the description does not allow of what was asked, and how often each of its operations was. */
const checked = { mismatches: [], operations: {} };

/** Starts Prism before what is behind the door. */
async function startPrism() {
  const { paths } = JSON.parse(readFileSync(description));
  for (const [path, methods] of Object.entries(paths)) for (const method of Object.keys(methods)) checked.operations[`${method.toUpperCase()} ${path}`] = 0;
  const port = await freePort();
  const program = fileURLToPath(new URL('node_modules/@stoplight/prism-cli/dist/index.js', import.meta.url));
  const upstream = `http://127.0.0.1:${await listening(behind)}`;
  // A story that ends kills this program, which can end nothing of its own then.
  const command = ['--pdeathsig', 'KILL', process.execPath, program, 'proxy', description, upstream];
  const child = spawn('setpriv', [...command, '--host', '127.0.0.1', '--port', String(port)], { stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of createInterface({ input: child.stdout })) if (line.includes('is listening')) break;
  child.stdout.resume();
  prism = `http://127.0.0.1:${port}`;
}

const isOf = (path) => new RegExp(`^${path.replace(/{[^}]+}/g, '[^/]+')}$`);

/** Asks Prism, which asks what is behind the door, and writes down what it says of the question. */
async function throughPrism(request, response) {
  const { host, connection, 'content-length': _, ...headers } = request.headers;
  const body = ['GET', 'HEAD'].includes(request.method) ? undefined : await whole(request);
  const answer = await fetch(`${prism}${request.url}`, { method: request.method, headers, body: body?.length ? body : undefined, redirect: 'manual' });
  const place = request.url.split('?')[0];
  const known = Object.keys(checked.operations).filter((name) => name.startsWith(`${request.method} `));
  const operation = known.find((name) => isOf(name.split(' ')[1]).test(place));
  if (operation) checked.operations[operation] += 1;
  const said = JSON.parse(answer.headers.get('sl-violations') ?? '[]').filter(({ location }) => location[0] === 'request');
  for (const one of said) checked.mismatches.push(`${request.method} ${request.url}: ${one.location.join('.')}: ${one.message}`);
  const kept = ['content-type', 'location', 'link', 'retry-after'].filter((name) => answer.headers.has(name));
  response.writeHead(answer.status, Object.fromEntries(kept.map((name) => [name, answer.headers.get(name)])));
  response.end(Buffer.from(await answer.arrayBuffer()));
}

const door = createServer((request, response) => {
  if (limited(request, response)) return;
  const isApi = request.headers['user-agent']?.startsWith('coppice/') && !/^\/(login|jobs)\//.test(request.url);
  if (!prism || !isApi) return answered(request, response);
  throughPrism(request, response).catch((error) => response.writeHead(502).end(String(error)));
});
const url = `http://127.0.0.1:${await listening(door)}`;

const permissions = { checks: 'write', contents: 'read', issues: 'write', metadata: 'read', pull_requests: 'write' };
const github = await createEmulator({
  service: 'github',
  port: await freePort(),
  seed: {
    tokens: Object.fromEntries(['octocat', 'stranger'].map((login) => [`${login}_token`, { login, scopes: ['repo', 'user'] }])),
    github: {
      users: [{ login: 'octocat' }, { login: 'stranger' }],
      repos: [
        { owner: 'octocat', name: 'shop', auto_init: true },
        { owner: 'octocat', name: 'vault', auto_init: true },
        { owner: 'stranger', name: 'theirs', auto_init: true },
      ],
      oauth_apps: [{ client_id: 'Iv1.coppice', client_secret: clientSecret, name: 'Coppice', redirect_uris: ['http://127.0.0.1/github/setup'] }],
      apps: [{
        app_id: 4242, slug: 'coppice', name: 'Coppice', private_key: pem, permissions, events: ['pull_request'],
        webhook_url: `${url}/_delivered`, webhook_secret: webhookSecret,
        installations: [{ installation_id: 100, account: 'octocat', repository_selection: 'all' }],
      }],
    },
  },
});
const inner = github.url;
if (description) await startPrism();

/** GitHub's own library, with what the platform is set up with. */
const library = new App({
  appId: 4242, privateKey: pem, webhooks: { secret: webhookSecret },
  oauth: { clientId: 'Iv1.coppice', clientSecret }, Octokit: Octokit.defaults({ baseUrl: url }),
});
let unverified = 0;

/** Asks GitHub something as a person. */
async function ask(login, method, path, body) {
  const headers = { authorization: `token ${login}_token`, 'content-type': 'application/json' };
  const answer = await fetch(`${inner}${path}`, { method, headers, body: body && JSON.stringify(body) });
  return { status: answer.status, body: await answer.json().catch(() => null) };
}

const commands = {
  target: async ({ url }) => { target = url; },
  mode: async ({ mode: wanted }) => { mode = wanted; },
  /** What was held, the last first and each twice. */
  release: async () => {
    const sent = [];
    for (const delivery of held.toReversed()) sent.push(await send(delivery), await send(delivery));
    held = [];
    return sent;
  },
  /** What was held, all at the same time. */
  burst: async () => {
    const sent = await Promise.all(held.map(send));
    held = [];
    return sent;
  },
  /** Statuses of all attempts by delivery, the first attempt first. */
  attempts: async () => {
    const byGuid = {};
    for (const { guid, status_code } of attempts.toReversed()) (byGuid[guid] ??= []).push(status_code);
    return Object.values(byGuid);
  },
  deployments: async () => deployments,
  /** Has tokens of installations refused for so many seconds. */
  limit: async ({ seconds }) => { Object.assign(limit, { until: Date.now() + seconds * 1000, refused: 0 }); },
  /** How many requests came with tokens of installations, and came although they were not to. */
  counts: async () => ({ asked: limit.asked, refused: limit.refused }),
  checked: async () => checked,
  /** What GitHub's own library sees with the settings of the platform: the App, and checks and comments of its own. */
  library: async ({ pull, commit }) => {
    const { data: itself } = await library.octokit.request('GET /app');
    const installations = [];
    await library.eachInstallation(({ installation }) => { installations.push(installation.id); });
    const shop = { owner: 'octocat', repo: 'shop' };
    const octokit = await library.getInstallationOctokit(installations[0]);
    const checks = await octokit.request('GET /repos/{owner}/{repo}/commits/{ref}/check-runs', { ...shop, ref: commit });
    const comments = await octokit.request('GET /repos/{owner}/{repo}/issues/{issue_number}/comments', { ...shop, issue_number: pull });
    return {
      app: [itself.id, itself.slug], installations, unverified,
      checks: checks.data.check_runs.map((run) => [run.name, run.conclusion]),
      comments: comments.data.map((comment) => comment.user.login),
    };
  },
  job: async ({ claims }) => { job = claims; },
  ask: async ({ login, method, path, body }) => ask(login, method, path, body),
  /** The code that whoever installs the App comes back with. */
  code: async ({ login }) => {
    const form = new URLSearchParams({ login, redirect_uri: 'http://127.0.0.1/github/setup', client_id: 'Iv1.coppice' });
    const answer = await fetch(`${inner}/login/oauth/callback`, { method: 'POST', body: form, redirect: 'manual' });
    return new URL(answer.headers.get('location')).searchParams.get('code');
  },
};

console.log(JSON.stringify({ url, pem }));
for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...rest } = JSON.parse(line);
  const answer = await commands[command](rest);
  console.log(JSON.stringify({ answer: answer ?? null }));
}
process.exit(0);
