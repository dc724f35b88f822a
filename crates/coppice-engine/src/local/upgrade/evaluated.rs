//! What a restore evaluates, and whose that is.
//!
//! One role owns everything while it is restored, so whatever is evaluated then may change what belongs to any other.
//! Of the managed role's that is no matter: roles and databases are its own. Others, like the login of a key, reach
//! no further than their things, and so does what they wrote; with one exception, that which can do nothing. Roles of
//! PostgreSQL's own are others too: whoever is a member of one can give things to it, like the login of a key.
//!
//! What is the managed role's may do anything, by texts that nobody but PostgreSQL can read. So where anything of it is
//! evaluated, whatever of others has their rights for whoever uses it, and would have more meanwhile, counts as used.
//! Materialized views are no matter: [`super::views`] has them filled by their owners.

use coppice_core::branch::MANAGED_ROLE;

use super::databases::Database;
use super::quoting::{self, in_one_line};
use super::roles::said;
use crate::local::session::{Parameter, Session};
use crate::{EngineError, Result};
use tokio_postgres::types::Type;

/// What is evaluated, also by whoever only plans a query on a table that has it, with the functions in it: those of expressions are named in them by number. Only what
/// superusers made for it is known to do nothing else (`FirstNormalObjectId` is 16384); of PostgreSQL's own, what is
/// volatile may do anything, and what makes XML of a query or a table runs it. What makes a value of one type another one's,
/// or tells how far two of a range are from each other, is called by much.
///
/// What lends the rights of its owner is a function with SECURITY DEFINER, also one of a trigger; a foreign key that changes
/// rows in the name of whoever has them, where a trigger sees that; and a view or a rule that reaches what its owner may not
/// read, or not write where it can write: `_RETURN` is the rule that reads a view, and heeds `security_invoker`. Rows that a
/// policy hides from an owner are hidden from nobody who owns the table.
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
    running (class, object, owner) AS (
        SELECT c.class, c.object, c.owner FROM calls c JOIN pg_catalog.pg_proc p ON p.oid = c.function
            JOIN pg_catalog.pg_authid r ON r.oid = p.proowner
            WHERE NOT (r.rolsuper AND (p.provolatile = 'i' OR p.oid < 16384 AND p.provolatile = 's' AND p.proname !~ '_to_xml'))),
    lending (class, object, owner) AS (
        SELECT 'pg_proc'::regclass, p.oid, p.proowner FROM pg_catalog.pg_proc p WHERE p.prosecdef
        UNION ALL SELECT 'pg_constraint'::regclass, f.oid, t.relowner
            FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class t ON t.oid = f.conrelid
            JOIN pg_catalog.pg_class b ON b.oid = f.confrelid AND b.relowner <> t.relowner
            WHERE f.contype = 'f' AND (f.confdeltype IN ('c', 'n', 'd') OR f.confupdtype IN ('c', 'n', 'd'))
              AND EXISTS (SELECT FROM pg_catalog.pg_trigger g WHERE g.tgrelid = t.oid AND NOT g.tgisinternal)
        UNION ALL SELECT CASE w.rulename WHEN '_RETURN' THEN 'pg_class'::regclass ELSE 'pg_rewrite'::regclass END,
            CASE w.rulename WHEN '_RETURN' THEN t.oid ELSE w.oid END, t.relowner
            FROM pg_catalog.pg_rewrite w JOIN pg_catalog.pg_class t ON t.oid = w.ev_class
            WHERE t.relkind <> 'm' AND NOT (w.rulename = '_RETURN' AND EXISTS (
                SELECT FROM pg_catalog.pg_options_to_table(t.reloptions)
                WHERE option_name = 'security_invoker' AND option_value::boolean))
              AND EXISTS (SELECT FROM pg_catalog.pg_depend d
                JOIN pg_catalog.pg_class b ON b.oid = d.refobjid AND b.oid <> t.oid AND b.relkind IN ('r', 'p', 'f', 'v', 'm')
                JOIN pg_catalog.pg_authid r ON r.oid = b.relowner AND NOT r.rolsuper
                WHERE d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid AND d.refclassid = 'pg_class'::regclass
                  AND (b.relrowsecurity OR NOT pg_catalog.has_table_privilege(t.relowner, b.oid, 'SELECT')
                       OR b.relkind <> 'm' AND (w.rulename <> '_RETURN' OR pg_catalog.pg_relation_is_updatable(t.oid, false) <> 0)
                          AND NOT (pg_catalog.has_table_privilege(t.relowner, b.oid, 'INSERT')
                                   AND pg_catalog.has_table_privilege(t.relowner, b.oid, 'UPDATE')
                                   AND pg_catalog.has_table_privilege(t.relowner, b.oid, 'DELETE'))))),
    evaluated (class, object, owner) AS (
        SELECT c.class, c.object, c.owner FROM running c JOIN others ON others.oid = c.owner
        UNION ALL SELECT l.class, l.object, l.owner FROM lending l JOIN others ON others.oid = l.owner
            WHERE EXISTS (SELECT FROM running c JOIN pg_catalog.pg_authid r ON r.oid = c.owner
                WHERE NOT r.rolsuper AND c.owner NOT IN (SELECT oid FROM others)))
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
