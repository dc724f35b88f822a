//! Roles: they go over with their verifiers, memberships and settings, and none gets
//! more than a tenant can have.
//!
//! The old server may be in its owner's hands, and say of a role whatever they like. So what
//! goes over is decided by names that the new one has been given, never by what the old one
//! says that a role is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use coppice_core::branch::{MANAGED_ROLE, READER_ROLE};

use super::quoting::{self, in_one_line};
use crate::local::following::NAMES;
use crate::local::session::{PLATFORM_ROLE, Parameter, Session, column, named};
use crate::{EngineError, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// Roles of the owner's: the names of PostgreSQL's own are kept for those. Their numbers
/// don't tell, because some are made as early as PostgreSQL's. Those of replicas are made
/// anew.
fn own() -> String {
    format!("rolname !~ '^pg_' AND NOT rolsuper AND NOT (rolreplication AND rolname ~ '{NAMES}')")
}
/// The roles of PostgreSQL's that a tenant can have: those that reach no further than their
/// databases, and what the platform gives.
const WITHIN: [&str; 8] = [
    "pg_checkpoint",
    "pg_monitor",
    "pg_read_all_data",
    "pg_read_all_settings",
    "pg_read_all_stats",
    "pg_signal_backend",
    "pg_stat_scan_tables",
    "pg_write_all_data",
];
/// Whose only member is whoever owns the database.
const OF_DATABASES: &str = "pg_database_owner";
/// Most bytes of the name of a setting.
const NAME_MAX: usize = 128;
/// What the platform sets for all roles; an owner can set nothing for all.
const FOR_ALL: &str = "default_text_search_config";

/// Reads a column with a name or text of the owner's.
///
/// # Errors
/// [`EngineError::NotUpgradable`] when it is no UTF-8.
pub(super) fn said(row: &Row, index: usize) -> Result<String> {
    let unreadable =
        || EngineError::NotUpgradable("a role or database has a name that is no UTF-8".to_owned());
    named(row, index)?.ok_or_else(unreadable)
}

/// Names of the roles that went over.
#[derive(Debug, Default)]
pub(super) struct Copied(BTreeSet<String>);

impl Copied {
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Whether one of them may be a member of a role.
    fn may_join(&self, role: &str) -> bool {
        self.has(role) || WITHIN.contains(&role)
    }

    /// Whether anything may belong to a role: also to one of PostgreSQL's own that some of them are.
    pub(super) fn may_own(&self, role: &str) -> bool {
        self.may_join(role) || role == OF_DATABASES
    }
}

/// Makes the roles of the old server on the new one. Returns also which memberships it goes without.
pub(super) async fn copy(old: &Session, new: &Session) -> Result<(Copied, Vec<String>)> {
    let action = "reading roles";
    let query = format!(
        "SELECT rolname, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolconnlimit,
                coalesce(rolvaliduntil::text, ''), coalesce(rolpassword, ''),
                coalesce(shobj_description(oid, 'pg_authid'), '')
         FROM pg_catalog.pg_authid WHERE {} ORDER BY oid",
        own()
    );
    let mut copied = Copied::default();
    for row in old.query(action, &query, &[]).await? {
        let name = said(&row, 0)?;
        let role = quoting::name(&name);
        let may = |index: usize, word: &str| -> Result<String> {
            Ok(format!("{}{word}", if column::<bool>(&row, index)? { "" } else { "NO" }))
        };
        let mut statements = vec![];
        if name != MANAGED_ROLE {
            statements.push(format!("CREATE ROLE {role}"));
        }
        let abilities = [
            may(1, "INHERIT")?,
            may(2, "CREATEROLE")?,
            may(3, "CREATEDB")?,
            may(4, "LOGIN")?,
            may(5, "REPLICATION")?,
        ]
        .join(" ");
        let connections: i32 = column(&row, 6)?;
        statements.push(format!("ALTER ROLE {role} {abilities} CONNECTION LIMIT {connections}"));
        let (until, verifier, comment) = (said(&row, 7)?, said(&row, 8)?, said(&row, 9)?);
        if !until.is_empty() {
            statements.push(format!("ALTER ROLE {role} VALID UNTIL {}", quoting::text(&until)));
        }
        if !verifier.is_empty() {
            statements.push(format!("ALTER ROLE {role} PASSWORD {}", quoting::text(&verifier)));
        }
        if !comment.is_empty() {
            statements.push(format!("COMMENT ON ROLE {role} IS {}", quoting::text(&comment)));
        }
        new.transaction(&format!("making the role {name}"), &statements).await?;
        copied.0.insert(name);
    }
    let left_out = copy_memberships(old, new, &copied).await?;
    Ok((copied, left_out))
}

/// Roles that no rule holds back, and who may become one.
pub(super) async fn mighty(new: &Session) -> Result<Vec<String>> {
    let query = format!(
        "SELECT rolname::text FROM pg_catalog.pg_authid WHERE rolsuper OR rolbypassrls
         UNION ALL
         SELECT format('%s in %s', m.rolname, r.rolname) FROM pg_catalog.pg_auth_members a
         JOIN pg_catalog.pg_authid r ON r.oid = a.roleid JOIN pg_catalog.pg_authid m ON m.oid = a.member
         WHERE r.rolsuper OR r.rolname ~ '^pg_' AND r.rolname NOT IN ('{}')
         ORDER BY 1",
        WITHIN.join("', '")
    );
    let rows = new.query("listing superusers", &query, &[]).await?;
    rows.iter().map(|row| said(row, 0)).collect()
}

/// The membership of a role in another one.
#[derive(Clone, Debug)]
struct Membership {
    role: String,
    member: String,
    grantor: String,
    is_admin: bool,
    inherits: bool,
    can_set: bool,
}

impl Membership {
    fn of(row: &Row) -> Result<Self> {
        Ok(Self {
            role: said(row, 0)?,
            member: said(row, 1)?,
            grantor: said(row, 2)?,
            is_admin: column(row, 3)?,
            inherits: column(row, 4)?,
            can_set: column(row, 5)?,
        })
    }

    fn statement(&self) -> String {
        let by = match self.grantor.as_str() {
            "" | PLATFORM_ROLE => String::new(),
            grantor => format!(" GRANTED BY {}", quoting::name(grantor)),
        };
        format!(
            "GRANT {} TO {} WITH ADMIN {}, INHERIT {}, SET {}{by}",
            quoting::name(&self.role),
            quoting::name(&self.member),
            self.is_admin,
            self.inherits,
            self.can_set
        )
    }
}

/// Returns those that no tenant may have.
async fn copy_memberships(old: &Session, new: &Session, copied: &Copied) -> Result<Vec<String>> {
    let action = "reading memberships";
    let (has_kinds, kinds) = match old.major() >= 16 {
        true => (true, "a.inherit_option, a.set_option"),
        false => (false, "m.rolinherit, true"),
    };
    let query = format!(
        "SELECT r.rolname, m.rolname, coalesce(g.rolname, '{PLATFORM_ROLE}'), a.admin_option, {kinds}
         FROM pg_catalog.pg_auth_members a
         JOIN pg_catalog.pg_authid r ON r.oid = a.roleid JOIN pg_catalog.pg_authid m ON m.oid = a.member
         LEFT JOIN pg_catalog.pg_authid g ON g.oid = a.grantor ORDER BY r.rolname, m.rolname"
    );
    let rows = old.query(action, &query, &[]).await?;
    let mut memberships = rows.iter().map(Membership::of).collect::<Result<Vec<_>>>()?;
    memberships.retain(|one| copied.has(&one.member));
    let beyond = memberships.extract_if(.., |one| !copied.may_join(&one.role));
    let left_out =
        beyond.map(|one| in_one_line(&format!("{} as a member of {}", one.member, one.role))).collect();
    if !has_kinds {
        let mut made = roles_of(old).await?;
        made.retain(|role| copied.has(role));
        memberships = with_administration(memberships, &made);
    }
    for membership in in_order(memberships) {
        let what = format!("making {} a member of {}", membership.member, membership.role);
        new.execute(&what, &membership.statement()).await?;
    }
    Ok(left_out)
}

/// Roles that the managed one could make before 16, where CREATEROLE was enough to
/// administer them all.
async fn roles_of(old: &Session) -> Result<Vec<String>> {
    let query = format!(
        "SELECT rolname FROM pg_catalog.pg_authid WHERE {}
         AND rolname NOT IN ('{MANAGED_ROLE}', '{READER_ROLE}') AND rolname !~ '^key_[0-9a-v]{{26}}$'
         ORDER BY rolname",
        own()
    );
    old.query("reading roles", &query, &[]).await?.iter().map(|row| said(row, 0)).collect()
}

/// From 16 on, who made a role administers it by a membership. So the managed role gets
/// one in each, but in those that are members of it, and is who made it all.
fn with_administration(memberships: Vec<Membership>, roles: &[String]) -> Vec<Membership> {
    let (mut members, mut own) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::new());
    for one in &memberships {
        members.entry(one.role.as_str()).or_default().push(one.member.as_str());
        if one.member == MANAGED_ROLE {
            own.entry(one.role.as_str()).or_insert(one);
        }
    }
    let (mut below, mut left) = (BTreeSet::from([MANAGED_ROLE]), vec![MANAGED_ROLE]);
    while let Some(role) = left.pop() {
        left.extend(members.get(role).into_iter().flatten().filter(|member| below.insert(**member)));
    }
    let administered: BTreeSet<_> =
        roles.iter().filter(|role| !below.contains(role.as_str())).cloned().collect();
    let given = administered.iter().map(|role| {
        let own = own.get(role.as_str());
        Membership {
            role: role.clone(),
            member: MANAGED_ROLE.to_owned(),
            grantor: String::new(),
            is_admin: true,
            inherits: own.is_some_and(|own| own.inherits),
            can_set: own.is_some(),
        }
    });
    let others =
        memberships.iter().filter(|one| one.member != MANAGED_ROLE || !administered.contains(&one.role));
    let others = others.map(|one| Membership {
        grantor: match administered.contains(&one.role) {
            true => MANAGED_ROLE.to_owned(),
            false => String::new(),
        },
        ..one.clone()
    });
    given.chain(others).collect()
}

/// A grantor has to administer a role before it grants it. Of one that does not any
/// more, the memberships stay and the name is left out.
fn in_order(memberships: Vec<Membership>) -> Vec<Membership> {
    let (mut next, mut waiting) = (VecDeque::new(), BTreeMap::<_, Vec<_>>::new());
    for one in memberships {
        match ["", PLATFORM_ROLE].contains(&one.grantor.as_str()) {
            true => next.push_back(one),
            false => waiting.entry((one.role.clone(), one.grantor.clone())).or_default().push(one),
        }
    }
    let mut done = vec![];
    while let Some(one) = next.pop_front() {
        if one.is_admin {
            next.extend(waiting.remove(&(one.role.clone(), one.member.clone())).into_iter().flatten());
        }
        done.push(one);
    }
    let rest = waiting.into_values().flatten();
    done.extend(rest.map(|one| Membership { grantor: String::new(), ..one }));
    done
}

/// Gives roles and databases their settings, as the last thing: they would be in the
/// way of everything else. Returns those that the new server does not know, or no owner
/// may set, which it goes without.
pub(super) async fn copy_settings(old: &Session, new: &Session, copied: &Copied) -> Result<Vec<String>> {
    let query = "SELECT coalesce(d.datname, ''), coalesce(r.rolname, ''), s.setting
         FROM pg_catalog.pg_db_role_setting p
         LEFT JOIN pg_catalog.pg_database d ON d.oid = p.setdatabase
         LEFT JOIN pg_catalog.pg_authid r ON r.oid = p.setrole
         CROSS JOIN LATERAL unnest(p.setconfig) WITH ORDINALITY AS s (setting, number)
         WHERE p.setdatabase = 0 OR d.oid IS NOT NULL
         ORDER BY 1, 2, s.number";
    let rows = old.query("reading settings", query, &[]).await?;
    new.execute("replacing settings", "DELETE FROM pg_catalog.pg_db_role_setting").await?;
    let (mut known, mut left_out) = (BTreeMap::<_, Vec<String>>::new(), vec![]);
    for row in &rows {
        let (database, role, setting) = (said(row, 0)?, said(row, 1)?, said(row, 2)?);
        let name = setting.split('=').next().unwrap_or_default();
        let is_for_all = database.is_empty() && role.is_empty();
        if is_for_all && name != FOR_ALL || !role.is_empty() && !copied.has(&role) || !is_name(name) {
            continue;
        }
        match is_role_of(&setting, copied) || is_for_everybody(new, name).await? {
            true => known.entry((database, role)).or_default().push(quoting::text(&setting)),
            false => left_out.push(name.to_owned()),
        }
    }
    let place = |table: &str, column: &str, name: &str| match name {
        "" => "0::oid".to_owned(),
        name => format!("(SELECT oid FROM pg_catalog.{table} WHERE {column} = {})", quoting::text(name)),
    };
    for ((database, role), settings) in known {
        // As it is written there: values have been checked, and lists quoted.
        let statement = format!(
            "INSERT INTO pg_catalog.pg_db_role_setting VALUES ({}, {}, ARRAY[{}])",
            place("pg_database", "datname", &database),
            place("pg_authid", "rolname", &role),
            settings.join(", ")
        );
        new.execute("copying settings", &statement).await?;
    }
    Ok(left_out)
}

/// Whether a setting can be called like this; a server that lies may say anything.
fn is_name(name: &str) -> bool {
    name.len() <= NAME_MAX && name.chars().all(|c| c.is_alphanumeric() || "_$.".contains(c))
}

/// Whether it has sessions begin as a role that went over; what `pg_settings` shows has no such setting.
fn is_role_of(setting: &str, copied: &Copied) -> bool {
    let value = setting.split_once('=').filter(|(name, _)| name.eq_ignore_ascii_case("role"));
    value.is_some_and(|(_, role)| role == "none" || copied.has(role))
}

/// Whether a server takes a setting by this name from everybody, or it may be one of an
/// extension that is not there yet.
async fn is_for_everybody(server: &Session, name: &str) -> Result<bool> {
    let query = "SELECT context = 'user' FROM pg_catalog.pg_settings WHERE lower(name) = lower($1)";
    let name_of: [Parameter<'_>; 1] = [(&name, Type::TEXT)];
    let row = server.query_opt("looking for a setting", query, &name_of).await?;
    row.map_or(Ok(name.contains('.')), |row| column(&row, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(role: &str, member: &str, grantor: &str, is_admin: bool) -> Membership {
        let [role, member, grantor] = [role, member, grantor].map(str::to_owned);
        Membership { role, member, grantor, is_admin, inherits: true, can_set: true }
    }

    #[test]
    fn sessions_begin_as_a_role_that_went_over_and_as_no_other() {
        let copied = Copied(BTreeSet::from(["ann=b".to_owned()]));
        assert!(is_role_of("role=ann=b", &copied) && is_role_of("Role=none", &copied));
        for other in ["role=platform", "role", "session_authorization=ann=b", "role="] {
            assert!(!is_role_of(other, &copied), "{other}");
        }
    }

    #[test]
    fn whoever_grants_a_role_administers_it_by_then() {
        let made = vec![
            member("a", "c", "b", false),
            member("a", "b", "platform", true),
            member("a", "d", "x", false),
        ];
        let ordered: Vec<_> = in_order(made).into_iter().map(|one| (one.member, one.grantor)).collect();
        let expected = [("b", "platform"), ("c", "b"), ("d", "")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(ordered, expected);
    }

    /// Nobody waits for an end of what takes the square of it.
    #[test]
    fn however_long_a_chain_of_grants_is_it_is_put_into_order() {
        const MANY: usize = 30_000;
        let name = |number: usize| if number == 0 { "platform".to_owned() } else { format!("r{number}") };
        let chain = (1..MANY).rev().map(|number| member("a", &name(number), &name(number - 1), true));
        let ordered = in_order(chain.collect());
        assert!(ordered.iter().zip(1..).all(|(one, number)| one.member == name(number)));
        assert_eq!(ordered.len(), MANY - 1);
        let below = (1..MANY).rev().map(|number| match number {
            1 => member(MANAGED_ROLE, "r1", "", false),
            _ => member(&name(number - 1), &name(number), "", false),
        });
        let roles: Vec<_> = (1..MANY).map(name).collect();
        assert_eq!(with_administration(below.collect(), &roles).len(), MANY - 1, "nothing is given");
    }

    #[test]
    fn the_managed_role_administers_what_is_no_member_of_it() {
        let made = vec![member("app", "guest", "app", false), member("team", "ann", "app", false)];
        let roles = ["ann", "guest", "team"].map(str::to_owned);
        let given = in_order(with_administration(made, &roles));
        let statements: Vec<_> = given.iter().map(Membership::statement).collect();
        assert_eq!(
            statements,
            [
                "GRANT \"ann\" TO \"app\" WITH ADMIN true, INHERIT false, SET false",
                "GRANT \"team\" TO \"app\" WITH ADMIN true, INHERIT false, SET false",
                "GRANT \"app\" TO \"guest\" WITH ADMIN false, INHERIT true, SET true",
                "GRANT \"team\" TO \"ann\" WITH ADMIN false, INHERIT true, SET true GRANTED BY \"app\"",
            ]
        );
    }
}
