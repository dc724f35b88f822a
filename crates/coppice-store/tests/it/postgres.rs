//! Databases of the tests' own server.

use std::sync::Arc;
use std::time::Duration;

use coppice_store::{ConnectOptions, Store};

/// Only the owner of the directory reaches the socket.
const HBA: &str = "local all all trust\n";
const PATIENCE: Duration = Duration::from_secs(30);

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

    /// A new database with the newest schema.
    pub(crate) fn database(&self) -> ConnectOptions {
        self.database_from("newest", migrate)
    }

    /// A new database with nothing in it.
    pub(crate) fn empty_database(&self) -> ConnectOptions {
        self.database_from("empty", async |_| ())
    }

    /// A new database like the first one of its kind, which is filled.
    pub(crate) fn database_from(
        &self,
        template: &str,
        fill: impl AsyncFnOnce(ConnectOptions) + Send,
    ) -> ConnectOptions {
        self.options(&self.0.database_from(template, async |name: &str| fill(self.options(name)).await))
    }
}

/// Brings a database to the newest schema.
pub(crate) async fn migrate(options: ConnectOptions) {
    let store = Store::connect(options, PATIENCE).await.unwrap();
    store.migrate().await.unwrap();
}
