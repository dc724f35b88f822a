//! Tables, views and what hangs on them.

use super::{OURS, collation, grants, head, own, owned};

/// A relation by its whole name.
const RELATION: &str = "pg_catalog.format('%I.%I', n.nspname, c.relname)";
const FROM_RELATIONS: &str = "pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace";

pub(super) fn queries() -> Vec<String> {
    vec![
        tables(),
        columns(),
        defaults(),
        views(),
        sequences(),
        indexes(),
        constraints(),
        triggers(),
        policies(),
        rules(),
        statistics(),
    ]
}

/// Relations of these kinds that people made.
fn of_kinds(kinds: &str) -> String {
    format!("c.relkind IN ({kinds}) AND {OURS} AND {}", own(1259, "c.oid"))
}

fn tables() -> String {
    let (head, owned, of) =
        (head("table", 1259, "c.oid"), owned("c.relowner", "c.relacl"), of_kinds("'r','p'"));
    format!(
        "{head}, {RELATION} AS name, pg_catalog.quote_ident(n.nspname) AS schema, {owned},
            c.relpersistence = 'u' AS unlogged, c.relrowsecurity AS rls, c.relforcerowsecurity AS forced,
            pg_catalog.to_json(c.reloptions || (SELECT pg_catalog.array_agg('toast.' || o)
                FROM pg_catalog.pg_class t, pg_catalog.unnest(t.reloptions) o
                WHERE t.oid = c.reltoastrelid)) AS options,
            CASE c.relkind WHEN 'p' THEN pg_catalog.pg_get_partkeydef(c.oid) END AS partition_key,
            pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS bound,
            (SELECT pg_catalog.json_agg(pg_catalog.format('%I.%I', pn.nspname, p.relname) ORDER BY i.inhseqno)
                FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
                JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
                WHERE i.inhrelid = c.oid) AS parents,
            CASE c.relreplident WHEN 'n' THEN 'NOTHING' WHEN 'f' THEN 'FULL' WHEN 'i' THEN
                (SELECT 'USING INDEX ' || pg_catalog.quote_ident(ic.relname) FROM pg_catalog.pg_index i
                 JOIN pg_catalog.pg_class ic ON ic.oid = i.indexrelid
                 WHERE i.indrelid = c.oid AND i.indisreplident) END AS identity,
            (SELECT pg_catalog.quote_ident(a.amname) FROM pg_catalog.pg_am a
                WHERE a.oid = c.relam AND a.amname <> 'heap') AS method,
            CASE WHEN c.reloftype <> 0 THEN pg_catalog.format_type(c.reloftype, NULL) END AS of_type
         FROM {FROM_RELATIONS} WHERE {of}"
    )
}

fn columns() -> String {
    let (acl, of) = (grants("a.attacl"), of_kinds("'r','p','v','m'"));
    let collation = collation("a.attcollation", "t.typcollation");
    let sequence = "(SELECT pg_catalog.json_build_object('start', s.seqstart, 'increment', s.seqincrement,
        'min', s.seqmin, 'max', s.seqmax, 'cache', s.seqcache, 'cycle', s.seqcycle)
        FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_sequence s ON s.seqrelid = d.objid
        WHERE d.classid = 1259 AND d.refclassid = 1259 AND d.refobjid = a.attrelid
            AND d.refobjsubid = a.attnum AND d.deptype = 'i')";
    format!(
        "SELECT 'column' AS kind, 1259 AS class, a.attrelid::pg_catalog.int8 AS oid, a.attnum AS sub,
            (SELECT said.description FROM pg_catalog.pg_description said
                WHERE said.objoid = a.attrelid AND said.classoid = 1259 AND said.objsubid = a.attnum) AS comment,
            {RELATION} AS \"on\", pg_catalog.quote_ident(a.attname) AS name, {acl},
            c.relkind IN ('v','m') AS of_view, a.attislocal AS local, a.attinhcount > 0 AS inherits,
            pg_catalog.format_type(a.atttypid, a.atttypmod) AS \"type\", {collation}, a.attnotnull AS not_null,
            CASE WHEN a.attidentity <> '' THEN pg_catalog.json_build_object(
                'always', a.attidentity = 'a', 'sequence', {sequence}) END AS identity,
            CASE WHEN a.attgenerated <> '' THEN pg_catalog.json_build_object(
                'virtual', a.attgenerated = 'v', 'expression', pg_catalog.pg_get_expr(f.adbin, f.adrelid)) END AS generated,
            CASE WHEN a.attstorage <> t.typstorage THEN CASE a.attstorage
                WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END END AS storage,
            CASE a.attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' END AS compression
         FROM {FROM_RELATIONS} JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
         JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
         LEFT JOIN pg_catalog.pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
         WHERE a.attnum > 0 AND NOT a.attisdropped AND {of} ORDER BY a.attrelid, a.attnum"
    )
}

fn defaults() -> String {
    let (head, of) = (head("default", 2604, "f.oid"), of_kinds("'r','p','v'"));
    format!(
        "{head}, {RELATION} AS \"on\", pg_catalog.quote_ident(a.attname) AS name,
            pg_catalog.pg_get_expr(f.adbin, f.adrelid) AS definition, a.attislocal AS local
         FROM {FROM_RELATIONS} JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
         JOIN pg_catalog.pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
         WHERE a.attgenerated = '' AND {of}"
    )
}

fn views() -> String {
    let (head, owned, of) =
        (head("view", 1259, "c.oid"), owned("c.relowner", "c.relacl"), of_kinds("'v','m'"));
    format!(
        "{head}, {RELATION} AS name, pg_catalog.quote_ident(n.nspname) AS schema, {owned},
            c.relkind = 'm' AS materialized, pg_catalog.to_json(c.reloptions) AS options,
            pg_catalog.pg_get_viewdef(c.oid) AS definition, c.relispopulated AS populated,
            (SELECT pg_catalog.json_agg(pg_catalog.quote_ident(a.attname) || ' ' ||
                pg_catalog.format_type(a.atttypid, a.atttypmod) || ' ' || a.attcollation ORDER BY a.attnum)
                FROM pg_catalog.pg_attribute a
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns
         FROM {FROM_RELATIONS} WHERE {of}"
    )
}

fn sequences() -> String {
    let (head, owned, of) =
        (head("sequence", 1259, "c.oid"), owned("c.relowner", "c.relacl"), of_kinds("'S'"));
    format!(
        "{head}, {RELATION} AS name, pg_catalog.quote_ident(n.nspname) AS schema, {owned},
            pg_catalog.format_type(s.seqtypid, NULL) AS \"type\", s.seqstart AS start, s.seqincrement AS increment,
            s.seqmin AS min, s.seqmax AS max, s.seqcache AS cache, s.seqcycle AS cycle,
            c.relpersistence = 'u' AS unlogged,
            (SELECT pg_catalog.json_build_array(pg_catalog.format('%I.%I', tn.nspname, t.relname),
                    pg_catalog.quote_ident(a.attname))
                FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class t ON t.oid = d.refobjid
                JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace
                JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
                WHERE d.classid = 1259 AND d.objid = c.oid AND d.refclassid = 1259 AND d.deptype = 'a') AS owned_by
         FROM {FROM_RELATIONS} JOIN pg_catalog.pg_sequence s ON s.seqrelid = c.oid
         WHERE {of} AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
            WHERE d.classid = 1259 AND d.objid = c.oid AND d.refclassid = 1259 AND d.deptype = 'i')"
    )
}

fn indexes() -> String {
    let (head, of) = (head("index", 1259, "i.indexrelid"), of_kinds("'r','p','m'"));
    format!(
        "{head}, pg_catalog.format('%I.%I', n.nspname, ic.relname) AS name,
            pg_catalog.quote_ident(n.nspname) AS schema, {RELATION} AS \"on\",
            pg_catalog.quote_ident(ic.relname) AS short, i.indisunique AS is_unique,
            pg_catalog.pg_get_indexdef(i.indexrelid) AS definition, i.indisclustered AS clustered,
            EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhrelid = i.indexrelid) AS inherits
         FROM {FROM_RELATIONS} JOIN pg_catalog.pg_index i ON i.indrelid = c.oid
         JOIN pg_catalog.pg_class ic ON ic.oid = i.indexrelid
         WHERE {of} AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k
            WHERE k.conindid = i.indexrelid AND k.contype IN ('p','u','x'))"
    )
}

fn constraints() -> String {
    let (head, of) = (head("constraint", 2606, "k.oid"), of_kinds("'r','p'"));
    let of_domains = head.clone();
    let own_type = own(1247, "t.oid");
    format!(
        "{head}, {RELATION} AS \"on\", false AS of_domain, pg_catalog.quote_ident(k.conname) AS name,
            k.contype = 'f' AS is_foreign, pg_catalog.pg_get_constraintdef(k.oid) AS definition,
            CASE WHEN k.confrelid <> 0 THEN (SELECT pg_catalog.format('%I.%I', fn.nspname, f.relname)
                FROM pg_catalog.pg_class f JOIN pg_catalog.pg_namespace fn ON fn.oid = f.relnamespace
                WHERE f.oid = k.confrelid) END AS target,
            k.contype AS letter, (SELECT pg_catalog.format('%I.%I', xn.nspname, x.relname)
                FROM pg_catalog.pg_class x JOIN pg_catalog.pg_namespace xn ON xn.oid = x.relnamespace
                WHERE x.oid = k.conindid AND k.contype IN ('p','u','x')) AS index, k.conparentid <> 0 OR NOT k.conislocal AS inherits
         FROM {FROM_RELATIONS} JOIN pg_catalog.pg_constraint k ON k.conrelid = c.oid
         WHERE k.contype IN ('c','p','u','f','x') AND {of}
         UNION ALL
         {of_domains}, pg_catalog.format('%I.%I', n.nspname, t.typname), true, pg_catalog.quote_ident(k.conname),
            false, pg_catalog.pg_get_constraintdef(k.oid), NULL, k.contype, NULL, false
         FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_type t ON t.oid = k.contypid
         JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
         WHERE k.contype = 'c' AND {OURS} AND {own_type}"
    )
}

fn triggers() -> String {
    let (head, of) = (head("trigger", 2620, "g.oid"), of_kinds("'r','p','v'"));
    format!(
        "{head}, {RELATION} AS \"on\", pg_catalog.quote_ident(g.tgname) AS name,
            pg_catalog.pg_get_triggerdef(g.oid) AS definition,
            CASE g.tgenabled WHEN 'D' THEN 'DISABLE TRIGGER' WHEN 'R' THEN 'ENABLE REPLICA TRIGGER'
                WHEN 'A' THEN 'ENABLE ALWAYS TRIGGER' ELSE 'ENABLE TRIGGER' END AS enabled
         FROM {FROM_RELATIONS} JOIN pg_catalog.pg_trigger g ON g.tgrelid = c.oid
         WHERE NOT g.tgisinternal AND g.tgparentid = 0 AND {of}"
    )
}

fn policies() -> String {
    let (head, of) = (head("policy", 3256, "y.oid"), of_kinds("'r','p'"));
    format!(
        "{head}, {RELATION} AS \"on\", pg_catalog.quote_ident(y.polname) AS name, y.polpermissive AS permissive,
            CASE y.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE'
                WHEN 'd' THEN 'DELETE' ELSE 'ALL' END AS command,
            (SELECT pg_catalog.json_agg(CASE r WHEN 0 THEN 'PUBLIC'
                ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(r)) END ORDER BY r = 0,
                pg_catalog.pg_get_userbyid(r)) FROM pg_catalog.unnest(y.polroles) r) AS roles,
            pg_catalog.pg_get_expr(y.polqual, y.polrelid) AS \"using\",
            pg_catalog.pg_get_expr(y.polwithcheck, y.polrelid) AS \"check\"
         FROM {FROM_RELATIONS} JOIN pg_catalog.pg_policy y ON y.polrelid = c.oid WHERE {of}"
    )
}

fn rules() -> String {
    let (head, of) = (head("rule", 2618, "r.oid"), of_kinds("'r','p','v'"));
    format!(
        "{head}, {RELATION} AS \"on\", pg_catalog.quote_ident(r.rulename) AS name,
            pg_catalog.pg_get_ruledef(r.oid) AS definition,
            CASE r.ev_enabled WHEN 'D' THEN 'DISABLE RULE' WHEN 'R' THEN 'ENABLE REPLICA RULE'
                WHEN 'A' THEN 'ENABLE ALWAYS RULE' ELSE 'ENABLE RULE' END AS enabled
         FROM {FROM_RELATIONS} JOIN pg_catalog.pg_rewrite r ON r.ev_class = c.oid
         WHERE r.rulename <> '_RETURN' AND {of}"
    )
}

fn statistics() -> String {
    let (head, of) = (head("statistics", 3381, "s.oid"), of_kinds("'r','p','m'"));
    format!(
        "{head}, pg_catalog.format('%I.%I', sn.nspname, s.stxname) AS name,
            pg_catalog.quote_ident(sn.nspname) AS schema, {RELATION} AS \"on\",
            pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(s.stxowner)) AS owner,
            pg_catalog.pg_get_statisticsobjdef(s.oid) AS definition
         FROM {FROM_RELATIONS} JOIN pg_catalog.pg_statistic_ext s ON s.stxrelid = c.oid
         JOIN pg_catalog.pg_namespace sn ON sn.oid = s.stxnamespace WHERE {of}"
    )
}
