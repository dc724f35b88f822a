//! The few fields of `global/pg_control` that are the same in all supported
//! releases (src/include/catalog/pg_control.h of each).

use coppice_core::lsn::Lsn;

use super::untrusted::UntrustedPath;
use crate::{EngineError, Result, VolumeFacts};

/// Offset of the copy of the last checkpoint record: after the system
/// identifier (8), two versions (4, 4), state (4, padded), time (8) and the
/// checkpoint's location (8).
const CHECKPOINT_COPY: usize = 40;

/// Offset of the cluster's state, and its value after a clean stop
/// (`DB_SHUTDOWNED`).
const STATE: usize = 16;
const STATE_SHUT_DOWN: u32 = 1;
/// Offset of the location of the last checkpoint record.
const CHECKPOINT: usize = 32;

/// Offset of five settings of whoever wrote the log, which follow each other:
/// `max_connections`, `max_worker_processes`, `max_wal_senders`,
/// `max_prepared_transactions` and `max_locks_per_transaction`. After the copy of
/// the checkpoint (88 bytes) stand four locations with a timeline (8, 8, 4 padded,
/// 8, 8) and three settings (1 padded, 4, 1 padded).
const NEEDED: usize = 180;
/// Most that is believed of each.
const NEEDED_MAX: u32 = 100_000;

/// Size of the file (`PG_CONTROL_FILE_SIZE`), in bytes.
const LENGTH: u64 = 8192;

/// The file of a cluster.
fn contents(data: &UntrustedPath) -> Result<Vec<u8>> {
    let global = data.require().and_then(|data| data.directory("global"));
    let bytes = global.and_then(|global| global.map_or(Ok(None), |global| global.read("pg_control", LENGTH)));
    let bytes = bytes.map_err(EngineError::io("reading global/pg_control"))?;
    bytes.ok_or_else(|| EngineError::Other("global/pg_control is no ordinary file".to_owned()))
}

fn too_short() -> EngineError {
    EngineError::Other("global/pg_control is too short".to_owned())
}

/// What the last checkpoint left.
pub(super) struct Checkpoint {
    /// The cluster; copies of it share this.
    pub(super) system: u64,
    pub(super) timeline: u32,
    /// Where its record stands.
    pub(super) at: Lsn,
    /// Where recovery begins.
    pub(super) redo: Lsn,
    /// Whether the server was stopped cleanly then.
    pub(super) is_clean: bool,
}

/// Reads the file of a cluster. Blocks.
///
/// # Errors
/// When it can't be read or is too short.
pub(super) fn checkpoint(data: &UntrustedPath) -> Result<Checkpoint> {
    let bytes = contents(data)?;
    let part = |offset: usize, length: usize| bytes.get(offset..offset + length).ok_or_else(too_short);
    let long = |offset| part(offset, 8)?.try_into().map(u64::from_le_bytes).map_err(|_| too_short());
    let short = |offset| part(offset, 4)?.try_into().map(u32::from_le_bytes).map_err(|_| too_short());
    Ok(Checkpoint {
        system: long(0)?,
        timeline: short(CHECKPOINT_COPY + 8)?,
        at: Lsn(long(CHECKPOINT)?),
        redo: Lsn(long(CHECKPOINT_COPY)?),
        is_clean: short(STATE)? == STATE_SHUT_DOWN,
    })
}

/// Where the last checkpoint record stands, if the server was stopped cleanly. Blocks.
///
/// # Errors
/// When the file can't be read or is too short.
pub(super) fn clean_checkpoint(data: &UntrustedPath) -> Result<Option<String>> {
    let found = checkpoint(data)?;
    Ok(found.is_clean.then(|| found.at.to_string()))
}

/// What a server that follows needs at least: the settings that the log says its
/// writer has, in the order of the file, connections first. Blocks.
///
/// # Errors
/// When the file can't be read or is too short.
pub(super) fn needed_by_standbys(data: &UntrustedPath) -> Result<[u32; 5]> {
    let bytes = contents(data)?;
    let mut needed = [0; 5];
    for (value, part) in
        needed.iter_mut().zip(bytes.get(NEEDED..NEEDED + 20).ok_or_else(too_short)?.chunks(4))
    {
        let number = part.try_into().map(u32::from_le_bytes).map_err(|_| too_short())?;
        // The file is the server's to write, and more helps nobody.
        *value = number.min(NEEDED_MAX);
    }
    Ok(needed)
}

/// Reads what identifies a copy of a cluster. Blocks.
///
/// # Errors
/// When the file can't be read or is too short.
pub(super) fn read(data: &UntrustedPath) -> Result<VolumeFacts> {
    let found = checkpoint(data)?;
    Ok(VolumeFacts {
        system_identifier: found.system.to_string(),
        timeline: found.timeline,
        fork_lsn: found.redo.to_string(),
    })
}
