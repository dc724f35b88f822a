// node-postgres comes in by every way that it knows; a line of JSON for each. See ways.py.
import dns from "node:dns";
import fs from "node:fs";
import { createRequire } from "node:module";
import pg from "pg";

const { ways, port, password, certificate, sql } = JSON.parse(process.env.WAYS);
const { version } = createRequire(import.meta.url)("pg/package.json");
const { lookup } = dns;
// What a wildcard record would say.
dns.lookup = (_host, ...more) => lookup("127.0.0.1", ...more);

const checked = { ca: fs.readFileSync(certificate) };
const unchecked = { rejectUnauthorized: false };

for (const { tls, route, pool, host, user, options } of ways) {
  const client = new pg.Client({
    host,
    port,
    user,
    password,
    database: "app",
    options: options || undefined,
    ssl: tls === "plain" ? false : tls === "verified" ? checked : unchecked,
    sslnegotiation: tls === "at once" ? "direct" : undefined,
    enableChannelBinding: tls === "bound",
    connectionTimeoutMillis: 60000,
  });
  let mechanism;
  client.connection.on("authenticationSASLContinue", () => (mechanism = client.saslSession?.mechanism));
  const told = { client: `node-postgres ${version}`, tls, route, pool };
  try {
    await client.connect();
    told.answer = (await client.query({ text: sql, rowMode: "array" })).rows[0][0];
    await client.end();
    if (tls === "bound" && mechanism !== "SCRAM-SHA-256-PLUS") told.error = `signed in by ${mechanism}`;
  } catch (error) {
    told.error = String(error);
  }
  console.log(JSON.stringify(told));
}
