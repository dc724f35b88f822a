//! Finished files of a log, each a clone that shares its blocks unless those hold much more of the disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coppice_core::lsn::Lsn;
use coppice_wal::{Log, Segment};

use crate::local::btrfs_written;
use crate::local::untrusted::{UntrustedDir, UntrustedPath};
use crate::{EngineError, Result};

const HALF_MADE: &str = "new";
/// How much of the disk a clone may hold, in lengths of it. What a server writes page by page, the last one again each
/// time, is in extents of twice what is left of them, and the rest may be in one that was as long as the file; but a block
/// of any other extent of 128 MiB may be put into a file of the log.
const LENGTHS_HELD_MAX: u64 = 3;
/// For how long it is counted; a file has 4096 extents at most.
const COUNTING: Duration = Duration::from_secs(2);
/// What each counts at least: it is walked, cloned and looked at, however little of the disk it holds.
const COUNTED_MIN: u64 = 1 << 20;

/// Where they are.
pub(super) struct Kept {
    path: PathBuf,
    directory: UntrustedDir,
}

impl Kept {
    pub(super) fn of(history: &Path) -> Result<Self> {
        let path = history.join("wal");
        let action = || EngineError::io(format!("making {}", path.display()));
        fs::create_dir_all(&path).map_err(action())?;
        let directory = UntrustedPath::new(history, "wal").require().map_err(action())?;
        Ok(Self { path, directory })
    }

    pub(super) fn directory(&self) -> &UntrustedDir {
        &self.directory
    }

    /// Numbers of the files there are, in order.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        let reading = || EngineError::io(format!("reading {}", self.path.display()));
        let mut numbers = vec![];
        for name in self.directory.each_name().map_err(reading())? {
            let name = name.map_err(reading())?;
            numbers.extend(Segment::USUAL.parse(name.to_bytes()).map(|(_, number)| number));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Counts bytes that the files hold of the disk, each no more than its length. What is in `counted`, by the numbers
    /// of files, is not counted again; then all that there are are in it.
    pub(super) fn count(&self, counted: &mut BTreeMap<u64, u64>) -> Result<u64> {
        let reading = || EngineError::io(format!("reading {}", self.path.display()));
        let before = std::mem::take(counted);
        for name in self.directory.each_name().map_err(reading())? {
            let name = name.map_err(reading())?;
            let Some((_, number)) = Segment::USUAL.parse(name.to_bytes()) else { continue };
            let bytes = match before.get(&number) {
                Some(bytes) => *bytes,
                None => counted_bytes(
                    self.directory.file(name.as_c_str()).map_err(reading())?.map(|(file, _)| file),
                ),
            };
            counted.insert(number, bytes);
        }
        Ok(counted.values().sum())
    }

    /// Keeps a file of the server's directory, durably; false when it is not there,
    /// or is no file of a log.
    pub(super) fn add(&self, log: &Log, number: u64, live: &UntrustedDir) -> Result<bool> {
        let name = log.file_name(number);
        let action = || EngineError::io(format!("keeping {name}"));
        let Some((source, stat)) = live.file(name.as_str()).map_err(action())? else { return Ok(false) };
        // A longer one would hold more than what is counted.
        if u64::try_from(stat.st_size) != Ok(log.segment().bytes) {
            return Ok(false);
        }
        let half_made = self.path.join(HALF_MADE);
        let mut options = File::options();
        let target = options.read(true).write(true).create(true).truncate(true).open(&half_made);
        let target = target.map_err(action())?;
        rustix::fs::ioctl_ficlone(&target, &source).map_err(|error| action()(error.into()))?;
        // The server may have made it longer since.
        target.set_len(log.segment().bytes).map_err(action())?;
        if holds_much(&target, log.segment().bytes) {
            write_anew(&target).map_err(action())?;
        }
        target.sync_all().map_err(action())?;
        fs::rename(&half_made, self.path.join(&name)).map_err(action())?;
        Ok(true)
    }

    /// Removes files that lie before a place.
    pub(super) fn remove_before(&self, place: Lsn) -> Result<()> {
        let action = || EngineError::io(format!("removing what is old in {}", self.path.display()));
        let first = Segment::USUAL.number(place);
        for name in self.directory.each_name().map_err(action())? {
            let name = name.map_err(action())?;
            if Segment::USUAL.parse(name.to_bytes()).is_some_and(|(_, number)| number < first) {
                self.directory.unlink(&name).map_err(action())?;
            }
        }
        Ok(())
    }
}

/// What a file counts; where that is not told, its length.
fn counted_bytes(file: Option<File>) -> u64 {
    let length = Segment::USUAL.bytes;
    let held = file.and_then(|file| btrfs_written::held_by_file(&file, Instant::now() + COUNTING).ok());
    held.map_or(length, |held| held.clamp(COUNTED_MIN, length))
}

/// Whether a file holds much more of the disk than its length.
fn holds_much(file: &File, length: u64) -> bool {
    match btrfs_written::held_by_file(file, Instant::now() + COUNTING) {
        Ok(held) => held > LENGTHS_HELD_MAX * length,
        Err(error) => {
            tracing::debug!("what a file of a log holds is not known: {error}");
            false
        }
    }
}

/// Puts what is in a file into blocks of its own.
fn write_anew(file: &File) -> io::Result<()> {
    let mut content = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or_default()];
    file.read_exact_at(&mut content, 0)?;
    file.set_len(0)?;
    file.write_all_at(&content, 0)
}

#[cfg(test)]
mod tests {
    use super::super::disk::Disk;
    use super::super::written::SYSTEM;
    use super::*;
    use crate::local::shared_extents;

    const FILE: u64 = Segment::USUAL.bytes;
    const BLOCK: usize = 4096;
    const PIECE: u64 = 1 << 20;

    #[test]
    fn a_kept_file_holds_little_more_than_its_length_whatever_its_blocks_are_of() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let disk = Disk::make();
        let (wal, piece) = (disk.path().join("pg_wal"), vec![7; PIECE as usize]);
        fs::create_dir(&wal).expect("a directory");
        let make = |path: &Path, pieces: u64| {
            let file = File::create_new(path).expect("a file");
            for number in 0..pieces {
                file.write_all_at(&piece, number * PIECE).expect("written");
            }
            file.sync_all().expect("written");
            file
        };
        let (usual, odd) = (Segment::USUAL.name(1, 1), Segment::USUAL.name(1, 2));
        make(&wal.join(&usual), FILE / PIECE);
        let file = make(&wal.join(&odd), FILE / PIECE);
        // A block of each of its pieces is of another file, which is gone then.
        let large = disk.path().join("large");
        make(&large, 4 * FILE / PIECE);
        let from = File::open(&large).expect("it is there");
        for number in 0..4 * FILE / PIECE {
            let (mut there, mut here) = (number * PIECE, number * PIECE / 4);
            let copied = rustix::fs::copy_file_range(&from, Some(&mut there), &file, Some(&mut here), BLOCK);
            assert_eq!(copied, Ok(BLOCK));
        }
        file.sync_all().expect("written");
        fs::remove_file(large).expect("removed");

        let live = UntrustedPath::new(&disk.path(), "pg_wal").require().expect("opened");
        let log = Log::of(18, SYSTEM, 1, Segment::USUAL).expect("a release");
        let kept = Kept::of(&disk.path()).expect("made");
        let until = Instant::now() + Duration::from_secs(60);
        for (number, name, shared) in [(1, usual, FILE), (2, odd, 0)] {
            assert!(kept.add(&log, number, &live).expect("kept"));
            let path = disk.path().join("wal").join(name);
            assert!(fs::read(&path).expect("read").iter().all(|byte| *byte == 7), "{number}");
            let file = File::open(path).expect("it is there");
            assert_eq!(shared_extents::in_file(&file, until).expect("counted"), shared, "{number}");
            assert_eq!(btrfs_written::held_by_file(&file, until).expect("counted"), FILE, "{number}");
        }

        // One with little but holes counts little.
        let sparse = File::create_new(wal.join(Segment::USUAL.name(1, 3))).expect("a file");
        sparse.set_len(FILE).expect("a length");
        sparse.write_all_at(&[7; BLOCK], 0).and_then(|()| sparse.sync_all()).expect("written");
        assert!(kept.add(&log, 3, &live).expect("kept"));
        let mut counted = BTreeMap::new();
        for _ in 0..2 {
            assert_eq!(kept.count(&mut counted).expect("counted"), 2 * FILE + COUNTED_MIN);
            assert_eq!(counted.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
        }
        kept.remove_before(Lsn(2 * FILE)).expect("removed");
        assert_eq!(kept.count(&mut counted).expect("counted"), FILE + COUNTED_MIN);
    }
}
