//! Finished files of a log, each a clone that shares its blocks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use coppice_core::lsn::Lsn;
use coppice_wal::{Log, Segment};

use crate::local::untrusted::{UntrustedDir, UntrustedPath};
use crate::{EngineError, Result};

const HALF_MADE: &str = "new";

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
        let target = File::create(&half_made).map_err(action())?;
        rustix::fs::ioctl_ficlone(&target, &source).map_err(|error| action()(error.into()))?;
        // The server may have made it longer since.
        target.set_len(log.segment().bytes).map_err(action())?;
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
