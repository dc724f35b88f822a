//! Connections to the metastore, of which nobody has more than a share.
//!
//! A pool by itself serves in order: whoever asks for much there keeps everybody else waiting. So
//! what is done for somebody waits for a turn of theirs first. What is done for nobody in
//! particular, the platform's own work and the gateway's questions, has connections that are left to it.

use std::time::Duration;

use coppice_turns::{Name, Shared, Turns};
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt as _, TryStreamExt as _, once};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Execute, Executor, PgPool, Postgres, SqlStr};

use crate::transaction::Tx;
use crate::{PoolUse, Result};

/// Who has a turn at connections, and of whom that is known.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    turns: Turns<Name>,
    patience: Duration,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    connections: PgPool,
    shares: Shares,
}

impl Shares {
    /// Of so many connections: all who ask have three quarters of them, and each a quarter.
    pub(crate) fn new(connections: usize, patience: Duration) -> Self {
        Self { turns: Turns::new(connections * 3 / 4, connections / 4), patience }
    }

    /// Waits for a turn of whoever the current task works for.
    pub(crate) async fn take(&self) -> sqlx::Result<Option<Shared>> {
        let taken = tokio::time::timeout(self.patience, self.turns.take_for_current()).await;
        taken.map_err(|_| sqlx::Error::PoolTimedOut)
    }
}

impl Pool {
    /// At most `size` connections; each is waited for at most `patience`.
    pub(crate) fn new(options: PgConnectOptions, size: u32, patience: Duration) -> Self {
        let pool = PgPoolOptions::new().max_connections(size).acquire_timeout(patience);
        let connections = pool.connect_lazy_with(options);
        Self { connections, shares: Shares::new(size as usize, patience) }
    }

    /// Without shares: for what is done before anybody can ask.
    pub(crate) fn unshared(&self) -> &PgPool {
        &self.connections
    }

    /// Begins a transaction, in a task of its own: of one that is given up halfway,
    /// the driver would not know, and leave the connection with it open to whoever
    /// uses it next, whose statements would never be committed.
    pub(crate) async fn begin(&self) -> Result<Tx> {
        let share = self.shares.take().await?;
        let connections = self.connections.clone();
        let begun = tokio::spawn(async move { Ok(Tx::new(connections.begin().await?, share)) });
        begun.await.map_err(|ended| sqlx::Error::Io(std::io::Error::other(ended)))?
    }

    /// How it is used.
    pub(crate) fn used(&self, pool: &'static str) -> PoolUse {
        let (open, idle) = (self.connections.size() as usize, self.connections.num_idle());
        PoolUse { pool, used: open.saturating_sub(idle), idle }
    }

    /// The connections, when there is a turn at them.
    async fn shared(self) -> sqlx::Result<(PgPool, Option<Shared>)> {
        let share = self.shares.take().await?;
        Ok((self.connections, share))
    }
}

impl<'p> Executor<'p> for &'_ Pool {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, sqlx::Result<Either<PgQueryResult, PgRow>>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let shared = self.clone().shared();
        let rows = async move {
            let (connections, share) = shared.await?;
            // It is held until the last row was read.
            let rows = connections.fetch_many(query);
            Ok::<_, sqlx::Error>(rows.inspect(move |_| _ = &share))
        };
        Box::pin(once(rows).try_flatten())
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Option<PgRow>>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let shared = self.clone().shared();
        Box::pin(async move {
            let (connections, _share) = shared.await?;
            connections.fetch_optional(query).await
        })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, sqlx::Result<PgStatement>>
    where
        'p: 'e,
    {
        let shared = self.clone().shared();
        Box::pin(async move {
            let (connections, _share) = shared.await?;
            connections.prepare_with(sql, parameters).await
        })
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, sqlx::Result<Describe<Postgres>>>
    where
        'p: 'e,
    {
        let shared = self.clone().shared();
        Box::pin(async move {
            let (connections, _share) = shared.await?;
            connections.describe(sql).await
        })
    }
}
