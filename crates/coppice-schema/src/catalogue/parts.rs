//! What tables are made with: schemas, extensions, types, routines, default privileges.

use super::{OURS, collation, grants, head, own, owned};

pub(super) fn queries() -> Vec<String> {
    vec![schemas(), extensions(), types(), routines(), default_privileges()]
}

fn schemas() -> String {
    let (head, owned) = (head("schema", 2615, "n.oid"), owned("n.nspowner", "n.nspacl"));
    let own = own(2615, "n.oid");
    format!(
        "{head}, pg_catalog.quote_ident(n.nspname) AS name, {owned} FROM pg_catalog.pg_namespace n WHERE {OURS} AND {own}"
    )
}

fn extensions() -> String {
    "SELECT 'extension' AS kind, 3079 AS class, e.oid::pg_catalog.int8 AS oid,
        pg_catalog.quote_ident(e.extname) AS name, pg_catalog.quote_ident(n.nspname) AS schema,
        e.extversion AS version
     FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace"
        .to_owned()
}

fn types() -> String {
    let (head, owned, own) =
        (head("type", 1247, "t.oid"), owned("t.typowner", "t.typacl"), own(1247, "t.oid"));
    let of_domain = collation("t.typcollation", "b.typcollation");
    let of_range = collation("r.rngcollation", "0").replace(" AS collation", "");
    let of_attribute = collation("a.attcollation", "at.typcollation").replace(" AS collation", "");
    format!(
        "{head}, pg_catalog.format('%I.%I', n.nspname, t.typname) AS name,
            pg_catalog.quote_ident(n.nspname) AS schema, {owned},
            CASE t.typtype WHEN 'e' THEN coalesce((SELECT pg_catalog.json_agg(l.enumlabel ORDER BY l.enumsortorder)
                FROM pg_catalog.pg_enum l WHERE l.enumtypid = t.oid), '[]'::pg_catalog.json) END AS labels,
            CASE t.typtype WHEN 'd' THEN pg_catalog.format_type(t.typbasetype, t.typtypmod) END AS base,
            CASE t.typtype WHEN 'd' THEN coalesce(pg_catalog.pg_get_expr(t.typdefaultbin, 0), t.typdefault) END AS \"default\",
            t.typtype = 'd' AND t.typnotnull AS not_null, {of_domain},
            CASE t.typtype WHEN 'c' THEN coalesce((SELECT pg_catalog.json_agg(pg_catalog.json_build_array(
                pg_catalog.quote_ident(a.attname), pg_catalog.format_type(a.atttypid, a.atttypmod), {of_attribute})
                    ORDER BY a.attnum)
                FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type at ON at.oid = a.atttypid
                WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped), '[]'::pg_catalog.json) END AS attributes,
            CASE t.typtype WHEN 'r' THEN (SELECT pg_catalog.json_build_object(
                'subtype', pg_catalog.format_type(r.rngsubtype, NULL),
                'subtype_opclass', (SELECT pg_catalog.format('%I.%I', orn.nspname, o.opcname)
                    FROM pg_catalog.pg_opclass o JOIN pg_catalog.pg_namespace orn ON orn.oid = o.opcnamespace
                    WHERE o.oid = r.rngsubopc AND NOT o.opcdefault),
                'collation', {of_range},
                'canonical', NULLIF(r.rngcanonical::pg_catalog.text, '-'),
                'subtype_diff', NULLIF(r.rngsubdiff::pg_catalog.text, '-'),
                'multirange_type_name', pg_catalog.format('%I.%I', mn.nspname, m.typname))
                FROM pg_catalog.pg_range r JOIN pg_catalog.pg_type m ON m.oid = r.rngmultitypid
                JOIN pg_catalog.pg_namespace mn ON mn.oid = m.typnamespace
                WHERE r.rngtypid = t.oid) END AS range
         FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
         LEFT JOIN pg_catalog.pg_type b ON b.oid = t.typbasetype
         WHERE (t.typtype IN ('e','d','r') OR t.typtype = 'c' AND EXISTS (SELECT FROM pg_catalog.pg_class c
            WHERE c.oid = t.typrelid AND c.relkind = 'c')) AND {OURS} AND {own}"
    )
}

fn routines() -> String {
    let (head, owned, own) =
        (head("routine", 1255, "p.oid"), owned("p.proowner", "p.proacl"), own(1255, "p.oid"));
    format!(
        "{head}, pg_catalog.format('%I.%I', n.nspname, p.proname) AS short,
            pg_catalog.oidvectortypes(p.proargtypes) AS arguments,
            pg_catalog.quote_ident(n.nspname) AS schema, {owned}, p.prokind = 'p' AS procedure,
            pg_catalog.pg_get_functiondef(p.oid) AS definition,
            pg_catalog.concat_ws(' ', p.prokind, pg_catalog.pg_get_function_result(p.oid)) AS result,
            pg_catalog.to_json(p.proargnames) AS names, p.pronargdefaults AS defaults
         FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
         WHERE p.prokind IN ('f','p','w') AND {OURS} AND {own}
            AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend i
                WHERE i.classid = 1255 AND i.objid = p.oid AND i.deptype = 'i')"
    )
}

fn default_privileges() -> String {
    let acl = grants("d.defaclacl");
    format!(
        "SELECT 'default_privileges' AS kind, 826 AS class, d.oid::pg_catalog.int8 AS oid,
            pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(d.defaclrole)) AS owner,
            pg_catalog.quote_ident(n.nspname) AS schema, d.defaclobjtype AS letter, {acl}
         FROM pg_catalog.pg_default_acl d LEFT JOIN pg_catalog.pg_namespace n ON n.oid = d.defaclnamespace"
    )
}
