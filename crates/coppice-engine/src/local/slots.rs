//! Replication slots of the platform's: for the log of running servers, for
//! replicas, and while a volume is copied file by file.
//!
//! Whoever owns a server may make slots, too. There is room for as many as were asked
//! for and the platform's besides, and where the platform finds none left, those go
//! that are beyond what was asked for.

use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::following::all_names;
use super::many::Many;
use super::session::{Parameter, Session, column};
use crate::{EngineError, Result};

/// The slot that has a server keep its log, on every server.
pub(super) const WAL: &str = "coppice_wal";
/// Begins the names of those that last as long as a copy is made.
const COPY: &str = "coppice_copy_";
/// Slots of the platform's that there is always room for: one for the log, four for
/// replicas, three for copies.
pub(super) const RESERVED: u32 = 8;
/// How long a process of the server may take to let go of a slot.
const DROP_PATIENCE: Duration = Duration::from_secs(2);
/// Slots that are dropped to make room for one, and how long that may take. A server that lies has any number.
const EXCESS_MAX: usize = 100;
const EXCESS_PATIENCE: Duration = Duration::from_secs(10);

/// Makes a slot that has the server keep its log from now on.
pub(super) async fn make(session: &Session, name: &str) -> Result<()> {
    let make = "SELECT pg_create_physical_replication_slot($1, true)";
    make_with_room(session, make, name).await
}

/// Makes one that ends with the session.
pub(super) async fn make_for_copy(session: &Session) -> Result<()> {
    let make = "SELECT pg_create_physical_replication_slot($1 || pg_backend_pid(), true, true)";
    make_with_room(session, make, COPY).await
}

async fn make_with_room(session: &Session, make: &str, name: &str) -> Result<()> {
    let action = "making a replication slot";
    let by_name: [Parameter<'_>; 1] = [(&name, Type::TEXT)];
    let made = session.query(action, make, &by_name).await;
    let is_full = |error: &EngineError| match error {
        EngineError::Sql { source, .. } => source.code() == Some(&SqlState::CONFIGURATION_LIMIT_EXCEEDED),
        _ => false,
    };
    match made {
        Err(error) if is_full(&error) => {
            drop_excess(session).await?;
            session.query(action, make, &by_name).await.map(drop)
        }
        made => made.map(drop),
    }
}

/// Drops those of the owner's that are beyond what was asked for, newest and unused first. What is called like a replica
/// that there can't be is the owner's too.
async fn drop_excess(session: &Session) -> Result<()> {
    let replicas = all_names();
    let query = format!(
        "SELECT slot_name::text FROM pg_catalog.pg_replication_slots s
         WHERE NOT (slot_type = 'physical' AND slot_name::text = ANY (string_to_array('{WAL},{replicas}', ',')))
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
                           WHERE pid = active_pid AND temporary AND usename = current_user)
         ORDER BY active DESC, restart_lsn NULLS LAST, slot_name
         OFFSET current_setting('max_replication_slots')::int - {RESERVED} LIMIT {EXCESS_MAX}"
    );
    let (deadline, mut dropped) = (Instant::now() + EXCESS_PATIENCE, Many::default());
    let rows = session.query("looking for replication slots beyond the limit", &query, &[]).await?;
    let names = rows.iter().take(EXCESS_MAX).map(|row| column::<String>(row, 0));
    let mut done = Ok(());
    for name in names.collect::<Result<Vec<_>>>()?.iter().filter(|name| is_name(name)) {
        done = drop_named(session, name).await;
        if done.is_err() || Instant::now() > deadline {
            break;
        }
        dropped.note(|| name.clone());
    }
    if let Some(dropped) = dropped.told() {
        tracing::warn!("the replication slot {dropped} went: there were more than max_replication_slots");
    }
    done
}

/// Whether a slot can be called like this (PostgreSQL manual, section 26.2.6.1); a server that lies
/// may say anything, and it is said in the log.
fn is_name(name: &str) -> bool {
    name.len() < 64 && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

/// Drops a slot, if it is there. What still uses it is ended.
pub(super) async fn drop_named(session: &Session, name: &str) -> Result<()> {
    let action = "dropping a replication slot";
    let by_name: [Parameter<'_>; 1] = [(&name, Type::NAME)];
    let deadline = Instant::now() + DROP_PATIENCE;
    loop {
        let end = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots \
                   WHERE slot_name = $1 AND active_pid IS NOT NULL";
        session.query(action, end, &by_name).await?;
        let drop =
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1";
        match session.query(action, drop, &by_name).await {
            Err(error) if Instant::now() > deadline || session.is_closed() => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Ok(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn what_is_no_name_of_a_slot_is_not_told() {
        assert!(is_name("sync_1") && is_name(&"s".repeat(63)));
        for name in ["a\nb", "Slot", "a b", &"s".repeat(64)] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
