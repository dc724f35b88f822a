// Signs tokens as Vercel's marketplace does, and holds what it is told against the schemas of
// Vercel's own client. First it prints its keys; then each line of input is a command, and each
// line of output its answer.
import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
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

/** What Vercel was told. */
const told = [];

/** Where the keys are to be had from now on, and Vercel can be told things. */
const serve = () =>
  new Promise((resolve) => {
    const server = createServer(({ method, url, headers: { authorization } }, response) => {
      if (method === 'GET') return response.end(keys);
      told.push({ method, url, authorization });
      response.writeHead(204).end();
    });
    server.listen(0, '127.0.0.1', () => resolve(`http://127.0.0.1:${server.address().port}`));
  });

const commands = {
  sign: ({ claims, by }) => signers[by](new SignJWT(claims), claims),
  serve,
  told: () => told,
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
