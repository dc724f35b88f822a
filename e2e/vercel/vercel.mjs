// Signs tokens as Vercel's marketplace does. First it prints its keys;
// then each line of input is a command, and each line of output its answer.
import { createInterface } from 'node:readline';
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

const commands = {
  sign: ({ claims, by }) => signers[by](new SignJWT(claims), claims)
};

const key = { ...(await exportJWK(ours.publicKey)), kid: 'k', use: 'sig', alg: 'RS256' };
console.log(JSON.stringify({ keys: [key] }));
for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...asked } = JSON.parse(line);
  console.log(JSON.stringify({ answer: await commands[command](asked) }));
}
