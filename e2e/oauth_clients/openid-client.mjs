// Signs in through openid-client, unmodified: discovery, registration, code with PKCE, refresh, user
// information, revocation and the device flow. What a person does in a browser is done by whoever
// runs this: a line `VISIT <address>` asks for it, and the answer is the address it ended at.
import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import * as oidc from 'openid-client';

const { ISSUER, API_URL, CLIENT_ID, CLIENT_SECRET } = process.env;
const REDIRECT = 'http://127.0.0.1:9/callback';
const SCOPE = 'openid offline_access org:read';
const insecure = { execute: [oidc.allowInsecureRequests] };

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function visit(address) {
  console.log(`VISIT ${address}`);
  return new URL((await lines.next()).value);
}

/** A token serves for calls of the API. */
async function use(token) {
  const answer = await fetch(`${API_URL}/organizations`, { headers: { authorization: `Bearer ${token}` } });
  assert.equal(answer.status, 200);
  const { organizations } = await answer.json();
  assert.equal(organizations.length, 1);
}

async function refused(error, work) {
  await assert.rejects(work, (refusal) => refusal.error === error, `not refused as ${error}`);
}

async function codeFlow(config) {
  const verifier = oidc.randomPKCECodeVerifier();
  const state = oidc.randomState();
  const nonce = oidc.randomNonce();
  const parameters = {
    redirect_uri: REDIRECT,
    scope: SCOPE,
    code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    prompt: 'consent',
    state,
    nonce
  };
  const back = await visit(oidc.buildAuthorizationUrl(config, parameters));
  assert(back.href.startsWith(REDIRECT), back.href);
  const checks = { pkceCodeVerifier: verifier, expectedState: state, expectedNonce: nonce, idTokenExpected: true };
  return oidc.authorizationCodeGrant(config, back, checks);
}

async function publicClient() {
  const metadata = {
    client_name: 'A program of somebody else',
    redirect_uris: [REDIRECT],
    grant_types: ['authorization_code', 'refresh_token'],
    token_endpoint_auth_method: 'none'
  };
  const config = await oidc.dynamicClientRegistration(new URL(ISSUER), metadata, oidc.None(), insecure);
  const first = await codeFlow(config);
  await use(first.access_token);
  const { sub } = first.claims();
  const user = await oidc.fetchUserInfo(config, first.access_token, sub);
  assert.match(user.email, /@/);

  const second = await oidc.refreshTokenGrant(config, first.refresh_token);
  assert.notEqual(second.refresh_token, first.refresh_token, 'a public client gets another refresh token');
  await use(second.access_token);
  await oidc.tokenRevocation(config, second.refresh_token);
  await refused('invalid_grant', oidc.refreshTokenGrant(config, second.refresh_token));
}

async function confidentialClient(authentication) {
  const config = await oidc.discovery(new URL(ISSUER), CLIENT_ID, CLIENT_SECRET, authentication, insecure);
  const started = await oidc.initiateDeviceAuthorization(config, { scope: SCOPE });
  await visit(started.verification_uri_complete);
  const tokens = await oidc.pollDeviceAuthorizationGrant(config, started);
  await use(tokens.access_token);

  const [one, two] = await Promise.all(
    [1, 2].map(() => oidc.refreshTokenGrant(config, tokens.refresh_token))
  );
  await use(one.access_token);
  await use(two.access_token);
  const seen = await oidc.tokenIntrospection(config, one.access_token);
  assert.equal(seen.active, true);
  await oidc.tokenRevocation(config, tokens.refresh_token);
  assert.equal((await oidc.tokenIntrospection(config, one.access_token)).active, false);
}

await publicClient();
await confidentialClient(oidc.ClientSecretPost(CLIENT_SECRET));
await confidentialClient(oidc.ClientSecretBasic(CLIENT_SECRET));
console.log('DONE');
process.exit(0);
