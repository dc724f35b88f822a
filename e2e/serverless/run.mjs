// Published serverless drivers, unmodified, on a branch. COPPICE_DATABASE is its connection string, and
// COPPICE_REPLICAS that of its replicas.
// Either they are told where it is (COPPICE_HTTP), or names below COPPICE_DOMAIN lead to the API
// (COPPICE_API), which they reach over TLS.
import assert from 'node:assert/strict';
import WebSocket from 'ws';
import { Client, Pool, neon, neonConfig } from '@neondatabase/serverless';
import { eq, sql as raw } from 'drizzle-orm';
import { drizzle as drizzleOverHttp } from 'drizzle-orm/neon-http';
import { drizzle as drizzleOverWebSocket } from 'drizzle-orm/neon-serverless';
import { lead } from './names.mjs';
import { integer, jsonb, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

const url = process.env.COPPICE_DATABASE;
const replicas = process.env.COPPICE_REPLICAS;
const endpoint = process.env.COPPICE_HTTP;
if (endpoint) {
  neonConfig.fetchEndpoint = `${endpoint}/sql`;
  neonConfig.wsProxy = `${new URL(endpoint).host}/v2`;
  neonConfig.useSecureWebSocket = false;
}
neonConfig.webSocketConstructor = WebSocket;
const { COPPICE_API, COPPICE_DOMAIN } = process.env;
const called = COPPICE_API && lead(COPPICE_DOMAIN, COPPICE_API);
await neon(url)`drop table if exists http, socket`;

// A driver reads the fields of an error at one status only.
async function fails(promise, code) {
  await assert.rejects(promise, (error) => error.code === code || error.cause?.code === code);
}

async function overHttp() {
  const sql = neon(url);
  const name = "O'Reilly";
  const [row] = await sql`select ${7}::int as seven, ${name} as name, ${[1, 2]}::int[] as list,
    ${{ a: 1 }}::jsonb as doc, ${null}::text as nothing, 9007199254740993 as big, now() as now, true as yes`;
  assert.deepEqual({ ...row, now: row.now instanceof Date }, {
    seven: 7, name, list: [1, 2], doc: { a: 1 }, nothing: null, big: '9007199254740993', now: true, yes: true,
  });
  assert.deepEqual(await sql.query('select $1::text as a', ['x']), [{ a: 'x' }]);
  const full = await neon(url, { fullResults: true, arrayMode: true })`select 1 as a, 2 as b`;
  assert.deepEqual([full.rows, full.rowCount, full.command], [[[1, 2]], 1, 'SELECT']);
  assert.deepEqual(full.fields.map((field) => [field.name, field.dataTypeID]), [['a', 23], ['b', 23]]);
  await sql`create table http (id int primary key, note text)`;
  const settings = sql`select current_setting('transaction_isolation') as isolation,
    current_setting('transaction_read_only') as read_only`;
  const how = { isolationLevel: 'Serializable', readOnly: true };
  const [, [found]] = await sql.transaction([sql`select 1`, settings], how);
  assert.deepEqual(found, { isolation: 'serializable', read_only: 'on' });
  await sql.transaction([sql`insert into http values (1, 'a')`, sql`insert into http values (2, 'b')`]);
  await fails(sql.transaction([sql`insert into http values (3, 'c')`, sql`insert into http values (1, 'd')`]), '23505');
  assert.deepEqual(await sql`select count(*)::int as n from http`, [{ n: 2 }]);
  await fails(sql`select * from nowhere`, '42P01');
  const wrong = new URL(url);
  wrong.password = 'wrong';
  await fails(neon(wrong.href)`select 1`, '28P01');
}

const notes = pgTable('notes', {
  id: integer('id').primaryKey(),
  body: text('body').notNull(),
  tags: text('tags').array(),
  more: jsonb('more'),
  made: timestamp('made', { withTimezone: true }).defaultNow(),
});

async function withDrizzle(db, batches) {
  await db.execute(raw`drop table if exists notes`);
  await db.execute(raw`create table notes (id int primary key, body text not null, tags text[], more jsonb,
    made timestamptz default now())`);
  const made = await db.insert(notes).values({ id: 1, body: 'one', tags: ['a', 'b,c'], more: { k: [1] } }).returning();
  assert.deepEqual([made[0].tags, made[0].more, made[0].made instanceof Date], [['a', 'b,c'], { k: [1] }, true]);
  await db.update(notes).set({ body: 'changed' }).where(eq(notes.id, 1));
  assert.deepEqual(await db.select({ body: notes.body }).from(notes), [{ body: 'changed' }]);
  await fails(db.insert(notes).values({ id: 1, body: 'again' }), '23505');
  if (batches) {
    const [, read] = await db.batch([
      db.insert(notes).values({ id: 2, body: 'two' }),
      db.select({ id: notes.id }).from(notes).orderBy(notes.id),
    ]);
    assert.deepEqual(read, [{ id: 1 }, { id: 2 }]);
  }
}

async function overWebSocket() {
  const pool = new Pool({ connectionString: url, max: 3 });
  const asked = Array.from({ length: 6 }, (_, n) => pool.query('select $1::int as n, pg_backend_pid() as pid', [n]));
  const rows = (await Promise.all(asked)).map((result) => result.rows[0]);
  assert.deepEqual(rows.map((row) => row.n), [0, 1, 2, 3, 4, 5]);
  assert.equal(new Set(rows.map((row) => row.pid)).size, 3);
  const one = await pool.connect();
  await one.query('create table socket (i int)');
  await one.query('begin');
  await one.query('insert into socket values (1)');
  await one.query('rollback');
  one.release();
  const { rows: [{ length, count }] } = await pool.query(
    'select length($1::text), (select count(*)::int from socket)', ['x'.repeat(3_000_000)]);
  assert.deepEqual([length, count], [3_000_000, 0]);
  const large = await pool.query("select repeat('y', 100000) as y from generate_series(1, 100)");
  assert.equal(large.rows.reduce((sum, row) => sum + row.y.length, 0), 10_000_000);
  await fails(pool.query('select * from nowhere'), '42P01');
  await pool.end();
  // With the password sent at once, and step by step.
  for (const pipelineConnect of ['password', false]) {
    const client = new Client(url);
    client.neonConfig.pipelineConnect = pipelineConnect;
    await client.connect();
    const heard = new Promise((resolve) => client.on('notification', resolve));
    await client.query('listen news');
    await client.query("notify news, 'hello'");
    assert.equal((await heard).payload, 'hello');
    await client.end();
  }
  const wrong = new URL(url);
  wrong.password = 'wrong';
  const stranger = new Client(wrong.href);
  stranger.on('error', () => {});
  await stranger.connect();
  await fails(stranger.query('select 1'), '28P01');
}

async function onReplicas() {
  const sql = neon(replicas);
  const client = new Client(replicas);
  await client.connect();
  for (const ask of [(text) => sql.query(text), async (text) => (await client.query(text)).rows]) {
    assert.deepEqual(await ask('select pg_is_in_recovery() as follows'), [{ follows: true }]);
    await fails(ask('create table written (i int)'), '25006');
  }
  await client.end();
}

await overHttp();
await overWebSocket();
await onReplicas();
await withDrizzle(drizzleOverHttp(neon(url)), true);
const pool = new Pool({ connectionString: url });
await withDrizzle(drizzleOverWebSocket(pool), false);
await pool.end();
const hosts = [`api.${COPPICE_DOMAIN}`, ...[url, replicas].map((each) => new URL(each).hostname)];
if (called) assert.deepEqual([...called].sort(), hosts.map((host) => `${host}:443`).sort());
console.log('the drivers are content');
