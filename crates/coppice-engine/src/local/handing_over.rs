//! A server that gets to somebody else: who had it gave passwords to roles, and
//! has sessions.

use std::time::{Duration, Instant};

use coppice_core::branch::MANAGED_ROLE;
use tokio_postgres::types::Type;

use super::blockers::insist;
use super::connecting::Address;
use super::session::{PLATFORM_ROLE, Parameter, Patience, Session, column};
use super::{following, logins};
use crate::{EngineError, Result};

/// What is kept waiting by those who hold a role.
const PURPOSE: &str = "taking passwords from roles";
/// Their number is up to who owns the server.
const ROLES_AT_ONCE: u32 = 10_000;
/// A session that has just begun may not show yet whose it is.
const SETTLING: Duration = Duration::from_millis(300);
/// How often it is looked whether sessions have ended.
const LOOK: Duration = Duration::from_millis(50);
/// A session that goes on for so long after it was told to end won't.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Takes the password from every role that has none of the platform's, then ends
/// all sessions that began before that. The managed role has a new one already.
///
/// # Errors
/// When the server does not answer, or [`EngineError::Held`] when a session can't be ended.
pub(super) async fn lock_out(address: &Address) -> Result<()> {
    let session = address.open(Patience::CHANGE).await?;
    // For all names alike, also those that are no UTF-8. What is done stays done where there are too many for one try.
    let statement = format!(
        "WITH taken AS (
             UPDATE pg_catalog.pg_authid SET rolpassword = NULL WHERE oid IN (
                 SELECT oid FROM pg_catalog.pg_authid
                 WHERE rolpassword IS NOT NULL AND rolname NOT IN ('{MANAGED_ROLE}', '{PLATFORM_ROLE}')
                   AND rolname !~ '{}' AND rolname !~ '{}' LIMIT {ROLES_AT_ONCE})
             RETURNING oid)
         SELECT count(*) FROM taken",
        following::NAMES,
        logins::NAMES
    );
    let action = "taking passwords from roles";
    while {
        let row = insist(address, PURPOSE, session.query_one(action, &statement, &[])).await?;
        column::<i64>(&row, 0)? > 0
    } {}
    end_sessions(address, &session).await
}

/// A session has signed in with what was true when it began, or later.
async fn end_sessions(address: &Address, session: &Session) -> Result<()> {
    let action = "ending sessions that began before";
    let now = session.query_one(action, "SELECT extract(epoch FROM clock_timestamp())::float8", &[]).await?;
    let now: f64 = column(&now, 0)?;
    let query = "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
         WHERE backend_type = 'client backend' AND usename <> $1 AND backend_start <= to_timestamp($2) LIMIT 1000";
    let parameters: [Parameter<'_>; 2] = [(&PLATFORM_ROLE, Type::NAME), (&now, Type::FLOAT8)];
    let began = Instant::now();
    loop {
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
