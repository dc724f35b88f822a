//! A volume as it was.
//!
//! The log is cut off where the moment is, so that an ordinary recovery ends
//! there: what would come next is not there. Nothing has to be told to the
//! server, and it runs nothing but itself. The log is walked before the server
//! sees it: recovery ends early where something is wrong, and does not say so.

use std::io;
use std::path::Path;

use coppice_core::lsn::Lsn;
use coppice_wal::{Ended, Log};

use super::Volume;
use super::pages::Files;
use super::snapshots::{FACTS, log_of, strip, wal_of};
use super::stored::{force_recovery, give_as_owned};
use crate::local::btrfs;
use crate::local::untrusted::{UntrustedDir, UntrustedPath};
use crate::{EngineError, Result};

impl Volume {
    /// Makes `staged` what the volume was at `lsn`, and tells where the last record
    /// before that ends.
    pub(super) fn fill(&self, lsn: Lsn, major: u32, staged: &Path) -> Result<Lsn> {
        let snapshots = self.snapshots.list()?;
        let facts = snapshots.iter().rev().find(|facts| facts.end().at <= lsn);
        let facts = facts.ok_or_else(|| EngineError::Other(format!("history does not go back to {lsn}")))?;
        let action = || EngineError::io(format!("going back to {lsn}"));
        btrfs::snapshot(&self.snapshots.path(facts.end().at), staged).map_err(action())?;
        std::fs::remove_file(staged.join(FACTS)).map_err(action())?;
        let data = UntrustedPath::new(staged, "data");
        let (log, wal) = (log_of(&data, major)?, wal_of(&data)?);
        let segment = log.segment();
        for number in segment.number(facts.end().at)..=segment.number(Lsn(lsn.0.saturating_sub(1))) {
            self.bring(&log, number, &wal)?;
        }
        let walked = log.walk(facts.end(), Some(lsn), &mut Files::new(log, vec![&wal])).map_err(action())?;
        let end = walked.place.at;
        if walked.ended != Ended::Limit {
            return Err(EngineError::Other(format!(
                "the write-ahead log of the volume can't be read beyond {end}: it can't be taken to {lsn}"
            )));
        }
        let last = segment.number(Lsn(end.0.saturating_sub(1)));
        strip(&wal, segment.number(facts.redo())..=last).map_err(action())?;
        let length = end.0 - segment.start(last).0;
        wal.cut_off(log.file_name(last).as_str(), length).map_err(action())?;
        force_recovery(&data, &log)?;
        Ok(end)
    }

    /// Puts a file of the log into `wal`, in place of what a snapshot has of it.
    fn bring(&self, log: &Log, number: u64, wal: &UntrustedDir) -> Result<()> {
        let name = log.file_name(number);
        let action = || EngineError::io(format!("bringing {name}"));
        let source = match self.kept.directory().file(name.as_str()).map_err(action())? {
            Some(kept) => Some(kept),
            None => wal_of(&self.data)?.file(name.as_str()).map_err(action())?,
        };
        let Some((source, _)) = source else {
            return Err(EngineError::Other(format!("{name} of the write-ahead log is not there any more")));
        };
        let put = || -> io::Result<()> {
            wal.remove(&std::ffi::CString::new(name.as_str())?)?;
            let target = wal.make_file(name.as_str())?;
            rustix::fs::ioctl_ficlone(&target, &source)?;
            give_as_owned(&target, wal)
        };
        put().map_err(action())
    }
}
