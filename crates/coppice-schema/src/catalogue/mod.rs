//! What is asked of a server's catalogue.
//!
//! The server is a tenant's. Everything is named with `pg_catalog`, no function
//! or operator of a tenant is called, and [`SETTINGS`] keep what is there by
//! another search path or format from counting. Each row is one JSON text; the
//! statements are to be carried out in one transaction that sees one state.

mod links;
mod parts;
mod relations;

/// What has to be set in the session, whatever the database or role says:
/// names with values. They decide how definitions look.
pub const SETTINGS: &[(&str, &str)] = &[
    ("search_path", "pg_catalog,pg_temp"),
    ("DateStyle", "ISO,YMD"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "1"),
    ("quote_all_identifiers", "off"),
    ("standard_conforming_strings", "on"),
    ("bytea_output", "hex"),
    ("xmloption", "content"),
    ("lc_monetary", "C"),
    ("row_security", "off"),
];

/// The statements. Each answers rows of one text.
pub fn queries() -> Vec<String> {
    let queries = [relations::queries(), parts::queries(), links::queries()].concat();
    queries.into_iter().map(|query| format!("SELECT pg_catalog.row_to_json(x) FROM ({query}) x")).collect()
}

/// Whether a schema (`n`) is one that people make things in.
const OURS: &str = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'";

/// Whether an object is nobody's extension's.
fn own(class: u32, oid: &str) -> String {
    format!(
        "NOT EXISTS (SELECT FROM pg_catalog.pg_depend e \
         WHERE e.classid = {class} AND e.objid = {oid} AND e.deptype = 'e')"
    )
}

/// What every object says of itself: where it is in the catalogue, its comment.
fn head(kind: &str, class: u32, oid: &str) -> String {
    format!(
        "SELECT '{kind}' AS kind, {class} AS class, {oid}::pg_catalog.int8 AS oid, \
         (SELECT said.description FROM pg_catalog.pg_description said \
          WHERE said.objoid = {oid} AND said.classoid = {class} AND said.objsubid = 0) AS comment"
    )
}

/// An object's owner, and who may do what with it.
fn owned(owner: &str, acl: &str) -> String {
    format!("pg_catalog.quote_ident(pg_catalog.pg_get_userbyid({owner})) AS owner, {}", grants(acl))
}

/// SQL for the grants of an access list; null for the default of its kind.
fn grants(acl: &str) -> String {
    format!(
        "CASE WHEN {acl} IS NOT NULL THEN (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(\
         CASE g.grantee WHEN 0 THEN '' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(g.grantee)) END, \
         g.privilege_type, g.is_grantable)), '[]'::pg_catalog.json) FROM pg_catalog.aclexplode({acl}) g) END AS acl"
    )
}

/// A collation by its whole name, where it is not the one that comes with the type.
fn collation(own: &str, usual: &str) -> String {
    format!(
        "(SELECT pg_catalog.format('%I.%I', cn.nspname, co.collname) FROM pg_catalog.pg_collation co \
         JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace \
         WHERE co.oid = {own} AND {own} <> {usual}) AS collation"
    )
}
