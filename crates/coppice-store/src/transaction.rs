//! Transactions on the metastore.

use std::ops::{Deref, DerefMut};

use coppice_turns::Shared;
use sqlx::{PgConnection, Postgres, Transaction};

use crate::Result;

/// A transaction; nothing of it is done unless it is committed.
#[derive(Debug)]
pub struct Tx {
    transaction: Transaction<'static, Postgres>,
    /// Its turn at a connection; none where it is done for nobody in particular.
    _share: Option<Shared>,
}

impl Tx {
    pub(crate) fn new(transaction: Transaction<'static, Postgres>, share: Option<Shared>) -> Self {
        Self { transaction, _share: share }
    }

    /// Does all of it, or nothing.
    pub async fn commit(self) -> Result<()> {
        Ok(self.transaction.commit().await?)
    }

    /// Gives it up now, and not only when the next one needs its connection.
    pub async fn rollback(self) -> Result<()> {
        Ok(self.transaction.rollback().await?)
    }
}

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}
