//! Materialized views are filled when all else is in place, each as its owner: what a query reaches has the rights that
//! it has in the branch, also what belongs to others, like a view, a rule, or a function with SECURITY DEFINER.

use super::grants::NO_CATALOGUE;
use super::quoting;
use super::roles::said;
use crate::Result;
use crate::local::session::Session;

/// Who has to be one of a database's roles to fill its views: their owners, and whoever may name things in all schemas.
/// The owner of a database is what `pg_database_owner` has for a member, and nobody is made another one.
const OWNERS: &str = "SELECT format('%I', rolname) FROM pg_catalog.pg_roles r
    WHERE NOT rolsuper AND rolname <> 'pg_database_owner'
      AND (rolname = 'pg_read_all_data'
           OR oid IN (SELECT relowner FROM pg_catalog.pg_class WHERE relkind = 'm')
           OR oid = (SELECT datdba FROM pg_catalog.pg_database WHERE datname = current_database()))
    ORDER BY 1";

/// Of a list of what is in a dump, what is restored first, and what fills materialized views; both in the order of the
/// list, which heeds what is made of what.
pub(super) fn split(listed: &str) -> (String, String) {
    let (mut first, mut filling) = (String::new(), String::new());
    for line in listed.lines() {
        let list = if fills(line) { &mut filling } else { &mut first };
        list.extend([line, "\n"]);
    }
    (first, filling)
}

/// Whether a line of such a list fills one: `3341; 0 16420 MATERIALIZED VIEW DATA public sums app`. What a view in a
/// schema DATA is made by has a catalogue.
fn fills(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.nth(1) == Some(NO_CATALOGUE) && words.skip(1).take(3).eq(["MATERIALIZED", "VIEW", "DATA"])
}

/// Makes the role that restores a member of those that have materialized views in a database, which `new` is a session
/// in. It may do what they may from then on, until it [leaves](leave) them.
pub(super) async fn join(new: &Session, restorer: &str) -> Result<Vec<String>> {
    let rows = new.query("reading who has materialized views", OWNERS, &[]).await?;
    let owners = rows.iter().map(|row| said(row, 0)).collect::<Result<Vec<_>>>()?;
    let restorer = quoting::name(restorer);
    let grants: Vec<_> = owners.iter().map(|owner| format!("GRANT {owner} TO {restorer}")).collect();
    new.transaction("letting materialized views be filled", &grants).await?;
    Ok(owners)
}

/// Undoes [`join`].
pub(super) async fn leave(new: &Session, restorer: &str, owners: &[String]) -> Result<()> {
    let restorer = quoting::name(restorer);
    let revokes: Vec<_> = owners.iter().map(|owner| format!("REVOKE {owner} FROM {restorer}")).collect();
    new.transaction("having filled materialized views", &revokes).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fills_materialized_views_is_told_from_all_else() {
        let listed = "; Archive created\n;     dbname: app\n\
                      224; 1259 16420 MATERIALIZED VIEW DATA mv app\n\
                      3340; 0 16421 TABLE DATA MATERIALIZED VIEW DATA app\n\
                      3341; 0 16420 MATERIALIZED VIEW DATA DATA mv app\n\
                      3342; 0 0 COMMENT DATA MATERIALIZED VIEW mv app\n\
                      3343; 0 16422 MATERIALIZED VIEW DATA public above mv app\n";
        let (first, filling) = split(listed);
        assert_eq!(
            filling,
            "3341; 0 16420 MATERIALIZED VIEW DATA DATA mv app\n\
             3343; 0 16422 MATERIALIZED VIEW DATA public above mv app\n"
        );
        assert_eq!(
            first.lines().count() + filling.lines().count(),
            listed.lines().count(),
            "all is restored"
        );
        assert!(
            first.contains("224; 1259") && first.contains("3340; 0") && first.contains("3342; 0"),
            "{first}"
        );
    }
}
