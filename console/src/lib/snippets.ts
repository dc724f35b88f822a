// How to connect from each language, with what the server tells of a branch. Each is a whole program or file: it
// runs as it was pasted, once what it needs is there.

export interface Place {
  username: string;
  password: string;
  hostname: string;
  port: number;
  dbname: string;
  connectionString: string;
}

/** Where statements are answered by HTTP, for those who connect that way. */
export type WebPlace = Place & { endpoint: string };

export interface Snippet<At = Place> {
  id: string;
  name: string;
  /** What has to be there before; nothing where everybody has it. */
  needs?: string;
  code: (place: At) => string;
}

/** By a session of its own, by the pool, to the replicas, or a statement at a time by HTTP. */
export type Way = "direct" | "pooled" | "replicas" | "http";

const quoted = (text: string) => JSON.stringify(text);
/** For a shell: nothing in it means anything. */
const inShell = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Whether nothing leaves this machine on the way there. */
const isNear = (hostname: string) => hostname === "localhost" || hostname === "::1" || hostname.startsWith("127.");

function withParameter(url: string, parameter: string): string {
  return `${url}${url.includes("?") ? "&" : "?"}${parameter}`;
}

/** What every driver understands; from another machine it has to be encrypted, which not every driver does unasked. */
function url({ connectionString, hostname }: Place): string {
  return isNear(hostname) || connectionString.includes("sslmode=")
    ? connectionString
    : withParameter(connectionString, "sslmode=require");
}

/** The same for `pg`, to which `require` alone means that an authority has to know the server. */
function urlForNode(at: Place): string {
  const plain = url(at);
  return plain.includes("sslmode=require") ? withParameter(plain, "uselibpqcompat=true") : plain;
}

/** The same place as JDBC names it: user and password are parameters there. */
function jdbc(at: Place): string {
  const { host, pathname, search } = new URL(url(at));
  const parameters = new URLSearchParams(search);
  parameters.set("user", at.username);
  parameters.set("password", at.password);
  return `jdbc:postgresql://${host}${pathname}?${parameters}`;
}

export const SNIPPETS: Snippet[] = [
  { id: "psql", name: "psql", code: (at) => `psql ${inShell(url(at))}` },
  { id: "url", name: "URL", code: url },
  { id: "env", name: ".env", code: (at) => `DATABASE_URL=${inShell(url(at))}` },
  {
    id: "node",
    name: "Node.js",
    needs: "npm install pg",
    code: (at) => `import pg from "pg";

const pool = new pg.Pool({
  connectionString: ${quoted(urlForNode(at))},
});
const { rows } = await pool.query("select version()");
console.log(rows[0].version);
await pool.end();`,
  },
  {
    id: "python",
    name: "Python",
    needs: 'pip install "psycopg[binary]"',
    code: (at) => `import psycopg

with psycopg.connect(${quoted(url(at))}) as connection:
    print(connection.execute("select version()").fetchone()[0])`,
  },
  {
    id: "rust",
    name: "Rust",
    needs: "cargo add tokio --features full && cargo add sqlx --features postgres,runtime-tokio,tls-rustls",
    code: (at) => `#[tokio::main]
async fn main() -> Result<(), sqlx::Error> {
    let pool = sqlx::PgPool::connect(${quoted(url(at))}).await?;
    let version: String = sqlx::query_scalar("select version()").fetch_one(&pool).await?;
    println!("{version}");
    Ok(())
}`,
  },
  {
    id: "go",
    name: "Go",
    needs: "go get github.com/jackc/pgx/v5",
    code: (at) => `package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, ${quoted(url(at))})
	if err != nil {
		panic(err)
	}
	defer connection.Close(ctx)
	var version string
	if err := connection.QueryRow(ctx, "select version()").Scan(&version); err != nil {
		panic(err)
	}
	fmt.Println(version)
}`,
  },
  {
    id: "jdbc",
    name: "Java",
    needs: "org.postgresql:postgresql on the class path",
    code: (at) => `import java.sql.DriverManager;

class Main {
    public static void main(String[] args) throws Exception {
        var url = ${quoted(jdbc(at))};
        try (var connection = DriverManager.getConnection(url);
             var rows = connection.createStatement().executeQuery("select version()")) {
            rows.next();
            System.out.println(rows.getString(1));
        }
    }
}`,
  },
  {
    id: "prisma",
    name: "Prisma",
    needs: "npm install @prisma/client @prisma/adapter-pg && npx prisma init && npx prisma generate",
    code: (at) => `import { PrismaPg } from "@prisma/adapter-pg";
import { PrismaClient } from "./generated/prisma/client";

const connectionString = ${quoted(urlForNode(at))};
const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString }) });
console.log(await prisma.$queryRaw\`select version()\`);
await prisma.$disconnect();`,
  },
  {
    id: "drizzle",
    name: "Drizzle",
    needs: "npm install drizzle-orm pg",
    code: (at) => `import { drizzle } from "drizzle-orm/node-postgres";

const db = drizzle(${quoted(urlForNode(at))});
const { rows } = await db.execute("select version()");
console.log(rows[0].version);
await db.$client.end();`,
  },
];

/** The same, a statement at a time, for where nothing can stay connected. */
export const WEB_SNIPPETS: Snippet<WebPlace>[] = [
  {
    id: "curl",
    name: "curl",
    code: ({ endpoint, connectionString }) => `curl ${inShell(endpoint)} \\
  -H ${inShell(`Connection-String: ${connectionString}`)} \\
  -d '{"query": "select version()"}'`,
  },
  {
    id: "node",
    name: "JavaScript",
    needs: "npm install @neondatabase/serverless",
    code: ({ endpoint, connectionString }) => `import { neon, neonConfig } from "@neondatabase/serverless";

neonConfig.fetchEndpoint = ${quoted(endpoint)};
const sql = neon(${quoted(connectionString)});
const [row] = await sql\`select version()\`;
console.log(row.version);`,
  },
  {
    id: "drizzle",
    name: "Drizzle",
    needs: "npm install drizzle-orm @neondatabase/serverless",
    code: ({ endpoint, connectionString }) => `import { neon, neonConfig } from "@neondatabase/serverless";
import { drizzle } from "drizzle-orm/neon-http";

neonConfig.fetchEndpoint = ${quoted(endpoint)};
const db = drizzle(neon(${quoted(connectionString)}));
const { rows } = await db.execute("select version()");
console.log(rows[0].version);`,
  },
];

const SUFFIXES: Record<Way, string> = { direct: "", http: "", pooled: "-pooler", replicas: "-ro" };

/** The same place by another way: the pool shares sessions of the server between clients, replicas only read. */
export function by(way: Way, place: Place, branch: string): Place {
  const through = (text: string) => text.replace(branch, `${branch}${SUFFIXES[way]}`);
  return {
    ...place,
    username: through(place.username),
    hostname: through(place.hostname),
    connectionString: through(place.connectionString),
  };
}

const DOT = "•";

/** The same snippet as anybody may see it over a shoulder. */
export function masked<At extends Place>(snippet: Snippet<At>, place: At): string {
  const dots = DOT.repeat(8);
  const connectionString = place.connectionString.replace(/(:\/\/[^:@/]*:)[^@]*@/, `$1${dots}@`);
  return snippet.code({ ...place, password: dots, connectionString }).replaceAll(encodeURIComponent(dots), dots);
}
