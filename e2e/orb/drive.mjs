// Asks the tests' double of Orb with Orb's own client, as the platform asks it: what the client understands here, it
// would have understood from Orb.

import assert from 'node:assert/strict';
import Orb from 'orb-billing';

const [baseURL, apiKey] = process.argv.slice(2);
const orb = new Orb({ baseURL, apiKey, maxRetries: 0, logLevel: 'off' });
const external = 'org_of_the_client';

await assert.rejects(orb.customers.fetchByExternalID(external), Orb.NotFoundError);
const wrong = new Orb({ baseURL, apiKey: 'wrong', maxRetries: 0, logLevel: 'off' });
await assert.rejects(wrong.customers.fetchByExternalID(external), Orb.AuthenticationError);

const made = await orb.customers.create({
  external_customer_id: external, name: 'n', email: 'e@example.com', auto_collection: true,
});
assert.equal((await orb.customers.fetchByExternalID(external)).id, made.id);
const told = { payment_provider: 'stripe_charge', payment_provider_id: 'cus_1', name: 'm', email: 'f@example.com' };
assert.equal((await orb.customers.updateByExternalID(external, told)).payment_provider_id, 'cus_1');

const subscription = await orb.subscriptions.create({
  external_customer_id: external, external_plan_id: 'standard', start_date: '2026-11-23T10:00:00Z',
});
const of = { external_customer_id: [external], limit: 100 };
assert.deepEqual((await orb.subscriptions.list(of)).data.map((one) => one.status), ['active']);

const event = (key) => ({
  idempotency_key: key, external_customer_id: external, event_name: 'awake', timestamp: new Date().toISOString(),
  properties: { quantity: 0.5 },
});
assert.deepEqual(await orb.events.ingest({ events: [event('a'), event('b'), event('a')] }), { validation_failed: [] });
const late = { ...event('c'), timestamp: '2020-01-01T00:30:00Z' };
await assert.rejects(orb.events.ingest({ events: [late] }), (error) => {
  assert.ok(error instanceof Orb.BadRequestError);
  assert.equal(error.error.validation_failed[0].idempotency_key, 'c');
  return true;
});
const backfill = await orb.events.backfills.create({
  timeframe_start: '2020-01-01T00:00:00Z', timeframe_end: '2020-01-01T01:00:00Z', close_time: new Date().toISOString(),
  replace_existing_events: false,
});
await orb.events.ingest({ backfill_id: backfill.id, events: [late] });
assert.equal((await orb.events.backfills.close(backfill.id)).status, 'reflected');

const credits = { include_all_blocks: true, limit: 100, cursor: 'x' };
assert.deepEqual((await orb.customers.credits.listByExternalID(external, credits)).data, []);
const unpaid = { external_customer_id: external, status: ['issued', 'draft'], limit: 100 };
assert.deepEqual((await orb.invoices.list(unpaid)).data, []);
assert.deepEqual((await orb.invoices.list({ external_customer_id: external, limit: 20 })).data, []);
assert.equal((await orb.invoices.fetchUpcoming({ subscription_id: subscription.id })).customer.external_customer_id, external);
await orb.subscriptions.cancel(subscription.id, { cancel_option: 'immediate' });
assert.deepEqual((await orb.subscriptions.list(of)).data.map((one) => one.status), ['ended']);
