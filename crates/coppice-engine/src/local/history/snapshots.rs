//! Snapshots of a volume: each a subvolume with a file that says what it is.

use std::fs;
use std::path::{Path, PathBuf};

use coppice_core::history::Snapshot;
use coppice_core::lsn::Lsn;
use coppice_wal::{Log, Place, Segment};
use serde::{Deserialize, Serialize};

use super::pages::Files;
use crate::local::durable::{sync_directory, write_durably};
use crate::local::untrusted::{self, UntrustedDir, UntrustedPath};
use crate::local::{btrfs, control_file};
use crate::{EngineError, Result};

pub(super) const FACTS: &str = "snapshot.json";
/// Names of those that are not complete yet.
const HALF_MADE: &str = "new";

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
    /// the snapshot; without that, from where recovery begins.
    pub(super) fn take(&self, volume: &Path, from: Option<Place>, log: &Log, now_ms: i64) -> Result<Facts> {
        let action = || EngineError::io(format!("taking a snapshot of {}", volume.display()));
        fs::create_dir_all(&self.directory).map_err(action())?;
        let half_made = self.directory.join(HALF_MADE);
        untrusted::delete_tree(&half_made).map_err(action())?;
        btrfs::snapshot(volume, &half_made).map_err(action())?;
        let (redo, end) = trim(&UntrustedPath::new(&half_made, "data"), from, log)?;
        let previous = end.previous.map(|lsn| lsn.0);
        let facts = Facts { taken_ms: now_ms, redo: redo.0, end: end.at.0, previous };
        let text = serde_json::to_vec(&facts).map_err(|error| EngineError::Other(error.to_string()))?;
        write_durably(&half_made.join(FACTS), &text, 0o600)?;
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

    /// Removes one.
    pub(super) fn remove(&self, end: Lsn) -> Result<()> {
        let path = self.path(end);
        untrusted::delete_tree(&path).map_err(EngineError::io(format!("deleting {}", path.display())))
    }
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
