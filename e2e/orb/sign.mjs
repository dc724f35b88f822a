// Signs bodies as Orb does, with the signature that Orb's own client compares: reads a line of JSON and answers it with
// one, the value of the header X-Orb-Signature, after the client itself has taken it.

import { createInterface } from 'node:readline';
import Orb from 'orb-billing';

const orb = new Orb({ apiKey: 'key_of_nobody', logLevel: 'off' });
for await (const line of createInterface({ input: process.stdin })) {
  const { payload, secret, timestamp, isRefused } = JSON.parse(line);
  const signature = orb.webhooks.signPayload(payload, { timestamp, secret: new TextEncoder().encode(secret) });
  const headers = { 'X-Orb-Timestamp': timestamp, 'X-Orb-Signature': signature };
  if (!isRefused) orb.webhooks.verifySignature(payload, headers, secret);
  console.log(signature);
}
