//! Platform sessions: the superuser's own connections to a server.

use std::time::Duration;

use tokio::net::UnixStream;
use tokio_postgres::{Client, NoTls};

use crate::{EngineError, Result};

/// The platform's superuser; known to no user.
pub(super) const PLATFORM_ROLE: &str = "platform";

/// Fixes what `ALTER DATABASE … SET` by a database's owner could change:
/// such settings reach a superuser's session, and startup options beat them.
const OPTIONS: &str = "-c search_path=pg_catalog -c role=none -c statement_timeout=0 -c lock_timeout=0 \
    -c idle_session_timeout=0 -c idle_in_transaction_session_timeout=0 -c default_transaction_read_only=off \
    -c default_transaction_isolation=read\\ committed -c default_transaction_deferrable=off \
    -c session_replication_role=origin -c row_security=off -c synchronous_commit=on -c log_statement=none \
    -c log_min_error_statement=panic -c log_min_duration_statement=-1 \
    -c session_preload_libraries= -c local_preload_libraries= -c check_function_bodies=off \
    -c pg_stat_statements.track=none -c client_min_messages=warning -c datestyle=ISO -c bytea_output=hex";

/// Longest time a sign-in may take.
const SIGN_IN_PATIENCE: Duration = Duration::from_secs(10);

/// Opens a session on a connection to a server; `password` is none where the
/// account is enough.
///
/// # Errors
/// When the server does not answer or refuses.
pub(super) async fn open(stream: UnixStream, database: &str, password: Option<&str>) -> Result<Client> {
    let action = || format!("opening a platform session to {database}");
    let mut config = tokio_postgres::Config::new();
    config.user(PLATFORM_ROLE).dbname(database).application_name("coppice").options(OPTIONS);
    if let Some(password) = password {
        config.password(password);
    }
    let signed_in = tokio::time::timeout(SIGN_IN_PATIENCE, config.connect_raw(stream, NoTls)).await;
    let (client, connection) = signed_in
        .map_err(|_| EngineError::Other(format!("{}: no answer in time", action())))?
        .map_err(EngineError::sql(action()))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("a platform session ended: {error}");
        }
    });
    Ok(client)
}
