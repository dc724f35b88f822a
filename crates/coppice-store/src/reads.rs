//! Connections for single statements that only read.
//!
//! sqlx's own pool tests a connection each time it comes back, which costs as
//! much as most reads do. Here a connection comes back only after its
//! statement was read to the end; one whose statement failed or was abandoned
//! is closed instead, so there is nothing to test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_turns::Shared;
use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{Connection, Execute, Executor, FromRow, PgConnection, Postgres};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Instrument as _;

use crate::pool::Shares;
use crate::{Result, metrics};

/// A connection that was used this recently is trusted to be there.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

type Idle = Arc<Mutex<Vec<(PgConnection, Instant)>>>;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Reads {
    options: Arc<PgConnectOptions>,
    slots: Arc<Semaphore>,
    shares: Shares,
    size: usize,
    idle: Idle,
    patience: Duration,
}

/// A connection that is taken; closed when dropped, unless it is given back.
struct Taken {
    connection: PgConnection,
    idle: Idle,
    _slot: OwnedSemaphorePermit,
    _share: Option<Shared>,
}

impl Reads {
    /// At most `size` connections; each is waited for at most `patience`.
    pub(crate) fn new(options: PgConnectOptions, size: usize, patience: Duration) -> Self {
        // These statements have one good plan, by an index; to plan each
        // execution anew costs more than the execution.
        let options = options.options([("plan_cache_mode", "force_generic_plan")]);
        Self {
            options: Arc::new(options),
            slots: Arc::new(Semaphore::new(size)),
            shares: Shares::new(size, patience),
            size,
            idle: Idle::default(),
            patience,
        }
    }

    /// How many of its connections are open, and how many of those are idle.
    pub(crate) fn open_and_idle(&self) -> (usize, usize) {
        let idle = self.idle.lock().len();
        (self.size.saturating_sub(self.slots.available_permits()) + idle, idle)
    }

    /// The row of a statement that has at most one.
    pub(crate) async fn row<'q>(&self, query: impl Execute<'q, Postgres> + 'q) -> Result<Option<PgRow>> {
        let read = async {
            let mut taken = self.take().await?;
            let row = (&mut taken.connection).fetch_optional(query).await?;
            taken.give_back();
            Ok(row)
        };
        observed(read).await
    }

    /// As [`Reads::row`], read as `O`.
    pub(crate) async fn optional<'q, O: for<'r> FromRow<'r, PgRow>>(
        &self,
        query: impl Execute<'q, Postgres> + 'q,
    ) -> Result<Option<O>> {
        Ok(self.row(query).await?.map(|row| O::from_row(&row)).transpose()?)
    }

    /// Every row of a statement.
    pub(crate) async fn all<'q, O: for<'r> FromRow<'r, PgRow>>(
        &self,
        query: impl Execute<'q, Postgres> + 'q,
    ) -> Result<Vec<O>> {
        let read = async {
            let mut taken = self.take().await?;
            let rows = (&mut taken.connection).fetch_all(query).await?;
            taken.give_back();
            Ok(rows)
        };
        let rows = observed(read).await?;
        Ok(rows.iter().map(O::from_row).collect::<std::result::Result<_, _>>()?)
    }

    async fn take(&self) -> Result<Taken> {
        let taken = tokio::time::timeout(self.patience, self.connect()).await;
        taken.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()))
    }

    async fn connect(&self) -> Result<Taken> {
        let share = self.shares.take().await?;
        let slot = self.slots.clone().acquire_owned().await.map_err(|_| sqlx::Error::PoolClosed)?;
        while let Some((mut connection, used)) = pop(&self.idle) {
            if used.elapsed() < TRUSTED_IDLE || connection.ping().await.is_ok() {
                return Ok(Taken { connection, idle: self.idle.clone(), _slot: slot, _share: share });
            }
        }
        let connection = PgConnection::connect_with(&self.options).await?;
        Ok(Taken { connection, idle: self.idle.clone(), _slot: slot, _share: share })
    }
}

/// Counts a read that succeeds, and traces every one.
async fn observed<T>(read: impl Future<Output = Result<T>>) -> Result<T> {
    let began = Instant::now();
    let done = read.instrument(tracing::debug_span!("metastore read")).await;
    if done.is_ok() {
        metrics::read(began);
    }
    done
}

fn pop(idle: &Idle) -> Option<(PgConnection, Instant)> {
    idle.lock().pop()
}

impl Taken {
    /// To be called when the statement was read to its end.
    fn give_back(self) {
        let Self { connection, idle, _slot, _share } = self;
        idle.lock().push((connection, Instant::now()));
    }
}
