//! How much a base may be, and room for what is made of one.
//!
//! Files can share blocks within a volume, so that it is far larger than what it takes of the disk. What comes from a
//! store is written block by block.

use std::io;
use std::sync::Arc;

use super::storage_usage::StorageUsage;
use super::untrusted::ENTRY_BYTES_MIN;
use super::volumes::Volumes;
use crate::{EngineError, Result};

/// A branch is shut at a tenth beyond its storage, or half a GiB. What is so many times that, and a GiB, no server of
/// PostgreSQL's has written.
const STORAGES: u64 = 2;
const BESIDE: u64 = 1 << 30;
/// After so much more is looked whether there still is room.
const LOOK_BYTES: u64 = 16 << 20;

/// Refuses files of so many bytes for a branch with so much storage.
pub(super) fn require_length(bytes: u64, storage_bytes: u64) -> Result<()> {
    if bytes <= storage_bytes.saturating_mul(STORAGES).saturating_add(BESIDE) {
        return Ok(());
    }
    Err(EngineError::Other(format!(
        "its files are {} GiB long, which is far more than its {} GiB of storage: give it more, or delete something",
        bytes >> 30,
        storage_bytes >> 30
    )))
}

/// What is left while something is written.
pub(super) struct Room {
    volumes: Arc<Volumes>,
    /// Before it was begun, or when all that was written by then was on the disk.
    before: StorageUsage,
    /// Since then.
    written: u64,
    looked_at: u64,
}

impl Room {
    /// For so many bytes.
    ///
    /// # Errors
    /// When the volumes would be short of room by them.
    pub(super) fn find(volumes: Arc<Volumes>, bytes: u64) -> Result<Self> {
        let (before, room) = (volumes.usage()?, volumes.room_bytes()?);
        if before.with_free(room.saturating_sub(bytes)).is_short() {
            return Err(EngineError::NoSpace(format!(
                "the machine has room for {} MiB more in volumes, too little for {} MiB",
                room >> 20,
                bytes >> 20
            )));
        }
        Ok(Self { volumes, before, written: 0, looked_at: 0 })
    }

    /// To be told of what was written. Blocks.
    ///
    /// # Errors
    /// When the volumes are short of room.
    pub(super) fn wrote(&mut self, bytes: usize) -> io::Result<()> {
        self.written = self.written.saturating_add(bytes as u64);
        if self.written - self.looked_at < LOOK_BYTES {
            return Ok(());
        }
        self.looked_at = self.written;
        match self.is_short() {
            Ok(false) => Ok(()),
            Ok(true) => Err(io::Error::new(io::ErrorKind::StorageFull, "the volumes are short of room")),
            Err(error) => Err(io::Error::other(error.chain())),
        }
    }

    /// To be told of each file and directory that was made: also without content it takes room. Blocks.
    ///
    /// # Errors
    /// When the volumes are short of room.
    pub(super) fn made_entry(&mut self) -> io::Result<()> {
        self.wrote(ENTRY_BYTES_MIN as usize)
    }

    /// What is not on the disk yet, no file system tells: as long as there is room for all that was written, it need not.
    fn is_short(&mut self) -> Result<bool> {
        let left = self.before.free_bytes.saturating_sub(self.written);
        if !self.volumes.usage()?.is_short() && !self.before.with_free(left).is_short() {
            return Ok(false);
        }
        self.before = self.volumes.settle()?;
        (self.written, self.looked_at) = (0, 0);
        Ok(self.before.is_short())
    }
}

#[cfg(test)]
impl Room {
    /// What it was told since it last had all of it be on the disk.
    pub(super) fn written(&self) -> u64 {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;
    use crate::local::installation::Installation;
    use crate::local::layout::Layout;
    use crate::local::volumes::{PoolMode, StorageOptions};

    const MIB: u64 = 1 << 20;

    #[test]
    fn files_may_be_as_long_as_a_branch_has_storage_and_some_more() {
        let is_refused = |gib: u64, storage_gib: u64| require_length(gib << 30, storage_gib << 30).is_err();
        assert!(!is_refused(11, 10) && !is_refused(3, 1));
        assert!(is_refused(22, 10) && is_refused(1 << 20, 10) && is_refused(4, 1));
        assert!(require_length(u64::MAX, u64::MAX).is_ok());
    }

    #[test]
    fn what_is_written_leaves_others_room() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().expect("a directory");
        let installation = Installation::ensure(home.path()).expect("made");
        let layout = Layout::new(home.path(), "test");
        let open = |host_reserve_bytes| {
            let options = StorageOptions {
                pool: PoolMode::Auto,
                pool_initial_bytes: 300 * MIB,
                pool_step_bytes: 16 * MIB,
                host_reserve_bytes,
                history_share: 0,
                driver: None,
            };
            Volumes::open(&layout, &installation, &options).expect("a pool")
        };
        drop(open(0));
        // The host has no room for it to grow.
        let volumes = Arc::new(open(1 << 60));
        let total = volumes.usage().expect("told").total_bytes;
        let refused = Room::find(volumes.clone(), total).map(drop);
        assert!(matches!(refused, Err(EngineError::NoSpace(_))), "{refused:?}");

        let mut room = Room::find(volumes.clone(), 0).expect("a beginning");
        let mut file = File::create(layout.volumes().join("file")).expect("a file");
        let piece = vec![7; MIB as usize];
        let mut written = 0;
        let ended = loop {
            file.write_all(&piece).expect("there is room");
            written += MIB;
            if let Err(error) = room.wrote(piece.len()) {
                break error;
            }
        };
        assert_eq!(ended.kind(), io::ErrorKind::StorageFull);
        assert!(written > 100 * MIB, "{written}");
        file.sync_all().expect("there is room for all of it");
        drop((file, room));
        volumes.detach().expect("unmounted");
    }
}
