//! Handing a server over to somebody else: its former owner gave passwords to
//! roles, and has sessions.

use std::time::{Duration, Instant};

use coppice_core::branch::MANAGED_ROLE;
use tokio_postgres::types::Type;

use super::blockers::insist;
use super::connecting::Address;
use super::session::{PLATFORM_ROLE, Parameter, Patience, Session, column};
use super::{following, logins};
use crate::{EngineError, Result};

/// The work that sessions which hold a role keep waiting.
const PURPOSE: &str = "taking passwords from roles";
/// Roles whose passwords one round takes: their number is up to who owns the server.
const ROLES_AT_ONCE: u32 = 10_000;
/// A session that has just begun may not show yet whose it is.
const SETTLING: Duration = Duration::from_millis(300);
/// How often it is looked whether sessions have ended.
const LOOK: Duration = Duration::from_millis(50);
/// A session that goes on for so long after it was told to end won't.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// Roles that still have passwords after so long are given new ones all the time, or are very many.
const PATIENCE: Duration = Duration::from_secs(8);

/// Takes the password from every role that has none of the platform's, and ends all
/// sessions but those of logins, also of those that act as the managed role, and of
/// replicas, that begin meanwhile. The managed role has a new password already, and the
/// gateway lets nobody else in.
///
/// Nobody can give a role a password, or the name of another, while sessions are ended. A round in which
/// no role had one is the last: nobody could begin a session then, and nobody has one.
///
/// # Errors
/// When the server does not answer, or [`EngineError::Held`] when a session can't be
/// ended, or roles have passwords in round after round. What earlier rounds took stays
/// taken, so another try goes on from there.
pub(super) async fn lock_out(address: &Address) -> Result<()> {
    let session = address.open(Patience::CHANGE).await?;
    let clock = "SELECT extract(epoch FROM clock_timestamp())::float8";
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Changes of roles wait for it, and those that were prepared hold it up.
        let lock = "BEGIN; LOCK TABLE pg_catalog.pg_authid IN SHARE ROW EXCLUSIVE MODE";
        insist(address, PURPOSE, session.execute(PURPOSE, lock)).await?;
        // Only from here on is a session's role called what it was called when it began.
        let locked = column(&session.query_one("asking for the time", clock, &[]).await?, 0)?;
        let taken = take_passwords(&session).await?;
        end_sessions(address, &session, locked).await?;
        session.execute(PURPOSE, "COMMIT").await?;
        if taken == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            let instance = address.instance.clone();
            tracing::warn!(%instance, "instance {instance}: roles still have passwords after {PATIENCE:?}");
            return Err(EngineError::Held { instance, transactions: vec![] });
        }
    }
}

/// Tells from how many roles; there may be more.
async fn take_passwords(session: &Session) -> Result<i64> {
    // For all names alike, also those that are no UTF-8.
    let statement = format!(
        "WITH taken AS (
             UPDATE pg_catalog.pg_authid SET rolpassword = NULL WHERE oid IN (
                 SELECT oid FROM pg_catalog.pg_authid
                 WHERE rolpassword IS NOT NULL AND rolname NOT IN ('{MANAGED_ROLE}', '{PLATFORM_ROLE}')
                   AND NOT (rolreplication AND rolname ~ '{}') AND rolname !~ '{}' LIMIT {ROLES_AT_ONCE})
             RETURNING oid)
         SELECT count(*) FROM taken",
        following::NAMES,
        logins::NAMES
    );
    column(&session.query_one(PURPOSE, &statement, &[]).await?, 0)
}

/// Those of logins and replicas that began later have signed in with what is true. What
/// others are called by now says nothing, and one whose role was dropped has no name.
async fn end_sessions(address: &Address, session: &Session, since: f64) -> Result<()> {
    let action = "ending sessions that began before";
    let query = "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
         WHERE backend_type IN ('client backend', 'walsender')
           AND (usename IS NULL OR usename <> $1
                AND NOT ((usename ~ $2 OR usename ~ $3 OR usename = $5) AND backend_start > to_timestamp($4)))
         LIMIT 1000";
    let parameters: [Parameter<'_>; 5] = [
        (&PLATFORM_ROLE, Type::NAME),
        (&following::NAMES, Type::TEXT),
        (&logins::NAMES, Type::TEXT),
        (&since, Type::FLOAT8),
        (&MANAGED_ROLE, Type::NAME),
    ];
    let began = Instant::now();
    loop {
        // A transaction sees the sessions that it saw first.
        session.execute(action, "SELECT pg_catalog.pg_stat_clear_snapshot()").await?;
        let none_left = session.query(action, query, &parameters).await?.is_empty();
        if none_left && began.elapsed() > SETTLING {
            return Ok(());
        }
        if !none_left && began.elapsed() > END_PATIENCE {
            return Err(EngineError::Held { instance: address.instance.clone(), transactions: vec![] });
        }
        tokio::time::sleep(LOOK).await;
    }
}
