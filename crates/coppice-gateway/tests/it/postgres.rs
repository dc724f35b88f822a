//! The tests' own server, past the gateway.

use std::path::Path;
use std::sync::Arc;

/// Clients sign in by SCRAM as in production; the tests' own session is let in.
const HBA: &str = "local all postgres trust\nlocal all all scram-sha-256\n";

#[derive(Clone)]
pub(crate) struct Postgres(Arc<coppice_test_support::Postgres>);

impl Postgres {
    /// The server that other tests use at this moment, or a new one.
    pub(crate) fn shared() -> Self {
        Self(coppice_test_support::Postgres::shared(HBA))
    }

    /// A server of the caller alone.
    pub(crate) fn start() -> Self {
        Self(Arc::new(coppice_test_support::Postgres::start(HBA)))
    }

    pub(crate) fn socket_dir(&self) -> &Path {
        self.0.socket_dir()
    }

    /// A session as the superuser, past the gateway.
    pub(crate) async fn admin(&self) -> tokio_postgres::Client {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.socket_dir()).user("postgres").dbname("postgres");
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}
