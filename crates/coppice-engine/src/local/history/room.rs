//! How much room histories may take.

use std::fs;
use std::sync::atomic::Ordering;

use coppice_core::VolumeId;
use coppice_wal::Segment;

use super::History;
use super::kept::Kept;
use crate::{EngineError, Result};

/// With less than this free of a hundred parts, only the newest snapshot is kept
/// of each volume.
const TIGHT: u64 = 15;
/// With less than this, nothing is.
const SHORT: u64 = 5;
/// Between two snapshots, as much is changed in the volume as is written to its
/// log, at most: each page is in the log whole when it first changes.
const BYTES_OF_LOG: u64 = 2;

impl History {
    /// Lets histories take `share` of a hundred parts of `total_bytes`, and fewer
    /// where there is little free. The largest is cut first, at its old end. Blocks.
    pub(in crate::local) fn keep_within(&self, share: u8, total_bytes: u64, free_bytes: u64) -> Result<()> {
        let is_below = |parts: u64| free_bytes < total_bytes / 100 * parts;
        let has_room = share > 0 && !is_below(SHORT);
        if self.has_room.swap(has_room, Ordering::Relaxed) && !has_room && share > 0 {
            tracing::warn!("no history is kept of any branch: there is no room for it");
        }
        let mut sizes = self.sizes()?;
        if !has_room {
            return sizes.iter().try_for_each(|(_, volume)| self.remove(volume));
        }
        let most = if is_below(TIGHT) { 0 } else { total_bytes / 100 * u64::from(share) };
        let mut sum: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
        while sum > most {
            sizes.sort_unstable_by_key(|(bytes, _)| *bytes);
            // One that can't be cut stays as it is.
            let Some((bytes, volume)) = sizes.pop() else { break };
            if let Some(left) = self.shorten(&volume)? {
                sum = sum - bytes + left;
                sizes.push((left, volume));
            }
        }
        Ok(())
    }

    /// Bytes of every history, as far as that can be told.
    fn sizes(&self) -> Result<Vec<(u64, VolumeId)>> {
        let histories = self.layout.histories();
        let reading = || EngineError::io(format!("reading {}", histories.display()));
        let mut sizes = vec![];
        for entry in fs::read_dir(&histories).map_err(reading())? {
            let name = entry.map_err(reading())?.file_name();
            let volume = VolumeId::from_trusted(name.to_string_lossy());
            let files = Kept::of(&self.layout.history(&volume))?.numbers()?.len() as u64;
            sizes.push((files * Segment::USUAL.bytes * BYTES_OF_LOG, volume));
        }
        Ok(sizes)
    }

    /// Lets a volume's history begin with its second snapshot, and tells its size;
    /// none when it has no second one, or somebody else is at it.
    fn shorten(&self, volume: &VolumeId) -> Result<Option<u64>> {
        let entry = self.entry(volume);
        let Some(mut known) = entry.try_lock() else { return Ok(None) };
        let Some(mut found) = self.open(volume)? else { return Ok(None) };
        let snapshots = found.snapshots.list()?;
        let [first, second, ..] = snapshots.as_slice() else { return Ok(None) };
        *known = None;
        found.forget_before(second.end().at)?;
        found.snapshots.remove(first.end().at)?;
        Ok(Some(found.kept.numbers()?.len() as u64 * Segment::USUAL.bytes * BYTES_OF_LOG))
    }
}
