//! What a server counted, for recommendations.

use coppice_core::parameter::Observed;
use tokio_postgres::types::Type;

use super::session::{PLATFORM_ROLE, Session};
use crate::{EngineError, Result};

/// No server has counted more, whatever it says; what is made of the numbers stays one.
const COUNT_MAX: u64 = 1 << 50;

/// Asks a server of this version, in one statement.
pub(super) async fn read(session: &Session, major: u32) -> Result<Observed> {
    let parallel = if major >= 18 {
        "sum(parallel_workers_to_launch)::bigint AS planned, sum(parallel_workers_launched)::bigint AS launched"
    } else {
        "0::bigint AS planned, 0::bigint AS launched"
    };
    let checkpoints = if major >= 17 {
        "SELECT num_timed AS timed, num_requested AS requested FROM pg_catalog.pg_stat_checkpointer"
    } else {
        "SELECT checkpoints_timed AS timed, checkpoints_req AS requested FROM pg_catalog.pg_stat_bgwriter"
    };
    let statement = format!(
        "SELECT hit, read, temp_files, temp_bytes, timed, requested, wal_bytes, wal_full, sessions, idle,
                passes, planned, launched
         FROM (SELECT sum(blks_hit)::bigint AS hit, sum(blks_read)::bigint AS read,
                      sum(temp_files)::bigint AS temp_files, sum(temp_bytes)::bigint AS temp_bytes, {parallel}
               FROM pg_catalog.pg_stat_database) AS databases,
              ({checkpoints}) AS checkpoints,
              (SELECT wal_bytes::bigint AS wal_bytes, wal_buffers_full AS wal_full
               FROM pg_catalog.pg_stat_wal) AS wal,
              (SELECT count(*) AS sessions,
                      coalesce(max(extract(epoch FROM now() - state_change))
                               FILTER (WHERE state LIKE 'idle in transaction%'), 0)::bigint AS idle
               FROM pg_catalog.pg_stat_activity
               WHERE backend_type = 'client backend' AND usename IS DISTINCT FROM $1) AS activity,
              (SELECT coalesce(max(index_vacuum_count), 0) AS passes
               FROM pg_catalog.pg_stat_progress_vacuum WHERE phase = 'scanning heap') AS vacuums"
    );
    let row = session
        .query_one("reading a server's statistics", &statement, &[(&PLATFORM_ROLE, Type::NAME)])
        .await?;
    let number = |name: &str| -> Result<u64> {
        let number: Option<i64> =
            row.try_get(name).map_err(EngineError::sql("reading a server's statistics"))?;
        Ok(number.map_or(0, |number| u64::try_from(number).unwrap_or(0).min(COUNT_MAX)))
    };
    Ok(Observed {
        blocks_hit: number("hit")?,
        blocks_read: number("read")?,
        temp_files: number("temp_files")?,
        temp_bytes: number("temp_bytes")?,
        checkpoints_timed: number("timed")?,
        checkpoints_requested: number("requested")?,
        wal_bytes: number("wal_bytes")?,
        wal_buffers_full: number("wal_full")?,
        connections_peak: number("sessions")?,
        idle_in_transaction_seconds: number("idle")?,
        vacuum_passes: number("passes")?,
        parallel_workers_planned: number("planned")?,
        parallel_workers_launched: number("launched")?,
    })
}
