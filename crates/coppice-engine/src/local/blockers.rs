//! Whoever keeps the platform waiting on a server is ended.
//!
//! A tenant may hold any lock that its rights allow, for as long as it likes:
//! also on rows that the platform has to change. Its transaction gets a moment
//! to end by itself. Then its session is ended, or, when it is a prepared one,
//! it is rolled back. One that can't be ended so is named by
//! [`EngineError::Held`], and then the server has to be stopped.

use std::collections::HashMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use coppice_core::InstanceId;
use tokio_postgres::types::Type;

use super::connecting::Address;
use super::many::Many;
use super::prepared::{self, Prepared};
use super::session::{PLATFORM_ROLE, Patience, Session, column};

use crate::{EngineError, Result};

/// How long others may keep the platform waiting.
const GRACE: Duration = Duration::from_millis(300);
/// How often it is looked whether they still do.
const LOOK: Duration = Duration::from_millis(50);
/// A session that goes on for so long after it was told to end won't.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// Sessions and prepared transactions that are ended at one look. A server that lies says any number.
const AT_ONCE: usize = 1000;

/// A change that takes longer, others having been ended for it, is given up.
const CHANGE_PATIENCE: Duration = Duration::from_secs(20);

/// Changes a server, whose owner may be in the way.
pub(super) async fn change(instance: &InstanceId, changing: impl Future<Output = Result<()>>) -> Result<()> {
    let changed = tokio::time::timeout(CHANGE_PATIENCE, changing).await;
    changed.unwrap_or_else(|_| Err(EngineError::no_answer())).map_err(|error| error.or_held(instance))
}

/// Ends the sessions that keep the platform's waiting; `pg_blocking_pids` tells
/// prepared transactions as 0.
fn end_sessions() -> String {
    format!(
        "SELECT blocking.pid, blocking.pid <> 0 AND pg_catalog.pg_terminate_backend(blocking.pid)
         FROM (SELECT DISTINCT unnest(pg_catalog.pg_blocking_pids(waiting.pid)) AS pid
               FROM pg_catalog.pg_locks waiting JOIN pg_catalog.pg_stat_activity platform USING (pid)
               WHERE NOT waiting.granted AND platform.usename = $1) blocking
         WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity own
                           WHERE own.pid = blocking.pid AND own.usename = $1)
         LIMIT {AT_ONCE}"
    )
}

/// The prepared transactions that hold what the platform's sessions wait for; not those whose locks keep nobody
/// waiting who waits so (PostgreSQL manual, 13.3.1). Each holds the lock on its own id, too.
fn holding_prepared() -> String {
    let columns = prepared::COLUMNS;
    format!(
        "SELECT DISTINCT {columns}
         FROM pg_catalog.pg_locks waiting
         JOIN pg_catalog.pg_stat_activity platform ON platform.pid = waiting.pid AND platform.usename = $1
         JOIN pg_catalog.pg_locks holding ON holding.granted AND holding.pid IS NULL
              AND (holding.mode <> 'AccessShareLock' OR waiting.mode = 'AccessExclusiveLock')
              AND (holding.mode <> 'RowShareLock' OR waiting.mode IN ('ExclusiveLock', 'AccessExclusiveLock'))
              AND (holding.locktype, holding.database, holding.relation, holding.page, holding.tuple,
                   holding.transactionid, holding.classid, holding.objid, holding.objsubid)
                  IS NOT DISTINCT FROM
                  (waiting.locktype, waiting.database, waiting.relation, waiting.page, waiting.tuple,
                   waiting.transactionid, waiting.classid, waiting.objid, waiting.objsubid)
         JOIN pg_catalog.pg_locks id ON id.granted AND id.pid IS NULL AND id.locktype = 'transactionid'
              AND id.virtualtransaction = holding.virtualtransaction
         JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = id.transactionid
         LEFT JOIN pg_catalog.pg_database d ON d.datname = p.database
         WHERE NOT waiting.granted LIMIT {AT_ONCE}"
    )
}

/// Does work on platform sessions of a server; `purpose` says for the log what
/// is kept waiting, as in "kept the platform from …".
///
/// # Errors
/// As the work; [`EngineError::Held`] when it is kept waiting by something that
/// can't be ended.
pub(super) async fn insist<T>(
    address: &Address,
    purpose: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut work = pin!(work);
    if let Ok(done) = tokio::time::timeout(GRACE, &mut work).await {
        return done;
    }
    let session = address.open(Patience::QUESTION).await?;
    let mut watcher = Watcher { address, purpose, session, told: HashMap::new() };
    loop {
        watcher.end_blockers().await?;
        if let Ok(done) = tokio::time::timeout(LOOK, &mut work).await {
            return done;
        }
    }
}

struct Watcher<'a> {
    address: &'a Address,
    purpose: &'a str,
    session: Session,
    /// When sessions were first told to end.
    told: HashMap<i32, Instant>,
}

impl Watcher<'_> {
    async fn end_blockers(&mut self) -> Result<()> {
        let action = "looking for who keeps the platform waiting";
        let rows = self.session.query(action, &end_sessions(), &[(&PLATFORM_ROLE, Type::NAME)]).await?;
        let pids = rows.iter().take(AT_ONCE).map(|row| column(row, 0)).collect::<Result<Vec<i32>>>()?;
        let mut ended = Many::default();
        for pid in pids.iter().copied().filter(|pid| *pid != 0) {
            match self.told.get(&pid) {
                None => {
                    self.told.insert(pid, Instant::now());
                    ended.note(|| format!("ended session {pid}"));
                }
                Some(told) if told.elapsed() > END_PATIENCE => {
                    let instance = self.address.instance.clone();
                    tracing::warn!(%instance, "instance {instance}: session {pid} does not end");
                    return Err(EngineError::Held { instance, transactions: vec![] });
                }
                Some(_) => {}
            }
        }
        if let Some(ended) = ended.told() {
            self.tell(&ended).await;
        }
        if pids.contains(&0) {
            let rows =
                self.session.query(action, &holding_prepared(), &[(&PLATFORM_ROLE, Type::NAME)]).await?;
            let holding: Vec<_> = rows.iter().take(AT_ONCE).map(Prepared::of).collect::<Result<_>>()?;
            prepared::roll_back(self.address, self.session.major(), &holding).await?;
            if !holding.is_empty() {
                self.tell(&format!("rolled back {} prepared transactions", holding.len())).await;
            }
        }
        Ok(())
    }

    /// Tells the operator, and the owner in the log of the server.
    async fn tell(&self, what: &str) {
        let (instance, purpose) = (&self.address.instance, self.purpose);
        let line = format!("the platform {what}, which kept it from {purpose}");
        tracing::warn!(%instance, "instance {instance}: {line}");
        // Without the language there is nobody to be told: nobody was let in yet.
        let statement = format!("DO $tell$BEGIN RAISE LOG '{line}'; END$tell$");
        let _ = self.session.execute("telling the owner of a server", &statement).await;
    }
}
