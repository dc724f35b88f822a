//! The managed role: the one whose password the platform knows.
//!
//! Its owner may lock it out, rename it or drop it, put another role in its
//! place, or give its database away. Whoever sets its password therefore makes
//! it what it was made as: it exists, may sign in, owns its database, and may do
//! what it could do. The password comes first, and alone: nothing else that
//! can't be done takes it back.

use coppice_core::branch::{MANAGED_DATABASE, MANAGED_ROLE};
use tokio_postgres::types::Type;

use super::blockers::insist;
use super::connecting::Address;
use super::many::Many;
use super::session::{PLATFORM_DATABASE, Patience, Session, column, named};
use super::system_views::TEMPLATE_DATABASE;
use crate::{EngineError, Result};

/// The work that sessions which hold the role keep waiting.
const PURPOSE: &str = "setting the password of the role app";
/// No verifier of the platform's is longer.
const VERIFIER_MAX: i32 = 512;
/// What is given back to the role at once; a server that lies says it lacks any number of things.
const LACKING_MAX: usize = 100;

/// The verifier that the role signs in with; none when it can't sign in. One
/// that its owner made may be cut off.
pub(super) async fn verifier(session: &Session) -> Result<Option<String>> {
    let query = format!(
        "SELECT left(rolpassword, {VERIFIER_MAX}) FROM pg_catalog.pg_authid WHERE rolname = $1 AND rolcanlogin
         AND rolconnlimit <> 0 AND (rolvaliduntil IS NULL OR rolvaliduntil > now())"
    );
    let row = session
        .query_opt("reading the managed role's verifier", &query, &[(&MANAGED_ROLE, Type::NAME)])
        .await?;
    row.map_or(Ok(None), |row| column(&row, 0))
}

/// As [`repair`], on a session of its own; makes sure that the verifier is in
/// force.
pub(super) async fn set_verifier(address: &Address, new: &str) -> Result<()> {
    let session = address.open(Patience::CHANGE).await?;
    repair(address, &session, new).await?;
    let is_set = verifier(&session).await?.as_deref() == Some(new);
    is_set.then_some(()).ok_or_else(|| EngineError::Other("the password was not taken".to_owned()))
}

/// Makes the role what it was made as, with this verifier. Whoever holds it in
/// a transaction is ended.
pub(super) async fn repair(address: &Address, session: &Session, verifier: &str) -> Result<()> {
    let done = insist(address, PURPOSE, set_password(session, verifier, false)).await;
    match done {
        // Somebody changes the role all the time: nobody may for this moment.
        Err(EngineError::Sql { .. }) => {
            insist(address, PURPOSE, set_password(session, verifier, true)).await?;
        }
        done => done?,
    }
    restore(address, session).await
}

async fn set_password(session: &Session, verifier: &str, alone: bool) -> Result<()> {
    let action = "setting the managed role's password";
    let query = "SELECT FROM pg_catalog.pg_roles WHERE rolname = $1";
    let mut statements = vec![];
    if alone {
        // It conflicts with every change of a role, and with itself.
        statements.push("LOCK TABLE pg_catalog.pg_authid IN SHARE ROW EXCLUSIVE MODE".to_owned());
    }
    if session.query_opt(action, query, &[(&MANAGED_ROLE, Type::NAME)]).await?.is_none() {
        statements.push(format!("CREATE ROLE {MANAGED_ROLE}"));
    }
    // A verifier has no quote in it, whoever made it.
    let verifier = verifier.replace('\'', "");
    let replication = replication(session.major());
    statements.push(format!(
        "ALTER ROLE {MANAGED_ROLE} LOGIN INHERIT NOSUPERUSER NOBYPASSRLS CREATEDB CREATEROLE {replication} CONNECTION LIMIT -1 \
         PASSWORD '{verifier}' VALID UNTIL 'infinity'"
    ));
    session.transaction(action, &statements).await
}

/// Whether the role may replicate: before 16 only a superuser can alter a role that may,
/// also its password.
pub(super) fn replication(major: u32) -> &'static str {
    if major < 16 { "NOREPLICATION" } else { "REPLICATION" }
}

/// Gives the role back what it lacks. What can't be given keeps nobody out.
async fn restore(address: &Address, session: &Session) -> Result<()> {
    let action = "looking at what the managed role lacks";
    let look = async {
        // Also waits for whoever is about to rename the database.
        let lock =
            format!("SELECT FROM pg_catalog.pg_database WHERE datname = '{MANAGED_DATABASE}' FOR UPDATE");
        session.transaction(action, &[lock]).await?;
        session.query(action, &lacking(), &[]).await
    };
    let rows = match insist(address, PURPOSE, look).await {
        Err(held @ EngineError::Held { .. }) => return Err(held),
        Err(error) => {
            warn(address, &error.chain());
            return Ok(());
        }
        Ok(rows) => rows,
    };
    let (mut restored, mut failed) = (Many::default(), Many::default());
    for row in rows.iter().take(LACKING_MAX) {
        let Some(statement) = named(row, 0)? else {
            failed.note(|| "what it lacks has to do with a name that is no UTF-8".to_owned());
            continue;
        };
        match insist(address, PURPOSE, session.execute("restoring the managed role", &statement)).await {
            Err(held @ EngineError::Held { .. }) => return Err(held),
            Err(error) => failed.note(|| error.chain()),
            Ok(()) => restored.note(|| statement),
        }
    }
    let instance = &address.instance;
    if let Some(restored) = restored.told() {
        tracing::warn!(%instance, "instance {instance}: the managed role lacked something: {restored:?}");
    }
    if let Some(failed) = failed.told() {
        warn(address, &failed);
    }
    Ok(())
}

fn warn(address: &Address, why: &str) {
    let instance = &address.instance;
    tracing::warn!(%instance, "instance {instance}: the managed role lacks something: {why}");
}

/// A query for the statements that give the role back what it lacks, in order.
///
/// Where another role owns the database, the managed one is to reach what
/// belongs to that. PostgreSQL 15 lets its owner make a circle of memberships,
/// which is cut where it begins.
fn lacking() -> String {
    let (role, database) = (MANAGED_ROLE, MANAGED_DATABASE);
    format!(
        "WITH role AS (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = '{role}'),
         place AS (
             SELECT d.oid, datdba, datallowconn, datconnlimit, rolname,
                    rolsuper OR rolname ~ '^pg_' AS is_reserved
             FROM pg_catalog.pg_database d JOIN pg_catalog.pg_roles o ON o.oid = datdba
             WHERE datname = '{database}'),
         wanted AS (
             SELECT r.oid, rolname, '' AS how FROM pg_catalog.pg_roles r, role
             WHERE rolname IN ('pg_monitor', 'pg_signal_backend')
               AND NOT EXISTS (SELECT FROM pg_catalog.pg_auth_members
                               WHERE roleid = r.oid AND member = role.oid)
             UNION ALL
             SELECT datdba, rolname, ' WITH ADMIN OPTION' FROM place, role
             WHERE datdba <> role.oid AND NOT is_reserved),
         settings AS (
             SELECT setrole, datname FROM pg_catalog.pg_db_role_setting
             JOIN role ON setrole IN (0, role.oid)
             LEFT JOIN pg_catalog.pg_database d ON d.oid = setdatabase
             WHERE (setrole <> 0 OR datname = '{database}')
               AND EXISTS (SELECT FROM unnest(setconfig) AS setting
                           WHERE starts_with(setting, 'local_preload_libraries=')))
         SELECT statement FROM (
             SELECT 1, format('REVOKE {role} FROM %I', m.rolname)
             FROM pg_catalog.pg_auth_members a JOIN pg_catalog.pg_roles m ON m.oid = a.member
             JOIN role ON role.oid = a.roleid
             WHERE EXISTS (SELECT FROM wanted WHERE pg_has_role(wanted.oid, m.oid, 'MEMBER'))
             UNION ALL SELECT 2, format('GRANT %I TO {role}', rolname) || how FROM wanted
             UNION ALL SELECT 3, 'ALTER DATABASE {database} OWNER TO {role}'
             FROM place, role WHERE datdba <> role.oid
             UNION ALL SELECT 4, 'GRANT ALL ON DATABASE {database} TO {role}'
             FROM place, role WHERE NOT (has_database_privilege(role.oid, place.oid, 'CONNECT')
                 AND has_database_privilege(role.oid, place.oid, 'CREATE')
                 AND has_database_privilege(role.oid, place.oid, 'TEMP'))
             UNION ALL SELECT 5, format('GRANT CONNECT ON DATABASE %I TO {role}', d.datname)
             FROM role, pg_catalog.pg_database d WHERE d.datname IN ('{PLATFORM_DATABASE}', '{TEMPLATE_DATABASE}')
                 AND NOT has_database_privilege(role.oid, d.oid, 'CONNECT')
             UNION ALL SELECT 6, 'ALTER DATABASE {database} ALLOW_CONNECTIONS true' FROM place WHERE NOT datallowconn
             UNION ALL SELECT 7, 'ALTER DATABASE {database} CONNECTION LIMIT -1' FROM place WHERE datconnlimit = 0
             UNION ALL SELECT 8, CASE
                 WHEN setrole = 0 THEN 'ALTER DATABASE {database}'
                 WHEN datname IS NULL THEN 'ALTER ROLE {role}'
                 ELSE format('ALTER ROLE {role} IN DATABASE %I', datname) END || ' RESET local_preload_libraries'
             FROM settings
         ) AS lacking (number, statement) ORDER BY number LIMIT {LACKING_MAX}"
    )
}
