//! The few fields of `global/pg_control` that are the same in all supported
//! releases (src/include/catalog/pg_control.h of each).

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

/// Where the last checkpoint record stands, if the server was stopped cleanly. Blocks.
///
/// # Errors
/// When the file can't be read or is too short.
pub(super) fn clean_checkpoint(data: &UntrustedPath) -> Result<Option<String>> {
    let bytes = contents(data)?;
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

/// Reads what identifies a copy of a cluster. Blocks.
///
/// # Errors
/// When the file can't be read or is too short.
pub(super) fn read(data: &UntrustedPath) -> Result<VolumeFacts> {
    let bytes = contents(data)?;
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
