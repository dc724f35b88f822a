//! What a restore evaluates, and whose that is.
//!
//! One role owns everything while it is restored, so whatever is evaluated then may change what belongs to any other.
//! Of the managed role's that is no matter: roles and databases are its own. Others, like the login of a key, reach
//! no further than their things, and so does what they wrote; with one exception, that which can do nothing. Roles of
//! PostgreSQL's own are others too: whoever is a member of one can give things to it, like the login of a key. What is
//! the managed role's may call code of others that has their rights alone, by SECURITY DEFINER, and no less meanwhile.

use coppice_core::branch::MANAGED_ROLE;

use super::databases::Database;
use super::quoting::{self, in_one_line};
use super::roles::said;
use crate::local::session::{Parameter, Session};
use crate::{EngineError, Result};
use tokio_postgres::types::Type;

/// What is evaluated, also by whoever only plans a query on a table that has it, with the functions in it: those of expressions are named in them by number. Only what
/// superusers made for it is known to do nothing else (`FirstNormalObjectId` is 16384); of PostgreSQL's own, what is
/// volatile may do anything, and what makes XML of a query or a table runs it. A materialized view may have anything below
/// it; what makes a value of one type another one's, or tells how far two of a range are from each other, is called by much.
/// What functions call is in their texts, and who wrote one to be evaluated names what it calls; triggers are made last.
const OF_OTHERS: &str = r"WITH others AS (
        SELECT oid FROM pg_catalog.pg_authid
        WHERE NOT rolsuper AND NOT pg_catalog.pg_has_role(oid, $1::text::name, 'USAGE')),
    expressions (class, object, owner, said) AS (
        SELECT 'pg_constraint'::regclass, c.oid, coalesce(t.relowner, y.typowner), c.conbin::text
            FROM pg_catalog.pg_constraint c LEFT JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
            LEFT JOIN pg_catalog.pg_type y ON y.oid = c.contypid WHERE c.contype = 'c'
        UNION ALL SELECT 'pg_attrdef'::regclass, d.oid, t.relowner, d.adbin::text
            FROM pg_catalog.pg_attrdef d JOIN pg_catalog.pg_class t ON t.oid = d.adrelid
            JOIN pg_catalog.pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum WHERE a.attgenerated <> ''
        UNION ALL SELECT 'pg_class'::regclass, i.indexrelid, t.relowner, concat(i.indexprs::text, i.indpred::text)
            FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
        UNION ALL SELECT 'pg_class'::regclass, p.partrelid, t.relowner, p.partexprs::text
            FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_class t ON t.oid = p.partrelid
        UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid, t.relowner, s.stxexprs::text
            FROM pg_catalog.pg_statistic_ext s JOIN pg_catalog.pg_class t ON t.oid = s.stxrelid),
    calls (class, object, owner, function) AS (
        SELECT e.class, e.object, e.owner, n[1]::oid FROM expressions e
            CROSS JOIN LATERAL regexp_matches(e.said, ':(?:[a-z]*funcid|[a-z]+fnoid) ([0-9]+)', 'g') AS f (n)
        UNION ALL SELECT e.class, e.object, e.owner, o.oprcode::oid FROM expressions e
            CROSS JOIN LATERAL regexp_matches(e.said, ':opno ([0-9]+)', 'g') AS f (n)
            JOIN pg_catalog.pg_operator o ON o.oid = n[1]::oid
        UNION ALL SELECT 'pg_type'::regclass, r.rngtypid, y.typowner, f.function
            FROM pg_catalog.pg_range r JOIN pg_catalog.pg_type y ON y.oid = r.rngtypid
            CROSS JOIN LATERAL unnest(ARRAY[r.rngcanonical::oid, r.rngsubdiff::oid]) AS f (function)
        UNION ALL SELECT 'pg_cast'::regclass, c.oid, p.proowner, c.castfunc
            FROM pg_catalog.pg_cast c JOIN pg_catalog.pg_proc p ON p.oid = c.castfunc),
    defining (function, name, owner) AS (
        SELECT p.oid, p.proname, p.proowner FROM pg_catalog.pg_proc p JOIN others ON others.oid = p.proowner
            WHERE p.prosecdef AND p.prorettype <> 'trigger'::regtype
              AND (EXISTS (SELECT FROM calls c JOIN pg_catalog.pg_proc f ON f.oid = c.function
                       JOIN pg_catalog.pg_authid r ON r.oid = f.proowner WHERE NOT r.rolsuper)
                   OR EXISTS (SELECT FROM pg_catalog.pg_class WHERE relkind = 'm' AND relispopulated))),
    evaluated (class, object, owner) AS (
        SELECT c.class, c.object, c.owner FROM calls c JOIN others ON others.oid = c.owner
            JOIN pg_catalog.pg_proc p ON p.oid = c.function
            JOIN pg_catalog.pg_authid r ON r.oid = p.proowner
            WHERE NOT (r.rolsuper AND (p.provolatile = 'i' OR p.oid < 16384 AND p.provolatile = 's' AND p.proname !~ '_to_xml'))
        UNION ALL SELECT 'pg_class'::regclass, t.oid, t.relowner FROM pg_catalog.pg_class t
            JOIN others ON others.oid = t.relowner WHERE t.relkind = 'm' AND t.relispopulated
        UNION ALL SELECT 'pg_proc'::regclass, d.function, d.owner FROM defining d
            WHERE EXISTS (SELECT FROM pg_catalog.pg_depend n
                      WHERE n.refclassid = 'pg_proc'::regclass AND n.refobjid = d.function AND n.deptype = 'n')
               OR EXISTS (SELECT FROM pg_catalog.pg_proc c JOIN pg_catalog.pg_authid r ON r.oid = c.proowner
                      WHERE NOT r.rolsuper AND c.proowner NOT IN (SELECT oid FROM others)
                        AND strpos(lower(c.prosrc), lower(d.name)) > 0))
    SELECT r.rolname, i.type, i.identity FROM evaluated e JOIN pg_catalog.pg_authid r ON r.oid = e.owner
        CROSS JOIN LATERAL pg_catalog.pg_identify_object(e.class, e.object, 0) i
    ORDER BY 1, 2, 3 LIMIT 1";

/// Refuses a database in which a role that is not the managed one has something evaluated that may do more than
/// compute. `old` is a session in it.
///
/// # Errors
/// [`EngineError::NotUpgradable`] names it.
pub(super) async fn refuse_of_others(database: &Database, old: &Session) -> Result<()> {
    let managed: [Parameter<'_>; 1] = [(&MANAGED_ROLE, Type::TEXT)];
    let found = old.query_opt("looking for what is evaluated", OF_OTHERS, &managed).await?;
    let Some(row) = found else { return Ok(()) };
    let (owner, kind, name) = (said(&row, 0)?, said(&row, 1)?, said(&row, 2)?);
    // PostgreSQL does not reassign what its own roles have.
    let how = match owner.starts_with("pg_") {
        true => "ALTER … OWNER".to_owned(),
        false => format!("REASSIGN OWNED BY {}", quoting::name(&owner)),
    };
    let why = format!(
        "database {}: {kind} {name} of the role {owner} runs code while it is restored, which could change what is \
         not that role's: look at what it does, and drop it or give it to {MANAGED_ROLE} ({how} TO {MANAGED_ROLE})",
        database.name
    );
    Err(EngineError::NotUpgradable(in_one_line(&why)))
}
