//! Who needs whom, and what is said about the database as a whole.

use super::{OURS, own};

/// The first number that is given to what people make.
const FIRST: u32 = 16_384;

pub(super) fn queries() -> Vec<String> {
    vec![edges(), stand_ins(), members(), server(), privileges(), left_out()]
}

/// An object needs another one. Schemas are known by names.
fn edges() -> String {
    const CLASSES: &str = "1247, 1255, 1259, 2604, 2606, 2618, 2620, 3256, 3381";
    format!(
        "SELECT 'edge' AS kind, pg_catalog.json_build_array(d.classid::pg_catalog.int8, d.objid::pg_catalog.int8,
                d.objsubid) AS \"of\",
            pg_catalog.json_build_array(d.refclassid::pg_catalog.int8, d.refobjid::pg_catalog.int8, d.refobjsubid) AS \"is\"
         FROM pg_catalog.pg_depend d
         WHERE d.deptype IN ('n','a','i') AND d.objid >= {FIRST} AND d.refobjid >= {FIRST}
            AND d.classid IN ({CLASSES}) AND d.refclassid <> 2615 AND d.refclassid <> 3079"
    )
}

/// An entry of the catalogue is a part of another one.
fn stand_ins() -> String {
    let row = |class: &str, oid: &str, is: [&str; 3]| {
        format!(
            "SELECT 'stand_in' AS kind, pg_catalog.json_build_array({class}, {oid}::pg_catalog.int8, 0) AS \"of\", \
             pg_catalog.json_build_array({}, {}::pg_catalog.int8, {}) AS \"is\"",
            is[0], is[1], is[2]
        )
    };
    let rows = [
        row("2618", "r.oid", ["1259", "r.ev_class", "0"])
            + " FROM pg_catalog.pg_rewrite r WHERE r.rulename = '_RETURN' AND r.oid >= 16384",
        row("2604", "f.oid", ["1259", "f.adrelid", "f.adnum"])
            + " FROM pg_catalog.pg_attrdef f JOIN pg_catalog.pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum \
               WHERE a.attgenerated <> ''",
        row("1247", "c.reltype", ["1259", "c.oid", "0"])
            + " FROM pg_catalog.pg_class c WHERE c.relkind IN ('r','p','v','m') AND c.reltype >= 16384",
        row("1259", "c.oid", ["1247", "c.reltype", "0"])
            + " FROM pg_catalog.pg_class c WHERE c.relkind = 'c' AND c.oid >= 16384",
        row("1247", "t.typarray", ["1247", "t.oid", "0"])
            + " FROM pg_catalog.pg_type t WHERE t.typarray >= 16384",
        row("1247", "r.rngmultitypid", ["1247", "r.rngtypid", "0"])
            + " FROM pg_catalog.pg_range r WHERE r.rngtypid >= 16384",
        row("1255", "d.objid", ["1247", "d.refobjid", "0"])
            + " FROM pg_catalog.pg_depend d \
               WHERE d.classid = 1255 AND d.refclassid = 1247 AND d.deptype = 'i' AND d.objid >= 16384",
        row("1259", "k.conindid", ["2606", "k.oid", "0"])
            + " FROM pg_catalog.pg_constraint k WHERE k.contype IN ('p','u','x') AND k.conindid >= 16384",
        row("1259", "d.objid", ["1259", "d.refobjid", "d.refobjsubid"])
            + " FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class c ON c.oid = d.objid AND c.relkind = 'S' \
               WHERE d.classid = 1259 AND d.refclassid = 1259 AND d.deptype = 'i' AND d.objid >= 16384",
    ];
    rows.join(" UNION ALL ")
}

/// What extensions brought and others use.
fn members() -> String {
    "SELECT 'stand_in' AS kind, pg_catalog.json_build_array(m.classid::pg_catalog.int8, m.objid::pg_catalog.int8, 0) AS \"of\",
        pg_catalog.json_build_array(3079, m.refobjid::pg_catalog.int8, 0) AS \"is\"
     FROM pg_catalog.pg_depend m
     WHERE m.deptype = 'e' AND m.refclassid = 3079 AND EXISTS (SELECT FROM pg_catalog.pg_depend d
        WHERE d.refclassid = m.classid AND d.refobjid = m.objid AND d.deptype = 'n')"
        .to_owned()
}

fn server() -> String {
    "SELECT 'server' AS kind, pg_catalog.current_setting('server_version_num')::pg_catalog.int4 / 10000 AS major,
        pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(d.datdba)) AS owner,
        coalesce((SELECT pg_catalog.json_agg(pg_catalog.quote_ident(r.rolname)) FROM pg_catalog.pg_roles r),
            '[]'::pg_catalog.json) AS roles
     FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()"
        .to_owned()
}

/// What the owner of a new object, and everybody, may do with it.
fn privileges() -> String {
    "SELECT 'privileges' AS kind, l AS letter,
        coalesce((SELECT pg_catalog.json_agg(g.privilege_type) FROM pg_catalog.aclexplode(pg_catalog.acldefault(l, 10)) g
            WHERE g.grantee = 10), '[]'::pg_catalog.json) AS owner,
        coalesce((SELECT pg_catalog.json_agg(g.privilege_type) FROM pg_catalog.aclexplode(pg_catalog.acldefault(l, 10)) g
            WHERE g.grantee = 0), '[]'::pg_catalog.json) AS everybody
     FROM pg_catalog.unnest('{r,s,f,n,T}'::pg_catalog.\"char\"[]) l"
        .to_owned()
}

/// How many there are of each kind that is not compared.
fn left_out() -> String {
    let in_schemas = |what: &str, table: &str, namespace: &str, class: u32, only: &str| {
        let own = own(class, "o.oid");
        format!(
            "SELECT '{what}', pg_catalog.count(*) FROM pg_catalog.{table} o JOIN pg_catalog.pg_namespace n ON n.oid = o.{namespace} \
             WHERE {OURS} AND {own} AND {only}"
        )
    };
    let global = |what: &str, table: &str, class: u32| {
        let own = own(class, "o.oid");
        format!(
            "SELECT '{what}', pg_catalog.count(*) FROM pg_catalog.{table} o WHERE o.oid >= {FIRST} AND {own}"
        )
    };
    let counts = [
        in_schemas("aggregate", "pg_proc", "pronamespace", 1255, "o.prokind = 'a'"),
        in_schemas("base type", "pg_type", "typnamespace", 1247, "o.typtype IN ('b','p') AND o.typelem = 0"),
        in_schemas("foreign table", "pg_class", "relnamespace", 1259, "o.relkind = 'f'"),
        in_schemas("collation", "pg_collation", "collnamespace", 3456, "true"),
        in_schemas("conversion", "pg_conversion", "connamespace", 2607, "true"),
        in_schemas("operator", "pg_operator", "oprnamespace", 2617, "true"),
        in_schemas("operator class", "pg_opclass", "opcnamespace", 2616, "true"),
        in_schemas("operator family", "pg_opfamily", "opfnamespace", 2753, "true"),
        in_schemas("text search configuration", "pg_ts_config", "cfgnamespace", 3602, "true"),
        in_schemas("text search dictionary", "pg_ts_dict", "dictnamespace", 3600, "true"),
        in_schemas("text search parser", "pg_ts_parser", "prsnamespace", 3601, "true"),
        in_schemas("text search template", "pg_ts_template", "tmplnamespace", 3764, "true"),
        global("access method", "pg_am", 2601),
        global("cast", "pg_cast", 2605),
        global("event trigger", "pg_event_trigger", 3466),
        global("foreign data wrapper", "pg_foreign_data_wrapper", 2328),
        global("foreign server", "pg_foreign_server", 1417),
        global("language", "pg_language", 2612),
        global("publication", "pg_publication", 6104),
        global("transform", "pg_transform", 3576),
        "SELECT 'large object', pg_catalog.count(*) FROM pg_catalog.pg_largeobject_metadata".to_owned(),
        "SELECT 'security label', pg_catalog.count(*) FROM pg_catalog.pg_seclabel".to_owned(),
        "SELECT 'subscription', pg_catalog.count(*) FROM pg_catalog.pg_subscription s JOIN pg_catalog.pg_database d \
         ON d.oid = s.subdbid WHERE d.datname = pg_catalog.current_database()"
            .to_owned(),
        "SELECT 'user mapping', pg_catalog.count(*) FROM pg_catalog.pg_user_mappings".to_owned(),
    ];
    format!(
        "SELECT 'left_out' AS kind, l.what, l.many FROM ({}) l (what, many) WHERE l.many > 0",
        counts.join(" UNION ALL ")
    )
}
