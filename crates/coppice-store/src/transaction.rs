//! Transactions on the metastore.

use std::ops::{Deref, DerefMut};

use sqlx::{PgConnection, Postgres, Transaction};

use crate::Result;

/// A transaction; nothing of it is done unless it is committed.
#[derive(Debug)]
pub struct Tx(Transaction<'static, Postgres>);

impl Tx {
    pub(crate) fn new(transaction: Transaction<'static, Postgres>) -> Self {
        Self(transaction)
    }

    /// Does all of it, or nothing.
    pub async fn commit(self) -> Result<()> {
        Ok(self.0.commit().await?)
    }

    /// Gives it up now, and not only when the next one needs its connection.
    pub async fn rollback(self) -> Result<()> {
        Ok(self.0.rollback().await?)
    }
}

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}
