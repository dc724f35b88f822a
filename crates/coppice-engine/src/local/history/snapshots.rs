//! Snapshots of a volume: each a subvolume with a file that says what it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coppice_core::history::Snapshot;
use coppice_core::lsn::Lsn;
use coppice_wal::{Log, Place, Segment};
use serde::{Deserialize, Serialize};

use super::pages::Files;
use crate::local::durable::{sync_directory, write_durably};
use crate::local::untrusted::{self, UntrustedDir, UntrustedPath};
use crate::local::{btrfs, btrfs_written, control_file};
use crate::{EngineError, Result};

pub(super) const FACTS: &str = "snapshot.json";
/// Names of those that are not complete yet.
const HALF_MADE: &str = "new";
/// For how long it is counted what one holds; how many extents there are is up to who writes them.
const COUNTING: Duration = Duration::from_secs(2);

/// What is written beside a snapshot's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    taken_ms: i64,
    /// Where its recovery begins.
    redo: u64,
    /// Where its log ends.
    end: u64,
    /// Where the last record of its log begins.
    previous: Option<u64>,
    /// Where the log of the one ends that came before it when `added_bytes` was counted.
    #[serde(default)]
    since: Option<u64>,
    /// What it holds of the disk that was written since that one.
    #[serde(default)]
    added_bytes: u64,
}

impl Facts {
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot { taken_ms: self.taken_ms, lsn: Lsn(self.end) }
    }

    pub(super) fn redo(&self) -> Lsn {
        Lsn(self.redo)
    }

    pub(super) fn end(&self) -> Place {
        Place { at: Lsn(self.end), previous: self.previous.map(Lsn) }
    }

    /// Whether what it added to the one that ends there was counted.
    pub(super) fn is_counted_since(&self, before: Lsn) -> bool {
        self.since == Some(before.0)
    }
}

/// Bytes of the disk that snapshots of a volume, oldest first, hold beside what the first one does. That one has what
/// the volume had by then, and not more.
pub(super) fn added_bytes(snapshots: &[Facts]) -> u64 {
    snapshots.iter().skip(1).fold(0, |sum, facts| sum.saturating_add(facts.added_bytes))
}

/// The log of the data in a directory.
pub(super) fn log_of(data: &UntrustedPath, major: u32) -> Result<Log> {
    let found = control_file::checkpoint(data)?;
    Log::of(major, found.system, found.timeline, Segment::USUAL)
        .ok_or_else(|| EngineError::Other(format!("the log of PostgreSQL {major} is not known")))
}

/// The directory with the log of some data.
pub(super) fn wal_of(data: &UntrustedPath) -> Result<UntrustedDir> {
    let wal = data.require().and_then(|data| data.directory("pg_wal"));
    let wal = wal.map_err(EngineError::io("opening pg_wal"))?;
    wal.ok_or_else(|| EngineError::Other("there is no pg_wal".to_owned()))
}

/// The snapshots of one volume.
pub(super) struct Snapshots {
    directory: PathBuf,
}

impl Snapshots {
    pub(super) fn of(history: &Path) -> Self {
        Self { directory: history.join("snapshots") }
    }

    /// Where one is.
    pub(super) fn path(&self, end: Lsn) -> PathBuf {
        self.directory.join(format!("{:016X}", end.0))
    }

    /// All that are complete, oldest first.
    pub(super) fn list(&self) -> Result<Vec<Facts>> {
        let reading = || EngineError::io(format!("reading {}", self.directory.display()));
        let mut found = vec![];
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
            entries => entries.map_err(reading())?,
        };
        for entry in entries {
            let entry = entry.map_err(reading())?;
            if entry.file_name() == HALF_MADE {
                continue;
            }
            let facts = fs::read(entry.path().join(FACTS)).map_err(reading())?;
            let facts: Facts = serde_json::from_slice(&facts).map_err(|error| {
                EngineError::Other(format!("{} is damaged: {error}", entry.path().display()))
            })?;
            found.push(facts);
        }
        found.sort_by_key(|facts| facts.end);
        Ok(found)
    }

    /// Takes one of `volume`, whose log is walked from `from` to where it ends in
    /// the snapshot; without that, from where recovery begins. `before` is the one that comes before it.
    pub(super) fn take(
        &self,
        volume: &Path,
        before: Option<&Facts>,
        from: Option<Place>,
        log: &Log,
        now_ms: i64,
    ) -> Result<Facts> {
        let action = || EngineError::io(format!("taking a snapshot of {}", volume.display()));
        fs::create_dir_all(&self.directory).map_err(action())?;
        let half_made = self.directory.join(HALF_MADE);
        untrusted::delete_tree(&half_made).map_err(action())?;
        btrfs::snapshot(volume, &half_made).map_err(action())?;
        let (redo, end) = trim(&UntrustedPath::new(&half_made, "data"), from, log)?;
        let previous = end.previous.map(|lsn| lsn.0);
        let (since, added_bytes) = (before.map(|before| before.end), self.added_bytes(&half_made, before));
        let facts = Facts { taken_ms: now_ms, redo: redo.0, end: end.at.0, previous, since, added_bytes };
        write_facts(&half_made, &facts)?;
        let path = self.path(end.at);
        if path.symlink_metadata().is_ok() {
            // Nothing was written since it was taken.
            untrusted::delete_tree(&half_made).map_err(action())?;
            return Ok(facts);
        }
        fs::rename(&half_made, &path).map_err(action())?;
        sync_directory(&self.directory)?;
        Ok(facts)
    }

    /// What the snapshot in a directory holds that was written since another one, as far as that is told.
    fn added_bytes(&self, snapshot: &Path, before: Option<&Facts>) -> u64 {
        let Some(before) = before else { return 0 };
        let before = self.path(before.end().at);
        let counted = btrfs_written::held_since(snapshot, &before, Instant::now() + COUNTING);
        counted.unwrap_or_else(|error| {
            tracing::debug!("what {} added is not known: {error}", snapshot.display());
            0
        })
    }

    /// Counts anew what one holds, after another one came to be before it.
    pub(super) fn recount(&self, facts: &Facts, before: &Facts) -> Result<Facts> {
        let path = self.path(facts.end().at);
        let added_bytes = self.added_bytes(&path, Some(before));
        let facts = Facts { since: Some(before.end), added_bytes, ..*facts };
        write_facts(&path, &facts).map(|()| facts)
    }

    /// Removes one.
    pub(super) fn remove(&self, end: Lsn) -> Result<()> {
        let path = self.path(end);
        untrusted::delete_tree(&path).map_err(EngineError::io(format!("deleting {}", path.display())))
    }
}

fn write_facts(snapshot: &Path, facts: &Facts) -> Result<()> {
    let text = serde_json::to_vec(facts).map_err(|error| EngineError::Other(error.to_string()))?;
    write_durably(&snapshot.join(FACTS), &text, 0o600)
}

/// Leaves of the log of some data what its recovery needs, and tells where it ends.
pub(in crate::local) fn trim_wal(data: &UntrustedPath, major: u32) -> Result<Lsn> {
    trim(data, None, &log_of(data, major)?).map(|(_, end)| end.at)
}

/// As [`trim_wal`]; walks from a place, or from where recovery begins. Tells where
/// it begins and where the log ends.
fn trim(data: &UntrustedPath, from: Option<Place>, log: &Log) -> Result<(Lsn, Place)> {
    let action = || EngineError::io("reading the log of a copy");
    let redo = control_file::checkpoint(data)?.redo;
    let wal = wal_of(data)?;
    let from = from.unwrap_or(Place { at: redo, previous: None });
    let end = log.walk(from, None, &mut Files::new(*log, vec![&wal])).map_err(action())?.place;
    strip(&wal, log.segment().number(redo)..=log.segment().number(end.at)).map_err(action())?;
    Ok((redo, end))
}

/// Removes files of a log that recovery does not need: what was written to them
/// before, or is going to be, would be held for as long as the snapshot.
pub(super) fn strip(wal: &UntrustedDir, needed: std::ops::RangeInclusive<u64>) -> std::io::Result<()> {
    for name in wal.each_name()? {
        let name = name?;
        let file = Segment::USUAL.parse(name.to_bytes());
        if file.is_some_and(|(_, number)| !needed.contains(&number)) {
            wal.unlink(&name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use super::super::disk::Disk;
    use super::super::written::{SYSTEM, Written};
    use super::*;

    const PIECE: u64 = 8 << 20;

    /// A volume whose server writes a little to its log and much to a file.
    struct Volume {
        path: PathBuf,
        snapshots: Snapshots,
        log: Written,
        place: Place,
    }

    impl Volume {
        fn make(disk: &Path) -> Self {
            let (path, at) = (disk.join("volume"), Segment::USUAL.bytes);
            btrfs::create_subvolume(&path).expect("made");
            for directory in ["data/pg_wal", "data/global"] {
                fs::create_dir_all(path.join(directory)).expect("a directory");
            }
            let mut control = [0; 8192];
            control[..8].copy_from_slice(&SYSTEM.to_le_bytes());
            control[40..48].copy_from_slice(&at.to_le_bytes());
            control[48] = 1;
            fs::write(path.join("data/global/pg_control"), control).expect("a file");
            let place = Place { at: Lsn(at), previous: None };
            Self { path, snapshots: Snapshots::of(disk), log: Written::from(at), place }
        }

        /// Writes a piece of the file, and takes a snapshot after it.
        fn write(&mut self, piece: u64, before: Option<&Facts>) -> Facts {
            let mut options = File::options();
            let file = options.create(true).truncate(false).write(true).open(self.path.join("data/file"));
            let written = file.and_then(|file| file.write_all_at(&[7; PIECE as usize], piece * PIECE));
            written.expect("written");
            let end = self.log.add(&[1; 100]);
            self.log.write_before(&self.path.join("data/pg_wal"), end.0, 60);
            let log = Log::of(18, SYSTEM, 1, Segment::USUAL).expect("a release");
            let taken = self.snapshots.take(&self.path, before, Some(self.place), &log, 1).expect("taken");
            self.place = taken.end();
            taken
        }
    }

    #[test]
    fn a_snapshot_tells_what_it_has_that_the_one_before_it_has_not() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let disk = Disk::make();
        let mut volume = Volume::make(&disk.path());
        // Little was written to the log for all of these.
        let about = |bytes: u64, pieces: u64| bytes.abs_diff(pieces * PIECE) < PIECE / 8;
        let first = volume.write(0, None);
        assert_eq!(first.added_bytes, 0, "the volume may have all of it");
        let second = volume.write(0, Some(&first));
        assert!(about(second.added_bytes, 1), "{second:?}");
        let third = volume.write(1, Some(&second));
        assert!(about(third.added_bytes, 1), "{third:?}");
        assert!(third.is_counted_since(second.end().at) && !third.is_counted_since(first.end().at));
        let list = || volume.snapshots.list().expect("read");
        assert_eq!(list(), [first, second, third]);
        assert!(about(added_bytes(&list()), 2));

        // What only the second one had added is in the third one.
        volume.snapshots.remove(second.end().at).expect("removed");
        let third = volume.snapshots.recount(&third, &first).expect("counted");
        assert!(about(third.added_bytes, 2) && third.is_counted_since(first.end().at), "{third:?}");
        assert_eq!(list(), [first, third]);
    }
}
