//! Databases of the tests' own server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use coppice_store::ConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Only the owner of the directory reaches the socket.
const HBA: &str = "local all all trust\n";

pub(crate) struct Postgres(Arc<coppice_test_support::Postgres>);

impl Postgres {
    pub(crate) fn shared() -> Self {
        Self(coppice_test_support::Postgres::shared(HBA))
    }

    /// How to reach a database of this server.
    pub(crate) fn options(&self, database: &str) -> ConnectOptions {
        let options = ConnectOptions::new_without_pgpass().socket(self.0.socket_dir());
        options.username("postgres").database(database)
    }

    /// A new, empty database.
    pub(crate) async fn database(&self) -> ConnectOptions {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("store_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut admin = PgConnection::connect_with(&self.options("postgres")).await.unwrap();
        let create = format!("create database {name}");
        sqlx::query(AssertSqlSafe(create)).execute(&mut admin).await.unwrap();
        self.options(&name)
    }
}
