//! Room on the file system that holds the volumes, of whichever kind is scarcer.

use std::path::Path;

use super::{btrfs, btrfs_room};
use crate::{EngineError, Result};

/// There is so little that what nobody needs has to go: one of so many parts,
const SHORT: u64 = 20;
/// or this of a large file system.
const SHORT_BYTES: u64 = 2 << 30;
/// The same of room for metadata. A branch of hundreds of gigabytes has a few of those, and
/// one that makes tables without end takes minutes for as much as is left.
const SHORT_METADATA: u64 = 100;
const SHORT_METADATA_BYTES: u64 = 256 << 20;
/// With less than so many times that, metadata gets more.
const LITTLE: u64 = 2;

/// Size of the file system of `path`, and what is free of it, in bytes.
fn room(path: &Path) -> Result<[u64; 2]> {
    let stat = rustix::fs::statvfs(path)
        .map_err(EngineError::io(format!("asking for room in {}", path.display())))?;
    Ok([stat.f_blocks, stat.f_bavail].map(|blocks| blocks * stat.f_frsize))
}

/// Free space on the file system of `path`, in bytes.
pub(super) fn free_bytes(path: &Path) -> Result<u64> {
    room(path).map(|[_, free]| free)
}

/// Room on the file system that holds the volumes.
#[derive(Clone, Copy, Debug)]
pub struct StorageUsage {
    /// Size in bytes.
    pub total_bytes: u64,
    /// Free for volumes, in bytes. Where room for the file system's metadata is scarcer than
    /// room for data, it is as much as would make data as scarce.
    pub free_bytes: u64,
    /// Room for metadata in these terms.
    for_metadata: u64,
}

impl StorageUsage {
    /// Asks the file system of `path`.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let [total, free] = room(path)?;
        let metadata = btrfs::is_btrfs(path).then(|| btrfs_room::metadata_free(path)).transpose();
        let metadata = metadata.unwrap_or_else(|error| {
            tracing::debug!("room for metadata in {} is not known: {error}", path.display());
            None
        });
        Ok(Self::scarcer(total, free, metadata.flatten()))
    }

    fn scarcer(total_bytes: u64, data_bytes: u64, metadata_bytes: Option<u64>) -> Self {
        let short = (total_bytes / SHORT_METADATA).clamp(1, SHORT_METADATA_BYTES);
        let as_data = |bytes: u64| u128::from(total_bytes / SHORT) * u128::from(bytes) / u128::from(short);
        let for_metadata =
            metadata_bytes.map_or(u64::MAX, |bytes| u64::try_from(as_data(bytes)).unwrap_or(u64::MAX));
        Self { total_bytes, free_bytes: data_bytes.min(for_metadata), for_metadata }
    }

    /// The same with so much free.
    pub(super) fn with_free(self, free_bytes: u64) -> Self {
        Self { free_bytes, ..self }
    }

    /// Whether there is so little left that what nobody needs has to go: less
    /// than a twentieth, or than 2 GiB of a large one; of room for metadata less than
    /// a hundredth, or 256 MiB. A pool that can grow does so long before.
    pub fn is_short(&self) -> bool {
        let part = self.total_bytes / SHORT;
        self.free_bytes < part.min(SHORT_BYTES) || self.for_metadata < part
    }

    /// Whether metadata may soon be short of room.
    pub(super) fn has_little_for_metadata(&self) -> bool {
        self.for_metadata < self.total_bytes / SHORT * LITTLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn room_is_what_there_is_of_the_scarcer_kind() {
        let told = |total: u64, data: u64, metadata: Option<u64>| {
            let usage = StorageUsage::scarcer(total, data, metadata);
            (usage.free_bytes, usage.is_short(), usage.has_little_for_metadata())
        };
        assert_eq!(told(100 * GIB, 50 * GIB, None), (50 * GIB, false, false));
        assert_eq!(told(100 * GIB, GIB, None), (GIB, true, false));
        assert_eq!(
            told(100 * GIB, 50 * GIB, Some(25 * GIB)),
            (50 * GIB, false, false),
            "nothing is in chunks"
        );
        assert_eq!(told(100 * GIB, 50 * GIB, Some(512 * MIB)), (10 * GIB, false, false));
        assert!(told(100 * GIB, 50 * GIB, Some(511 * MIB)).2);
        assert!(told(100 * GIB, 50 * GIB, Some(255 * MIB)).1);
        assert_eq!(told(100 * GIB, 3 * GIB, Some(255 * MIB)), (3 * GIB, true, true));
        assert_eq!(told(100 * GIB, 3 * GIB, Some(GIB)), (3 * GIB, false, false));
        assert!(told(2 * GIB, GIB, Some(20 * MIB)).1);
        assert!(!told(2 * GIB, GIB, Some(21 * MIB)).1);
        assert_eq!(told(2 * GIB, GIB, Some(0)), (0, true, true));
    }
}
