// emulate's Stripe, unmodified, at an address of this machine alone, which it prints. It sends signed events to a URL
// (the first argument) with a secret (the second), and ends with its standard input.

import { createEmulator } from 'emulate';

const [url, secret] = process.argv.slice(2);
const webhooks = [{ url, secret, events: ['*'] }];
const stripe = await createEmulator({ service: 'stripe', port: 0, seed: { stripe: { webhooks } } });
console.log(JSON.stringify({ url: stripe.url.replace('localhost', '127.0.0.1') }));
process.stdin.on('end', () => process.exit()).resume();
