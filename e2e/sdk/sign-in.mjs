// Signs in through the published client's own device flow, as programs built on it do: prints the
// code that a person has to type, waits for them, calls the API, and renews its token.
import assert from 'node:assert/strict';
import { build } from 'esbuild';

const bundle = await build({
  stdin: { contents: "export * from '@xata.io/api'", resolveDir: new URL('.', import.meta.url).pathname },
  bundle: true,
  format: 'esm',
  platform: 'node',
  write: false
});
const code = Buffer.from(bundle.outputFiles[0].contents).toString('base64');
const { SessionExpiredError, XataApi } = await import(`data:text/javascript;base64,${code}`);

const { COPPICE_URL: baseUrl, COPPICE_ISSUER: issuer } = process.env;
const client = { issuer, clientId: 'cli', clientSecret: 'coppice-cli' };

let token;
for await (const step of XataApi.deviceLogin(client)) {
  if (step.type === 'prompt') {
    console.log(JSON.stringify({ address: step.verifyUrl, code: step.userCode }));
  } else {
    token = { ...step, type: 'oidc', client };
  }
}
const session = new XataApi({ baseUrl, token, retry: false });
assert((await session.api.organizations.getOrganizationsList()).organizations.length > 0);

// Requests renew their token side by side, with the same refresh token.
const renew = () => new XataApi({ baseUrl, token: { ...token, expiresAt: new Date(0) }, retry: false });
const sessions = await Promise.all([1, 2, 3].map(async () => {
  const renewed = renew();
  assert((await renewed.api.organizations.getOrganizationsList()).organizations.length > 0);
  return renewed;
}));
assert.equal(new Set(sessions.map(({ token }) => token.accessToken)).size, 3);

const ended = new XataApi({ baseUrl, token: { ...token, refreshToken: 'gone', expiresAt: new Date(0) } });
await assert.rejects(ended.api.organizations.getOrganizationsList(), SessionExpiredError);
console.log('signed in');
