//! Logins of keys on a server, each a role of its own.
//!
//! As the reader, a login is made right before it is used, on whatever is there:
//! a branch that was reset, a copy, or a server whose owner changed or dropped the
//! role. What its owner granted it besides stays. It never becomes a member of the
//! managed role.
//!
//! When it is over, its sessions and prepared transactions go, and so does the
//! role, unless something hangs on it: then it is locked, may do nothing any more,
//! and the managed role gets what it owns by being a member of it. Its objects are
//! given to nobody: code in them would then run with the rights of the new owner.
//! For the same reason it gives nothing to the roles of PostgreSQL's whose rights it
//! has (before 16 whoever has these can), and what it gave them is its own again.

use std::collections::BTreeSet;

use coppice_core::branch::{MANAGED_DATABASE, MANAGED_ROLE};
use coppice_core::login::{DatabaseRole, Login, key_of_login};
use tokio_postgres::types::Type;

use super::blockers::insist;
use super::connecting::Address;
use super::own_relations::READS_AS_A_SIGN_IN;
use super::owned;
use super::prepared::{self, COLUMNS, Prepared};
use super::session::{Parameter, Patience, Session, column, named};
use crate::{EngineError, Result};

/// Names of logins, as a regular expression of PostgreSQL.
pub(super) const NAMES: &str = "^key_[0-9a-v]{26}$";
/// Most logins that a copy is looked through for at once.
const INHERITED_MAX: usize = 1000;
/// So much of what a login gave away is taken back at once.
const GIVEN_MAX: usize = 1000;
/// And so often.
const GIVEN_ROUNDS: usize = 100;
/// Most prepared transactions of a login that are rolled back at once.
const PREPARED_MAX: usize = 1000;
/// The work that sessions which hold a login keep waiting.
const PURPOSE: &str = "ending the login of a key";

/// Whether a role, of which `oid` is the number, may become one of those whose rights the platform, which is the first
/// superuser, gave it. What its owner grants it besides is theirs.
const IS_SETTABLE: &str = "EXISTS (SELECT FROM pg_catalog.pg_auth_members m
    WHERE m.member = pg_authid.oid AND m.grantor = 10 AND m.set_option
      AND m.roleid IN ('pg_read_all_data'::regrole, 'pg_write_all_data'::regrole))";

/// Has the role be there with its verifier, and do what it should.
///
/// # Errors
/// When the server does not answer, or somebody holds the role.
pub(super) async fn ensure(address: &Address, session: &Session, login: &Login) -> Result<()> {
    let action = "making the login of a key";
    // From 16 on a membership may be to have its rights, and not to be it: then nothing can be given to that role.
    let (without_set, may_set) = match session.major() >= 16 {
        true => (" WITH INHERIT TRUE, SET FALSE", IS_SETTABLE),
        false => ("", "false"),
    };
    let query = format!(
        "SELECT rolcanlogin AND rolinherit AND rolconnlimit = -1 AND rolpassword IS NOT DISTINCT FROM $2
               AND (rolvaliduntil IS NULL OR rolvaliduntil > now())
               AND NOT (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls)
               AND pg_has_role(oid, 'pg_read_all_data', 'USAGE')
               AND ($3 OR pg_has_role(oid, 'pg_write_all_data', 'USAGE'))
               AND NOT {may_set}
         FROM pg_catalog.pg_authid WHERE rolname = $1 AND {READS_AS_A_SIGN_IN}"
    );
    let (name, role) = (login.key.as_str(), login.database_role);
    let only_reads = role < DatabaseRole::Writer;
    let parameters: [Parameter<'_>; 3] =
        [(&name, Type::NAME), (&login.verifier, Type::TEXT), (&only_reads, Type::BOOL)];
    let found = session.query_opt(action, &query, &parameters).await?;
    let is_ready: bool = found.as_ref().map_or(Ok(false), |row| column(row, 0))?;
    if !is_ready {
        let mut statements = vec![];
        if found.is_none() {
            statements.push(format!("CREATE ROLE {name}"));
        }
        // A verifier has no quote in it, whoever made it.
        let verifier = login.verifier.replace('\'', "");
        statements.push(format!(
            "ALTER ROLE {name} LOGIN INHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS \
             CONNECTION LIMIT -1 PASSWORD '{verifier}' VALID UNTIL 'infinity'"
        ));
        statements.push(format!("GRANT pg_read_all_data TO {name}{without_set}"));
        if !only_reads {
            statements.push(format!("GRANT pg_write_all_data TO {name}{without_set}"));
        }
        session.transaction(action, &statements).await?;
    }
    if role == DatabaseRole::Owner
        && let Err(error) = give_schema(address, session, name).await
    {
        // Its owner keeps it from that, and may go on doing so.
        tracing::debug!("{name} has no schema of its own: {}", error.chain());
    }
    Ok(())
}

/// Gives a login a schema of its own, which is the first that it makes something
/// in. It gets no right to make others: one called `app` would be looked through
/// first by the managed role.
async fn give_schema(address: &Address, session: &Session, name: &str) -> Result<()> {
    let action = "giving a login a schema of its own";
    let inside = address.open_inside(MANAGED_DATABASE, session.major(), Patience::QUESTION).await?;
    let query = "SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1";
    if inside.query_opt(action, query, &[(&name, Type::NAME)]).await?.is_none() {
        inside.execute(action, &format!("CREATE SCHEMA IF NOT EXISTS {name} AUTHORIZATION {name}")).await?;
    }
    // What it makes is the branch's. Where the managed role is below it, nobody has to be given it.
    let query = format!(
        "SELECT FROM pg_catalog.pg_roles WHERE rolname = '{MANAGED_ROLE}' AND NOT pg_has_role(oid, $1, 'MEMBER')"
    );
    match session.query_opt(action, &query, &[(&name, Type::NAME)]).await? {
        Some(_) => session.execute(action, &format!("GRANT {name} TO {MANAGED_ROLE}")).await,
        None => Ok(()),
    }
}

/// Which of these processes are sessions of logins.
///
/// # Errors
/// When the server does not answer.
pub(super) async fn sessions_among(session: &Session, pids: &BTreeSet<i32>) -> Result<BTreeSet<i32>> {
    let query = "SELECT pid FROM pg_catalog.pg_stat_activity WHERE pid = ANY ($1) AND usename ~ $2";
    let asked: Vec<_> = pids.iter().copied().collect();
    let parameters: [Parameter<'_>; 2] = [(&asked, Type::INT4_ARRAY), (&NAMES, Type::TEXT)];
    let rows = session.query("looking for sessions of logins", query, &parameters).await?;
    rows.iter().take(pids.len()).map(|row| column(row, 0)).collect()
}

/// Ends a login with all its sessions. One that is not there is fine.
///
/// # Errors
/// When the server does not answer, or it can't be locked.
pub(super) async fn end(address: &Address, name: &str) -> Result<()> {
    if key_of_login(name).is_none() {
        return Err(EngineError::Other(format!("{name} is no login of a key")));
    }
    let session = address.open(Patience::CHANGE).await?;
    let action = "ending the sessions of a login";
    let query =
        "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE usename = $1";
    session.query(action, query, &[(&name, Type::NAME)]).await?;
    end_prepared(address, &session, name).await?;
    remove(address, &session, name).await
}

/// Ends all that a copy has of its source, before anybody is let in.
///
/// # Errors
/// When the server does not answer, or one can't be locked.
pub(super) async fn end_inherited(address: &Address, session: &Session) -> Result<()> {
    let query = format!(
        "SELECT rolname::text FROM pg_catalog.pg_roles WHERE rolname ~ '{NAMES}' AND rolcanlogin
         ORDER BY oid LIMIT {INHERITED_MAX}"
    );
    let rows = session.query("looking for inherited logins", &query, &[]).await?;
    for row in rows.iter().take(INHERITED_MAX) {
        if let Some(name) = named(row, 0)? {
            remove(address, session, &name).await?;
        }
    }
    Ok(())
}

/// What it prepared would keep its locks for ever, also as one of the roles of PostgreSQL's that it may become before
/// 16. What can't be rolled back here goes when it is in somebody's way.
async fn end_prepared(address: &Address, session: &Session, name: &str) -> Result<()> {
    let query = format!(
        "SELECT {COLUMNS} FROM pg_catalog.pg_prepared_xacts p
         LEFT JOIN pg_catalog.pg_database d ON d.datname = p.database
         WHERE p.owner = $1 OR ($2 AND p.owner IN ('pg_read_all_data', 'pg_write_all_data')) LIMIT {PREPARED_MAX}"
    );
    let parameters: [Parameter<'_>; 2] = [(&name, Type::NAME), (&(session.major() < 16), Type::BOOL)];
    let rows = session.query("listing what a login prepared", &query, &parameters).await?;
    let transactions: Vec<_> = rows.iter().take(PREPARED_MAX).map(Prepared::of).collect::<Result<_>>()?;
    match prepared::roll_back(address, session.major(), &transactions).await {
        Ok(()) | Err(EngineError::Held { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn remove(address: &Address, session: &Session, name: &str) -> Result<()> {
    let action = "dropping the login of a key";
    let query = "SELECT FROM pg_catalog.pg_roles WHERE rolname = $1";
    if session.query_opt(action, query, &[(&name, Type::NAME)]).await?.is_none() {
        return Ok(());
    }
    let dropping = format!("DROP ROLE {name}");
    if insist(address, PURPOSE, session.execute(action, &dropping)).await.is_ok() {
        return Ok(());
    }
    // Something hangs on it: nobody uses it from here on.
    lock(address, session, name).await?;
    let without_schema = async {
        let inside = address.open_inside(MANAGED_DATABASE, session.major(), Patience::QUESTION).await?;
        take_back(address, &inside, name).await?;
        // Only one with nothing in it goes.
        inside.execute(action, &format!("DROP SCHEMA IF EXISTS {name}")).await?;
        session.execute(action, &dropping).await
    };
    if let Err(error) = without_schema.await {
        tracing::debug!("{name} stays, and is locked: {}", error.chain());
    }
    Ok(())
}

/// What it gave to PostgreSQL's own roles would go on doing what they may, for whoever may call it. So what is theirs in
/// its schema is its own again, which may do nothing: first what is called.
async fn take_back(address: &Address, inside: &Session, name: &str) -> Result<()> {
    let action = "taking back what a login gave away";
    let query = format!(
        "SELECT format('ALTER %s %s OWNER TO %I', {}, i.identity, $1::text) FROM {} AND i.schema = $1
         ORDER BY s.classid <> 'pg_proc'::regclass LIMIT {GIVEN_MAX}",
        owned::KIND,
        owned::things(owned::BY_POSTGRES)
    );
    for _ in 0..GIVEN_ROUNDS {
        let rows = inside.query(action, &query, &[(&name, Type::TEXT)]).await?;
        for row in &rows {
            let Some(statement) = named(row, 0)? else { continue };
            if let Err(error) = insist(address, PURPOSE, inside.execute(action, &statement)).await {
                let instance = &address.instance;
                tracing::warn!(%instance, "instance {instance}: {name} gave away what stays so: {}", error.chain());
                return Ok(());
            }
        }
        if rows.len() < GIVEN_MAX {
            break;
        }
    }
    Ok(())
}

/// Takes from a role all that it could do, and lets the managed role have what it owns.
async fn lock(address: &Address, session: &Session, name: &str) -> Result<()> {
    let action = "locking the login of a key";
    let locking = format!(
        "ALTER ROLE {name} NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD NULL"
    );
    insist(address, PURPOSE, session.execute(action, &locking)).await?;
    // Memberships that the role was given, whoever granted them.
    let query = "SELECT format('REVOKE %I FROM %I GRANTED BY %I CASCADE', a.rolname, m.rolname, g.rolname)
        FROM pg_catalog.pg_auth_members s
        JOIN pg_catalog.pg_roles a ON a.oid = s.roleid JOIN pg_catalog.pg_roles m ON m.oid = s.member
        JOIN pg_catalog.pg_roles g ON g.oid = s.grantor
        WHERE m.rolname = $1 LIMIT 1000";
    let rows = session.query(action, query, &[(&name, Type::NAME)]).await?;
    let mut statements = vec![];
    for row in &rows {
        statements.extend(named(row, 0)?);
    }
    statements.push(format!("GRANT {name} TO {MANAGED_ROLE} WITH ADMIN OPTION"));
    for statement in &statements {
        // What can't be taken from a role that nobody can use keeps nobody waiting.
        if let Err(error) = insist(address, PURPOSE, session.execute(action, statement)).await {
            let instance = &address.instance;
            tracing::warn!(%instance, "instance {instance}: {name} is locked, and not all is taken from it: {}", error.chain());
        }
    }
    Ok(())
}
