// How to connect from each language, with what the server tells of a branch.

export interface Place {
  username: string;
  password: string;
  hostname: string;
  port: number;
  dbname: string;
  connectionString: string;
}

export interface Snippet {
  id: string;
  name: string;
  code: (place: Place) => string;
}

const quoted = (text: string) => JSON.stringify(text);
/** For a shell: nothing in it means anything. */
const inShell = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The same place as JDBC names it: user and password are parameters there. */
function jdbc({ connectionString, username, password }: Place): string {
  const url = new URL(connectionString);
  const parameters = new URLSearchParams(url.search);
  parameters.set("user", username);
  parameters.set("password", password);
  return `jdbc:postgresql://${url.host}${url.pathname}?${parameters}`;
}

export const SNIPPETS: Snippet[] = [
  { id: "psql", name: "psql", code: (at) => `psql ${inShell(at.connectionString)}` },
  { id: "url", name: "URL", code: (at) => at.connectionString },
  { id: "env", name: ".env", code: (at) => `DATABASE_URL=${inShell(at.connectionString)}` },
  {
    id: "node",
    name: "Node.js",
    code: (at) => `import pg from "pg";

const pool = new pg.Pool({
  connectionString: ${quoted(at.connectionString)},
});
const { rows } = await pool.query("select version()");`,
  },
  {
    id: "python",
    name: "Python",
    code: (at) => `import psycopg

with psycopg.connect(${quoted(at.connectionString)}) as connection:
    print(connection.execute("select version()").fetchone())`,
  },
  {
    id: "rust",
    name: "Rust",
    code: (at) => `let pool = sqlx::PgPool::connect(${quoted(at.connectionString)}).await?;
let version: String = sqlx::query_scalar("select version()").fetch_one(&pool).await?;`,
  },
  {
    id: "go",
    name: "Go",
    code: (at) => `connection, err := pgx.Connect(ctx, ${quoted(at.connectionString)})
if err != nil {
	return err
}
defer connection.Close(ctx)`,
  },
  {
    id: "jdbc",
    name: "JDBC",
    code: (at) => `Connection connection = DriverManager.getConnection(
    ${quoted(jdbc(at))});`,
  },
  {
    id: "prisma",
    name: "Prisma",
    code: (at) => `// .env: DATABASE_URL=${quoted(at.connectionString)}
datasource db {
  provider = "postgresql"
  url      = env("DATABASE_URL")
}`,
  },
  {
    id: "drizzle",
    name: "Drizzle",
    code: (at) => `import { drizzle } from "drizzle-orm/node-postgres";

const db = drizzle(${quoted(at.connectionString)});`,
  },
];

/** The same place through the branch's pool, which shares sessions of the server between clients. */
export function pooled(place: Place, branch: string): Place {
  const through = (text: string) => text.replace(branch, `${branch}-pooler`);
  return {
    ...place,
    username: through(place.username),
    hostname: through(place.hostname),
    connectionString: through(place.connectionString),
  };
}

const DOT = "•";

/** The same snippet as anybody may see it over a shoulder. */
export function masked(snippet: Snippet, place: Place): string {
  const dots = DOT.repeat(8);
  const connectionString = place.connectionString.replace(/(:\/\/[^:@/]*:)[^@]*@/, `$1${dots}@`);
  return snippet.code({ ...place, password: dots, connectionString }).replaceAll(encodeURIComponent(dots), dots);
}
