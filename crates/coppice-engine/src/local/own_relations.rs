//! Sessions that keep others from relations of PostgreSQL's own.
//!
//! Whoever may write to a view can lock the catalogues below it, and with some of them keeps everybody from
//! beginning a session. Such sessions are looked for on one that is open, by functions that read no catalogue,
//! and ended by a signal: PostgreSQL's own function for that reads first whose session it is.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::connecting::Address;
use super::session::{Session, column};
use crate::{EngineError, Result};

/// Whether a row of `pg_lock_status()` is about a lock on a relation of PostgreSQL's own that keeps others from
/// changing it. Changes of data and schemas have none; whoever may write to a view can lock the catalogues below
/// it. Its view could be locked as well.
pub(super) const LOCKS_OWN_RELATION: &str = "locktype = 'relation' AND relation < 16384
    AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')";

/// True. What keeps everybody from beginning a session also keeps a question waiting that has this in it, so that
/// it is noticed when somebody signs in.
pub(super) const READS_AS_A_SIGN_IN: &str = "(EXISTS (SELECT FROM pg_catalog.pg_database)
    OR EXISTS (SELECT FROM pg_catalog.pg_auth_members) OR EXISTS (SELECT FROM pg_catalog.pg_db_role_setting))";

/// How often it is looked whether sessions have ended.
const LOOK: Duration = Duration::from_millis(50);
/// A session that goes on for so long after it was told to end won't.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// Sessions that are looked at together. A server that lies says any number.
const AT_ONCE: usize = 1000;

/// Processes of sessions that have such a lock, or wait for one, which keeps others waiting as well.
struct Keepers {
    /// Of a relation of all databases, or of the platform's own.
    of_all: BTreeSet<i32>,
    /// Of a relation of another database.
    of_one: BTreeSet<i32>,
}

/// A superuser's sessions are left alone. In a database of all or of the platform nobody else has such a lock
/// without meaning to, but on what is known of subscriptions (`pg_replication_origin` and `pg_subscription`).
async fn keepers(session: &Session) -> Result<Keepers> {
    let query = format!(
        "WITH locks AS MATERIALIZED (
             SELECT pid, database FROM pg_catalog.pg_lock_status()
             WHERE {LOCKS_OWN_RELATION} AND relation NOT IN (6000, 6100)),
         own AS MATERIALIZED (
             SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))
         SELECT a.pid, bool_or(locks.database = 0 OR locks.database = own.datid)
         FROM own, locks JOIN pg_catalog.pg_stat_get_activity(NULL) a USING (pid)
         WHERE a.usesysid <> 10 GROUP BY a.pid LIMIT {AT_ONCE}"
    );
    let rows =
        session.query("looking for who keeps others from PostgreSQL's own relations", &query, &[]).await?;
    let mut keepers = Keepers { of_all: BTreeSet::new(), of_one: BTreeSet::new() };
    for row in rows.iter().take(AT_ONCE) {
        let pids = if column(row, 1)? { &mut keepers.of_all } else { &mut keepers.of_one };
        pids.insert(column(row, 0)?);
    }
    Ok(keepers)
}

/// Ends those that keep others from what all databases share, and returns those that do so in one.
///
/// # Errors
/// [`EngineError::Held`] when one does not end, or the look itself is kept waiting.
pub(super) async fn end_keepers(address: &Address, session: &Session) -> Result<BTreeSet<i32>> {
    let held = |error: EngineError| match error.is_wait_for_lock() {
        true => address.held(),
        false => error,
    };
    let found = keepers(session).await.map_err(held)?;
    end(address, session, &found.of_all).await?;
    Ok(found.of_one)
}

/// Ends sessions that are keepers, and returns when none of them is one.
///
/// # Errors
/// [`EngineError::Held`] when one does not end.
pub(super) async fn end(address: &Address, session: &Session, pids: &BTreeSet<i32>) -> Result<()> {
    if pids.is_empty() {
        return Ok(());
    }
    let (instance, count, began) = (&address.instance, pids.len(), Instant::now());
    let mut left = pids.clone();
    loop {
        address.host.servers.tell_to_end(instance, &left);
        tokio::time::sleep(LOOK).await;
        let Keepers { of_all, of_one } = keepers(session).await?;
        left.retain(|pid| of_all.contains(pid) || of_one.contains(pid));
        if left.is_empty() {
            break;
        }
        if began.elapsed() > END_PATIENCE {
            tracing::warn!(%instance, "instance {instance}: {} sessions do not end", left.len());
            return Err(address.held());
        }
    }
    tracing::warn!(
        %instance,
        "instance {instance}: ended {count} sessions, which kept others from what belongs to PostgreSQL itself"
    );
    Ok(())
}
