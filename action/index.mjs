// Gives the steps that follow the database of the pull request that the job runs for: GitHub says what the job runs
// for, the platform gives a key of an hour for that branch, and the key reads how to connect.

import { randomUUID } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';

const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const JWT = 'urn:ietf:params:oauth:token-type:jwt';
const PATIENCE_MS = 30_000;
const PAUSE_MS = 3_000;
/** What may be otherwise after a while. */
const EARLY = [408, 429, 502, 503, 504];

const input = (name) => (process.env[`INPUT_${name.toUpperCase()}`] ?? '').trim();

/** A text as a command of the runner holds it. */
const escaped = (text) => text.replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A');

/** Tells the runner not to show a text in the log. */
const mask = (text) => console.log(`::add-mask::${escaped(text)}`);

/** Sets a variable or an output; no line of the value can end it. */
function set(file, name, value) {
  const end = `coppice_${randomUUID()}`;
  appendFileSync(process.env[file], `${name}<<${end}\n${value}\n${end}\n`);
}

/** Asks until there is an answer that `isEarly` does not call too early, or no time is left. */
async function ask(what, deadline, isEarly, request) {
  for (;;) {
    let told;
    try {
      const { url, ...options } = await request();
      const answer = await fetch(url, { ...options, redirect: 'error', signal: AbortSignal.timeout(PATIENCE_MS) });
      const body = (await answer.json().catch(() => null)) ?? {};
      if (answer.ok) return body;
      told = `${answer.status} ${body.error_description ?? body.message ?? ''}`;
      if (!EARLY.includes(answer.status) && !isEarly(answer.status, body)) throw new Error(`${what}: ${told}`);
    } catch (error) {
      // Only what `fetch` throws has a cause, or is about time.
      if (!error.cause && error.name !== 'TimeoutError') throw error;
      told = String(error.cause?.message ?? error.message);
    }
    if (Date.now() + PAUSE_MS > deadline) throw new Error(`${what}: ${told}`);
    await pause(PAUSE_MS);
  }
}

/** What GitHub says that the job runs for, to the platform alone. */
async function proof(platform, deadline) {
  const { ACTIONS_ID_TOKEN_REQUEST_URL: place, ACTIONS_ID_TOKEN_REQUEST_TOKEN: token } = process.env;
  if (!place || !token) {
    throw new Error('GitHub does not say what this job runs for: give it `permissions: id-token: write`. Jobs of forks get none.');
  }
  const url = `${place}&audience=${encodeURIComponent(platform)}`;
  const { value } = await ask('the token of the job', deadline, () => false, () => ({ url, headers: { authorization: `Bearer ${token}` } }));
  mask(value);
  return value;
}

/** A key for the branch, once there is one. Each time with another token: none is taken twice. */
async function key(platform, deadline) {
  const isEarly = (_, body) => body.error === 'authorization_pending';
  const role = input('database-role');
  const asked = { grant_type: EXCHANGE, subject_token_type: JWT, ...(role && { database_role: role }) };
  const given = await ask('a key for the branch', deadline, isEarly, async () => ({
    url: `${platform}/oauth/token`,
    method: 'POST',
    body: new URLSearchParams({ ...asked, subject_token: await proof(platform, deadline) }),
  }));
  mask(given.access_token);
  return given;
}

/** How to connect, once the branch is ready. */
async function credentials(platform, { access_token: token, organization, project, branch }, deadline) {
  const url = `${platform}/organizations/${organization}/projects/${project}/branches/${branch}/credentials`;
  // A branch that is being made has none yet.
  const isEarly = (status) => [404, 409, 412].includes(status);
  return ask('how to connect', deadline, isEarly, () => ({ url, headers: { authorization: `Bearer ${token}` } }));
}

/** Where the platform is; a key in the clear is anybody's. */
function platformAt(text) {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isHere = ['127.0.0.1', '[::1]', 'localhost'].includes(url?.hostname);
  if (url?.protocol !== 'https:' && !(url?.protocol === 'http:' && isHere)) {
    throw new Error('`url` says where the platform is, like https://db.example.com');
  }
  return text.replace(/\/+$/, '');
}

try {
  const platform = platformAt(input('url'));
  const seconds = Number(input('timeout') || 300);
  if (!Number.isFinite(seconds)) throw new Error('`timeout` is a number of seconds');
  const deadline = Date.now() + seconds * 1000;
  const given = await key(platform, deadline);
  const { connectionString, password } = await credentials(platform, given, deadline);
  mask(connectionString);
  mask(password);
  set('GITHUB_ENV', input('variable') || 'DATABASE_URL', connectionString);
  set('GITHUB_OUTPUT', 'connection-string', connectionString);
  set('GITHUB_OUTPUT', 'key', given.access_token);
  for (const name of ['branch', 'project', 'organization']) set('GITHUB_OUTPUT', name, given[name]);
  console.log(`The branch ${given.branch} is this pull request's.`);
} catch (error) {
  console.log(`::error::${escaped(String(error.message))}`);
  process.exitCode = 1;
}
