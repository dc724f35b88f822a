//! The first start of a copy: what it must not share with its source.
//!
//! A copy believes that it is its source. Left alone it would take over the
//! source's subscriptions at their publishers, and the source would lose rows.
//! So before clients are let in: inherited replication slots go before the
//! server starts; it starts unable to load what a subscription connects with;
//! subscriptions are disabled and detached from their slots; prepared
//! transactions are rolled back; statistics of statements are reset; the
//! managed role is repaired and gets the branch's own password.

use coppice_core::InstanceId;
use tokio_postgres::Client;

use super::untrusted::UntrustedPath;
use super::{HostEngine, managed_role};
use crate::{EngineError, Result};

/// The library whose statistics a copy inherits.
pub(super) const STATISTICS: &str = "pg_stat_statements";

/// Replication slots that are looked at before they are removed.
const SLOTS_AT_ONCE: usize = 1024;

/// Removes what only the source's server may use, before the first start. Blocks.
pub(super) fn remove_inherited_files(data: &UntrustedPath) -> Result<()> {
    let action = || EngineError::io("removing inherited replication slots");
    let data = data.require().map_err(action())?;
    let Some(slots) = data.directory("pg_replslot").map_err(action())? else { return Ok(()) };
    loop {
        let names = slots.names(SLOTS_AT_ONCE).map_err(action())?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            slots.remove(&name).map_err(action())?;
        }
    }
}

/// Makes a started copy its own, except for the reload that ends its first start.
pub(super) async fn detach_from_source(
    host: &HostEngine,
    instance: &InstanceId,
    managed_role_verifier: &str,
    has_statistics: bool,
) -> Result<Client> {
    let client = host.platform_session(instance, "postgres").await?;
    disable_subscriptions(&client).await?;
    roll_back_prepared(&client, host, instance).await?;
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

async fn roll_back_prepared(client: &Client, host: &HostEngine, instance: &InstanceId) -> Result<()> {
    let action = || EngineError::sql("rolling back inherited prepared transactions");
    let rows = client
        .query("SELECT database::text, quote_literal(gid) FROM pg_catalog.pg_prepared_xacts ORDER BY 1", &[])
        .await
        .map_err(action())?;
    for row in rows {
        let (database, gid): (String, String) = (row.get(0), row.get(1));
        let inside = host.platform_session(instance, &database).await?;
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
