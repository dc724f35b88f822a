// Statements on a branch. The server adds the password, which the page never has.
import { queryOptions } from "@tanstack/react-query";
import type { Field, Row } from "../lib/results";
import { ask } from "./client";
import type { InBranch } from "./queries";

export interface Notice {
  severity?: string;
  message: string;
  detail?: string;
  hint?: string;
}

/** The fields of a PostgreSQL error, or the words of the server between. */
export interface SqlError extends Notice {
  code?: string;
  /** Counted in characters of the statement, from 1. */
  position?: string;
  where?: string;
}

export interface Result {
  fields: Field[];
  rows: Row[];
  command: string;
  rowCount: number | null;
  /** Whether there are more rows. */
  isCut: boolean;
  milliseconds: number;
  notices: Notice[];
  noticesLeftOff: number;
  error?: SqlError;
}

export interface Answer {
  results: Result[];
  /** Whether what was begun is still open, and so lost. */
  inTransaction: boolean;
}

export interface Statement {
  query: string;
  params?: (string | number | null)[];
}

export interface Conditions {
  readOnly: boolean;
  rowsMax: number;
  /** Whether names mean what they do in PostgreSQL's own catalogue, whatever else is in the database. */
  catalogueOnly?: boolean;
  signal?: AbortSignal;
}

/** Statements one after the other in one session, up to the first that fails. To stop is to cancel on the server. */
export function runSql(path: InBranch, queries: Statement[], conditions: Conditions): Promise<Answer> {
  const { readOnly, rowsMax, catalogueOnly = false, signal } = conditions;
  const { organizationID, projectID, branchID } = path;
  const at = `organizations/${organizationID}/projects/${projectID}/branches/${branchID}/sql`;
  const asked = new URLSearchParams({ readOnly: String(readOnly), rowsMax: String(rowsMax), catalogueOnly: String(catalogueOnly) });
  return ask<Answer>(`${at}?${asked}`, {
    method: "POST",
    body: JSON.stringify({ queries }),
    ...(signal && { signal }),
  });
}

export interface Column {
  name: string;
  type: string;
  /** The schema of the operators that compare its values. */
  operators: string;
}

export interface Relation {
  schema: string;
  name: string;
  /** As in pg_class: r, v, m, f, p. */
  kind: string;
  /** As the last ANALYZE counted; none if there was none. */
  rows: number | null;
  columns: Column[];
  /** Columns of the primary key, in its order. */
  key: string[];
}

export interface Catalogue {
  role: string;
  database: string;
  version: string;
  relations: Relation[];
  isCut: boolean;
  /** Words that are names only in quotes. */
  reserved: ReadonlySet<string>;
}

const RELATIONS_MAX = 5000;
/**
 * A type of an extension (16384 is the first id that is not PostgreSQL's own), or a domain over one, is compared by
 * what its extension brought: only a superuser says what sorts a type.
 */
const OPERATORS = `coalesce((select s.nspname from pg_type t
      join pg_opclass k on k.opcintype = coalesce(nullif(t.typbasetype, 0), t.oid)
      join pg_amop m on m.amopfamily = k.opcfamily and m.amoplefttype = k.opcintype and m.amoprighttype = k.opcintype
      join pg_operator o on o.oid = m.amopopr join pg_namespace s on s.oid = o.oprnamespace
    where t.oid = a.atttypid and k.opcintype >= 16384 and k.opcdefault and k.opcmethod = 403
      and m.amopstrategy = 3 and o.oprname = '='), 'pg_catalog')`;
/** It is the page that asks, so it is asked with names of the catalogue only: what others made there must not answer. */
const RELATIONS = `select n.nspname, c.relname, c.relkind, c.reltuples::int8,
  coalesce((select json_agg(json_build_array(a.attname, format_type(a.atttypid, a.atttypmod), ${OPERATORS}) order by a.attnum)
    from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped), '[]'),
  coalesce((select json_agg(a.attname order by array_position(i.indkey::int2[], a.attnum))
    from pg_index i join pg_attribute a on a.attrelid = c.oid and a.attnum = any (i.indkey)
    where i.indrelid = c.oid and i.indisprimary), '[]')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'v', 'm', 'f', 'p') and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
  and has_schema_privilege(n.oid, 'usage')
order by n.nspname <> 'public', n.nspname, c.relname`;

/** As one says it where `public` is looked through. */
function columnOf([name, type, operators]: [string, string, string]): Column {
  return { name, type: type.replace(/^public\./, ""), operators };
}

async function readCatalogue(path: InBranch, signal: AbortSignal): Promise<Catalogue> {
  const about = "select current_user, current_database(), current_setting('server_version')";
  const reserved = "select word from pg_get_keywords() where catcode <> 'U'";
  const queries = [{ query: about }, { query: RELATIONS }, { query: reserved }];
  const conditions = { readOnly: true, rowsMax: RELATIONS_MAX, catalogueOnly: true, signal };
  const { results } = await runSql(path, queries, conditions);
  const failed = results.find(({ error }) => error)?.error;
  if (failed) throw new Error(failed.message);
  const [role = "", database = "", version = ""] = (results[0]?.rows[0] ?? []) as string[];
  const relations = (results[1]?.rows ?? []).map(([schema, name, kind, rows, columns, key]) => ({
    schema: schema as string,
    name: name as string,
    kind: kind as string,
    rows: Number(rows) < 0 ? null : Number(rows),
    columns: (JSON.parse(columns as string) as [string, string, string][]).map(columnOf),
    key: JSON.parse(key as string) as string[],
  }));
  const words = new Set((results[2]?.rows ?? []).map(([word]) => word as string));
  return { role, database, version, relations, isCut: results[1]?.isCut ?? false, reserved: words };
}

/** The rows that a statement without effect reads, or why it failed. */
export const rowsQuery = (path: InBranch, statement: Statement) =>
  queryOptions({
    queryKey: ["rows", path, statement],
    queryFn: async ({ signal }) => {
      const { results } = await runSql(path, [statement], { readOnly: true, rowsMax: 1000, signal });
      return results[0] as Result;
    },
    gcTime: 0,
    retry: false,
    refetchOnWindowFocus: false,
  });

const GONE =
  "The row is not as it was shown: somebody has changed or deleted it, or a rule of the table keeps it as it is. Nothing was changed; read the rows again.";

/** Runs a statement that changes one row, or says why it did not. */
export async function changeCell(path: InBranch, { query, params }: Statement): Promise<void> {
  const { results } = await runSql(path, [{ query, ...(params && { params }) }], { readOnly: false, rowsMax: 1 });
  const [result] = results;
  if (result?.error) throw new Error([result.error.message, result.error.detail, result.error.hint].filter(Boolean).join(" "));
  if (result?.rowCount !== 1) throw new Error(GONE);
}

/** Which tables there are. It connects, so it is asked once, and only of a branch that is awake. */
export const catalogueQuery = (path: InBranch) =>
  queryOptions({
    queryKey: ["catalogue", path],
    queryFn: ({ signal }) => readCatalogue(path, signal),
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
    refetchOnWindowFocus: false,
  });
