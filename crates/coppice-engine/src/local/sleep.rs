//! What has to be known of a server before it sleeps.
//!
//! Clients of a sleeping branch are authenticated before it is woken, so the
//! verifiers of its roles are read last thing before it stops. They are true as
//! long as nothing was written after that: the place in the WAL where they were
//! read is the place of the checkpoint that the stop wrote.

use std::time::{Duration, Instant};

use coppice_core::branch::MANAGED_ROLE;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connecting::Address;
use super::following::NAMES;
use super::session::{PLATFORM_ROLE, Patience, Session, column, named};
use crate::{Result, SleepingRoles, VERIFIER_LENGTH_MAX};

/// How long clients may take to end after they were told to.
const CLIENTS_PATIENCE: Duration = Duration::from_secs(5);

/// Whether a replication slot is in use, other than by the branch's own replicas.
pub(super) async fn has_active_slot(session: &Session) -> Result<bool> {
    let query =
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE active AND slot_name !~ $1)";
    let of_others = [(&NAMES as _, Type::TEXT)];
    column(&session.query_one("looking at replication slots", query, &of_others).await?, 0)
}

/// Ends the clients of a server, then reads its roles; returns them with the
/// place in the WAL.
pub(super) async fn read_roles(address: &Address) -> Result<(SleepingRoles, String)> {
    let action = "preparing a server for its sleep";
    let session = address.open(Patience::QUESTION).await?;
    let deadline = Instant::now() + CLIENTS_PATIENCE;
    loop {
        let row = session
            .query_one(
                action,
                "SELECT count(pg_terminate_backend(pid)) FROM pg_catalog.pg_stat_activity
                 WHERE (backend_type IN ('client backend', 'parallel worker', 'autovacuum worker')
                        OR backend_type = 'walsender'
                           AND (coalesce(usename, '') !~ $2 OR datid IS NOT NULL))
                   AND usename IS DISTINCT FROM $1",
                &[(&PLATFORM_ROLE, Type::NAME), (&NAMES, Type::TEXT)],
            )
            .await?;
        if column::<i64>(&row, 0)? == 0 || Instant::now() > deadline {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let rows = session
        .query(
            action,
            "SELECT rolname::text, rolpassword FROM pg_catalog.pg_authid
             WHERE octet_length(rolpassword) <= $1 AND rolpassword LIKE 'SCRAM-SHA-256$%'
               AND rolname <> $2 AND rolname !~ '^pg_' AND rolname !~ $5
             ORDER BY rolname <> $3, rolcanlogin DESC, oid LIMIT $4",
            &[
                (&(VERIFIER_LENGTH_MAX as i32), Type::INT4),
                (&PLATFORM_ROLE, Type::NAME),
                (&MANAGED_ROLE, Type::NAME),
                (&(SleepingRoles::ROLES_MAX as i64), Type::INT8),
                (&NAMES, Type::TEXT),
            ],
        )
        .await?;
    // The gateway lets nobody in by a name that is no UTF-8.
    let role = |row: &Row| Ok(named(row, 0)?.zip(named(row, 1)?));
    let verifiers = rows.iter().filter_map(|row| role(row).transpose()).collect::<Result<_>>()?;
    let row = session.query_one(action, "SELECT pg_current_wal_insert_lsn()::text", &[]).await?;
    Ok((SleepingRoles { verifiers }, column(&row, 0)?))
}
