// Verifies deliveries with published libraries: standard input is a list of
// { headers, body, secrets }, each of which every one of its secrets has to verify, and no other secret.
import assert from 'node:assert/strict';
import { text } from 'node:stream/consumers';
import { Webhook as Standard } from 'standardwebhooks';
import { Webhook as Svix } from 'svix';

const deliveries = JSON.parse(await text(process.stdin));
const stranger = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
for (const { headers, body, secrets } of deliveries) {
  for (const Library of [Standard, Svix]) {
    for (const secret of secrets) {
      // One of them answers with what it has read, the other with nothing.
      const read = new Library(secret).verify(body, headers);
      assert.deepEqual(read ?? JSON.parse(body), JSON.parse(body));
      assert.throws(() => new Library(secret).verify(`${body} `, headers));
    }
    assert.throws(() => new Library(stranger).verify(body, headers));
  }
}
console.log(`${deliveries.length} deliveries are genuine`);
