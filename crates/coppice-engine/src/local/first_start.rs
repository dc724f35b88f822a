//! The first start of a copy: what it must not share with its source.
//!
//! A copy believes that it is its source. Left alone it would take over the
//! source's subscriptions at their publishers, and the source would lose rows.
//! So before clients are let in: inherited replication slots go before the
//! server starts; it starts unable to load what a subscription connects with;
//! subscriptions are disabled and detached from their slots; prepared
//! transactions are rolled back; statistics of statements are reset; the
//! managed role is repaired and gets the branch's own password.

use std::fs;
use std::path::Path;

use tokio_postgres::Client;

use super::{managed_role, session};
use crate::{EngineError, Result};

/// The library whose statistics a copy inherits.
pub(super) const STATISTICS: &str = "pg_stat_statements";

/// Removes what only the source's server may use, before the first start.
pub(super) fn remove_inherited_files(data: &Path) -> Result<()> {
    let slots = data.join("pg_replslot");
    let entries = fs::read_dir(&slots).map_err(EngineError::io(format!("listing {}", slots.display())))?;
    for entry in entries.filter_map(std::result::Result::ok) {
        fs::remove_dir_all(entry.path())
            .map_err(EngineError::io("removing an inherited replication slot"))?;
    }
    Ok(())
}

/// Makes a started copy its own, except for the reload that ends its first start.
pub(super) async fn detach_from_source(
    socket: &Path,
    password: Option<&str>,
    managed_role_verifier: &str,
    has_statistics: bool,
) -> Result<Client> {
    let client = session::open(socket, "postgres", password).await?;
    disable_subscriptions(&client).await?;
    roll_back_prepared(&client, socket, password).await?;
    if has_statistics {
        reset_statistics(&client).await?;
    }
    managed_role::repair(&client, managed_role_verifier).await?;
    Ok(client)
}

/// The catalog is shared by all databases, so one session reaches all of them.
/// Detached from its slot, a subscription can also be dropped without its
/// publisher.
async fn disable_subscriptions(client: &Client) -> Result<()> {
    client
        .batch_execute("UPDATE pg_catalog.pg_subscription SET subenabled = false, subslotname = NULL")
        .await
        .map_err(EngineError::sql("disabling inherited subscriptions"))
}

async fn roll_back_prepared(client: &Client, socket: &Path, password: Option<&str>) -> Result<()> {
    let action = || EngineError::sql("rolling back inherited prepared transactions");
    let rows = client
        .query("SELECT database::text, quote_literal(gid) FROM pg_catalog.pg_prepared_xacts ORDER BY 1", &[])
        .await
        .map_err(action())?;
    for row in rows {
        let (database, gid): (String, String) = (row.get(0), row.get(1));
        let inside = session::open(socket, &database, password).await?;
        inside.batch_execute(&format!("ROLLBACK PREPARED {gid}")).await.map_err(action())?;
    }
    Ok(())
}

async fn reset_statistics(client: &Client) -> Result<()> {
    let action = || EngineError::sql("resetting inherited statistics");
    let place = client
        .query_opt(
            "SELECT quote_ident(n.nspname) FROM pg_catalog.pg_extension e
             JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_stat_statements'",
            &[],
        )
        .await
        .map_err(action())?;
    let Some(place) = place else { return Ok(()) };
    let schema: String = place.get(0);
    // The server itself can't load libraries yet.
    let statements = format!(
        "BEGIN; SET LOCAL dynamic_library_path = '$libdir'; SELECT {schema}.pg_stat_statements_reset(); COMMIT"
    );
    client.batch_execute(&statements).await.map_err(action())
}
