//! The log on its way into the store, and out of it.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use coppice_core::lsn::Lsn;
use coppice_wal::{Log, Place};
use rustix::fs::{Gid, Uid, fchown, fstat};

use super::pages::Files;
use super::snapshots::{log_of, strip, wal_of};
use super::{Known, Volume};
use crate::local::control_file;
use crate::local::untrusted::{UntrustedDir, UntrustedPath};
use crate::{EngineError, Result};

impl Volume {
    /// The log from a place to where it was seen to end.
    pub(super) fn read_log(&self, known: &Known, from: Lsn, bytes_max: u64) -> Result<Option<Vec<u8>>> {
        let (segment, end) = (known.log.segment(), known.place.at);
        let Some(length) = end.0.checked_sub(from.0).map(|length| length.min(bytes_max)) else {
            return Ok(None);
        };
        let live = wal_of(&self.data)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        let mut done = 0;
        while done < bytes.len() {
            let at = Lsn(from.0 + done as u64);
            let name = known.log.file_name(segment.number(at));
            let reading = || EngineError::io(format!("reading {name}"));
            let offset = at.0 - segment.start(segment.number(at)).0;
            let count = (bytes.len() - done).min((segment.bytes - offset) as usize);
            let kept = self.kept.directory().file(name.as_str()).map_err(reading())?;
            let found = match kept {
                Some(kept) => Some(kept),
                None => live.file(name.as_str()).map_err(reading())?,
            };
            let Some((file, _)) = found else { return Ok(None) };
            match file.read_exact_at(&mut bytes[done..done + count], offset) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                read => read.map_err(reading())?,
            }
            done += count;
        }
        Ok(Some(bytes))
    }
}

/// Puts pieces of a log behind the one of some data, which ends at `end`, and
/// makes sure that it can be read as far as they go; then leaves out what was
/// committed after a time, in milliseconds since the Unix epoch, if one is said.
/// Nobody else is in `data`.
pub(in crate::local) fn append_log(
    data: &UntrustedPath,
    major: u32,
    end: Lsn,
    until_ms: Option<i64>,
    pieces: &mut dyn Iterator<Item = Result<(Lsn, Vec<u8>)>>,
) -> Result<Lsn> {
    let (log, wal) = (log_of(data, major)?, wal_of(data)?);
    let mut reached = end;
    for piece in pieces {
        let (start, bytes) = piece?;
        if start > reached {
            return Err(EngineError::Damaged(format!(
                "the log in the store has a gap from {reached} to {start}"
            )));
        }
        let last = reached;
        reached = Lsn(start.0 + bytes.len() as u64);
        put(&log, &wal, start, &bytes)
            .and_then(|()| cut(&log, &wal, reached, last))
            .map_err(EngineError::io(format!("writing the log from {start} to {reached}")))?;
    }
    let from = Place { at: end, previous: None };
    let walked = log.walk(from, None, &mut Files::new(log, vec![&wal]));
    let found = walked.map_err(EngineError::io("reading the log from the store"))?.place.at;
    if found < reached {
        return Err(EngineError::Damaged(format!(
            "the log in the store goes to {reached} and can be read to {found} only"
        )));
    }
    if let Some(until_ms) = until_ms {
        leave_out(&log, &wal, from, until_ms).map_err(EngineError::io("cutting the log from the store"))?;
    }
    force_recovery(data, &log).map(|()| found)
}

/// Leaves nothing of a log from the first commit after a time on.
fn leave_out(log: &Log, wal: &UntrustedDir, from: Place, until_ms: i64) -> io::Result<()> {
    let (walked, segment) =
        (log.walk_to_time(from, until_ms, &mut Files::new(*log, vec![wal]))?, log.segment());
    let end = walked.place.at;
    let last = segment.number(Lsn(end.0.saturating_sub(1)));
    strip(wal, 0..=last)?;
    wal.cut_off(log.file_name(last).as_str(), end.0 - segment.start(last).0)
}

/// Has a server read the log of some data also if it was stopped cleanly before
/// that went on: it would take the log for ended, and write over it. What a backup
/// is told by tells it from where; that there is no method in it says that no end
/// of a backup has to come.
pub(super) fn force_recovery(data: &UntrustedPath, log: &Log) -> Result<()> {
    let found = control_file::checkpoint(data)?;
    if !found.is_clean {
        return Ok(());
    }
    let file = log.file_name(log.segment().number(found.redo));
    let label =
        format!("START WAL LOCATION: {} (file {file})\nCHECKPOINT LOCATION: {}\n", found.redo, found.at);
    let write = || -> io::Result<()> {
        let data = data.require()?;
        data.unlink(c"backup_label")?;
        let mut file = data.make_file(c"backup_label")?;
        file.write_all(label.as_bytes())?;
        give_as_owned(&file, &data)
    };
    write().map_err(EngineError::io("having the log read"))
}

/// Gives a file to whom the directory belongs that it is in.
pub(super) fn give_as_owned(file: &File, directory: &UntrustedDir) -> io::Result<()> {
    let owner = fstat(directory)?;
    let (account, group) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
    Ok(fchown(file, Some(account), Some(group))?)
}

fn put(log: &Log, wal: &UntrustedDir, start: Lsn, bytes: &[u8]) -> io::Result<()> {
    let segment = log.segment();
    let mut done = 0;
    while done < bytes.len() {
        let at = Lsn(start.0 + done as u64);
        let number = segment.number(at);
        let offset = at.0 - segment.start(number).0;
        let count = (bytes.len() - done).min((segment.bytes - offset) as usize);
        file(wal, &log.file_name(number), segment.bytes)?.write_all_at(&bytes[done..done + count], offset)?;
        done += count;
    }
    Ok(())
}

fn file(wal: &UntrustedDir, name: &str, length: u64) -> io::Result<File> {
    if let Some(found) = wal.file_for_writing(name)? {
        return Ok(found);
    }
    let made = wal.make_file(name)?;
    made.set_len(length)?;
    Ok(made)
}

/// Leaves nothing of what an earlier piece had between `end` and `last`.
fn cut(log: &Log, wal: &UntrustedDir, end: Lsn, last: Lsn) -> io::Result<()> {
    let segment = log.segment();
    if last <= end {
        return Ok(());
    }
    let number = segment.number(end);
    wal.cut_off(log.file_name(number).as_str(), end.0 - segment.start(number).0)?;
    for later in number + 1..=segment.number(last) {
        wal.unlink(&CString::new(log.file_name(later))?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use coppice_wal::Segment;

    use super::*;

    /// As src/include/catalog/pg_control.h has it.
    fn control(state: u32, checkpoint: u64) -> Vec<u8> {
        let mut bytes = vec![0; 8192];
        bytes[16..20].copy_from_slice(&state.to_le_bytes());
        bytes[32..40].copy_from_slice(&checkpoint.to_le_bytes());
        bytes[40..48].copy_from_slice(&checkpoint.to_le_bytes());
        bytes
    }

    #[test]
    fn data_of_a_server_that_was_stopped_cleanly_says_where_its_log_begins() {
        let home = tempfile::tempdir().expect("a directory");
        let data = UntrustedPath::new(home.path(), "data");
        let file = |name: &str| home.path().join("data").join(name);
        fs::create_dir_all(file("global")).expect("directories");
        let log = Log::of(18, 7, 1, Segment::USUAL).expect("a log");
        let told = |state| {
            fs::write(file("global/pg_control"), control(state, 0x5_0300_0028)).expect("a file");
            force_recovery(&data, &log).expect("done");
            fs::read_to_string(file("backup_label")).ok()
        };
        const IN_PRODUCTION: u32 = 6;
        const SHUT_DOWN: u32 = 1;
        assert_eq!(told(IN_PRODUCTION), None);
        let label =
            "START WAL LOCATION: 5/3000028 (file 000000010000000500000003)\nCHECKPOINT LOCATION: 5/3000028\n";
        assert_eq!(told(SHUT_DOWN).as_deref(), Some(label));
    }

    #[test]
    fn a_later_piece_says_where_the_log_ends() {
        let home = tempfile::tempdir().expect("a directory");
        let path = UntrustedPath::new(home.path(), "pg_wal");
        let names = || {
            let entries = fs::read_dir(home.path().join("pg_wal")).expect("a directory");
            let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
            names.sort();
            names
        };
        fs::create_dir(home.path().join("pg_wal")).expect("a directory");
        let (wal, log) = (path.require().expect("opened"), Log::of(18, 7, 1, Segment::USUAL).expect("a log"));
        let bytes = Segment::USUAL.bytes;
        let start = Lsn(bytes - 2);
        put(&log, &wal, start, &[1; 6]).expect("written");
        assert_eq!(names(), ["000000010000000000000000", "000000010000000000000001"]);
        let read = |name: &str| fs::read(home.path().join("pg_wal").join(name)).expect("a file");
        assert_eq!(read("000000010000000000000000")[bytes as usize - 3..], [0, 1, 1]);
        assert_eq!(read("000000010000000000000001")[..5], [1, 1, 1, 1, 0]);
        put(&log, &wal, start, &[2]).expect("written");
        cut(&log, &wal, Lsn(start.0 + 1), Lsn(start.0 + 6)).expect("cut");
        assert_eq!(names(), ["000000010000000000000000"]);
        assert_eq!(read("000000010000000000000000")[bytes as usize - 3..], [0, 2, 0]);
    }
}
