//! What volumes take of the disk, and how much of that others have, too.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use coppice_core::VolumeId;
use coppice_core::storage::VolumeBytes;
use rustix::fs::FileType;

use super::{DriverKind, Volumes};
use crate::local::taken::{ENTRIES_MAX, LEVELS_MAX, Taken};
use crate::local::untrusted::UntrustedDir;
use crate::local::{btrfs, btrfs_written, shared_extents};
use crate::{EngineError, Result};

/// For how long blocks are counted: how many there are is up to who writes them.
const PATIENCE: Duration = Duration::from_secs(10);
/// What each file takes at least, as its size has it.
const FILE_BYTES_MIN: u64 = 4096;

/// Is another one after a volume was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::local) enum Mark {
    /// By btrfs, half a minute later at most. What is shared with it changes nothing.
    Generation(u64),
    /// With the next checkpoint of its server, elsewhere; in nanoseconds of the clock.
    /// Of others, who come to share its blocks or cease to, it tells nothing.
    Checkpoint(i128),
}

impl Volumes {
    /// Names of all that is under `volumes/`.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub(in crate::local) fn ids(&self) -> Result<Vec<VolumeId>> {
        let volumes = self.layout.volumes();
        let entries = fs::read_dir(&volumes).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(EngineError::io(format!("reading {}", volumes.display())))?;
        Ok(entries.iter().map(|entry| VolumeId::from_trusted(entry.file_name().to_string_lossy())).collect())
    }

    /// Tells whether a volume is as it was; none when it can't be told.
    pub(in crate::local) fn mark(&self, volume: &VolumeId) -> Option<Mark> {
        if let Some(generation) = self.generation(volume) {
            return Some(Mark::Generation(generation));
        }
        let global = self.data_dir(volume).open().ok()??.directory("global").ok()??;
        // A server writes it last when it ends. When it was changed, nobody can set.
        let stat = global.stat(c"pg_control").ok()?;
        Some(Mark::Checkpoint(i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec)))
    }

    /// Measures a volume. Takes as long as it has files and, of those, extents that it
    /// wrote itself. Where the file system holds far more than is in the files, a part of that counts.
    ///
    /// # Errors
    /// When it is not there.
    pub fn bytes(&self, volume: &VolumeId) -> Result<VolumeBytes> {
        let data = self.data_dir(volume);
        let opened = data.require().map_err(EngineError::io(format!("opening the data of {volume}")))?;
        let total = Taken::new(data.clone(), data, vec![]).bytes();
        let shared = self.shared_bytes(volume, &opened, total).map_err(|error| {
            tracing::debug!(%volume, "what volume {volume} shares is not known: {error}");
        });
        Ok(VolumeBytes { total, shared: shared.ok().map(|shared| shared.min(total)) })
    }

    fn shared_bytes(&self, volume: &VolumeId, data: &UntrustedDir, total: u64) -> io::Result<u64> {
        let until = Instant::now() + PATIENCE;
        let path = self.layout.volume(volume);
        if btrfs::is_subvolume(&path) {
            let written = btrfs_written::since_snapshot(&path, until)?;
            return Ok(written.map_or(0, |written| total.saturating_sub(written)));
        }
        match self.driver {
            DriverKind::Copy => Ok(0),
            DriverKind::Btrfs | DriverKind::Reflink => {
                let mut entries_left = ENTRIES_MAX;
                shared_below(data, &mut entries_left, LEVELS_MAX, until)
            }
        }
    }
}

/// Bytes of the ordinary files of a directory, and below, whose blocks are shared.
fn shared_below(
    directory: &UntrustedDir,
    entries_left: &mut usize,
    levels_left: usize,
    until: Instant,
) -> io::Result<u64> {
    let mut bytes = 0_u64;
    for name in directory.each_name()? {
        let name = name?;
        *entries_left = entries_left.checked_sub(1).ok_or(io::ErrorKind::TimedOut)?;
        // Files come and go meanwhile.
        let Ok(stat) = directory.stat(&name) else { continue };
        let found = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if levels_left > 0 => match directory.directory(name.as_c_str())? {
                Some(inner) => shared_below(&inner, entries_left, levels_left - 1, until)?,
                None => 0,
            },
            FileType::RegularFile => match directory.file(name.as_c_str())? {
                // Blocks are longer than what is in them.
                Some((file, stat)) => shared_extents::in_file(&file, until)?
                    .min(u64::try_from(stat.st_size).unwrap_or_default().max(FILE_BYTES_MIN)),
                None => 0,
            },
            _ => 0,
        };
        bytes = bytes.saturating_add(found);
    }
    Ok(bytes)
}
