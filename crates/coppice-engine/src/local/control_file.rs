//! The few fields of `global/pg_control` that are the same in all supported
//! releases (src/include/catalog/pg_control.h of each).

use std::fs;
use std::path::Path;

use coppice_core::image::PostgresVersion;

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

/// Where the last checkpoint record stands, if the server was stopped cleanly.
///
/// # Errors
/// When the file can't be read or is too short.
pub(super) fn clean_checkpoint(data: &Path) -> Result<Option<String>> {
    let path = data.join("global/pg_control");
    let bytes = fs::read(&path).map_err(EngineError::io(format!("reading {}", path.display())))?;
    let too_short = || EngineError::Other(format!("{} is too short", path.display()));
    let state = bytes.get(STATE..STATE + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let location =
        bytes.get(CHECKPOINT..CHECKPOINT + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let (state, location) = state.zip(location).ok_or_else(too_short)?;
    Ok((state == STATE_SHUT_DOWN).then(|| lsn(location)))
}

/// PostgreSQL's notation of a place in the WAL.
fn lsn(location: u64) -> String {
    format!("{:X}/{:X}", location >> 32, location as u32)
}

/// Reads what identifies a copy of a cluster.
///
/// # Errors
/// When the file can't be read or is too short.
pub(super) fn read(data: &Path, version: PostgresVersion) -> Result<VolumeFacts> {
    let path = data.join("global/pg_control");
    let bytes = fs::read(&path).map_err(EngineError::io(format!("reading {}", path.display())))?;
    let too_short = || EngineError::Other(format!("{} of PostgreSQL {version} is too short", path.display()));
    let number = |offset: usize| -> Result<u64> {
        let bytes = bytes.get(offset..offset + 8).ok_or_else(too_short)?;
        bytes.try_into().map(u64::from_le_bytes).map_err(|_| too_short())
    };
    let redo = number(CHECKPOINT_COPY)?;
    Ok(VolumeFacts {
        system_identifier: number(0)?.to_string(),
        timeline: number(CHECKPOINT_COPY + 8)? as u32,
        fork_lsn: lsn(redo),
    })
}
