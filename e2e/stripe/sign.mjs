// Signs bodies as Stripe does, with Stripe's own library: reads lines of JSON and answers each with a line, the value
// of the header Stripe-Signature.

import { createInterface } from 'node:readline';
import Stripe from 'stripe';

const stripe = new Stripe('sk_test_of_nobody');
for await (const line of createInterface({ input: process.stdin })) {
  const { payload, secret, timestamp } = JSON.parse(line);
  console.log(stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp }));
}
