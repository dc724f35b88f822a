//! The marks of a volume, one after the other in a file of ours.
//!
//! They are not flushed: what a machine that fails takes with it of them, it
//! takes of the log they tell about, too.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use coppice_core::history::Mark;
use coppice_core::lsn::Lsn;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::{EngineError, Result};

/// Bytes of one: two times, two places.
const LENGTH: usize = 32;

/// A mark with what it takes to walk on from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) mark: Mark,
    /// Where the last record begins; none for a first mark.
    pub(super) previous: Option<Lsn>,
}

impl Entry {
    fn encode(&self) -> [u8; LENGTH] {
        let previous = self.previous.filter(|_| !self.mark.is_first).unwrap_or_default();
        let parts = [self.mark.at_ms as u64, self.mark.since_ms as u64, self.mark.lsn.0, previous.0];
        let mut bytes = [0; LENGTH];
        for (place, part) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(parts) {
            *place = part.to_le_bytes();
        }
        bytes
    }

    fn decode(bytes: &[u8; LENGTH]) -> Self {
        let (parts, _) = bytes.as_chunks::<8>();
        let part = |index: usize| parts.get(index).map_or(0, |part| u64::from_le_bytes(*part));
        let previous = Some(Lsn(part(3))).filter(|lsn| *lsn != Lsn(0));
        let mark = Mark {
            at_ms: part(0) as i64,
            since_ms: part(1) as i64,
            lsn: Lsn(part(2)),
            is_first: previous.is_none(),
        };
        Self { mark, previous }
    }
}

/// The file, held: no other process writes it.
pub(super) struct Marks {
    file: File,
    length: u64,
}

impl Marks {
    /// Opens the file, and makes it unless it is there; none while another
    /// process holds it.
    pub(super) fn hold(path: &Path) -> Result<Option<Self>> {
        let action = || format!("opening {}", path.display());
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let file = options.open(path).map_err(EngineError::io(action()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            held => held.map_err(EngineError::io(action()))?,
        }
        let length = file.metadata().map_err(EngineError::io(action()))?.len();
        Ok(Some(Self { file, length: length - length % LENGTH as u64 }))
    }

    /// Bytes of whole marks.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The oldest one.
    pub(super) fn first(&self) -> Result<Option<Entry>> {
        self.at(0)
    }

    /// The newest one.
    pub(super) fn last(&self) -> Result<Option<Entry>> {
        self.length.checked_sub(LENGTH as u64).map_or(Ok(None), |place| self.at(place))
    }

    fn at(&self, place: u64) -> Result<Option<Entry>> {
        if place >= self.length {
            return Ok(None);
        }
        let mut bytes = [0; LENGTH];
        self.file.read_exact_at(&mut bytes, place).map_err(EngineError::io("reading a mark"))?;
        Ok(Some(Entry::decode(&bytes)))
    }

    /// All of them, as far as they make sense.
    pub(super) fn read(&self) -> Result<Vec<Entry>> {
        let mut bytes = vec![0; usize::try_from(self.length).unwrap_or_default()];
        self.file.read_exact_at(&mut bytes, 0).map_err(EngineError::io("reading marks"))?;
        let mut entries: Vec<Entry> = vec![];
        for entry in bytes.as_chunks::<LENGTH>().0.iter().map(Entry::decode) {
            let is_later =
                |before: &Entry| entry.mark.lsn > before.mark.lsn && entry.mark.at_ms >= before.mark.at_ms;
            if !entries.last().map_or(entry.mark.is_first, is_later) {
                break;
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Adds one.
    pub(super) fn add(&mut self, entry: &Entry) -> Result<()> {
        let write = self.file.write_all_at(&entry.encode(), self.length);
        write.map_err(EngineError::io("writing a mark"))?;
        self.length += LENGTH as u64;
        Ok(())
    }

    /// Forgets those that are not among these. A crash in between costs what was
    /// not written yet: what is read is always a part of what was.
    pub(super) fn replace(&mut self, entries: &[Entry]) -> Result<()> {
        let bytes: Vec<u8> = entries.iter().flat_map(Entry::encode).collect();
        let write = || {
            self.file.write_all_at(&bytes, 0)?;
            self.file.set_len(bytes.len() as u64)?;
            self.file.sync_all()
        };
        write().map_err(EngineError::io("writing marks"))?;
        self.length = bytes.len() as u64;
        Ok(())
    }
}

impl Drop for Marks {
    /// Lets go of the file. That it is closed is not enough: a child that is forked
    /// at this moment has it, too, until it runs its program.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at_ms: i64, lsn: u64, previous: Option<u64>) -> Entry {
        let mark = Mark { at_ms, since_ms: at_ms - 1, lsn: Lsn(lsn), is_first: previous.is_none() };
        Entry { mark, previous: previous.map(Lsn) }
    }

    #[test]
    fn marks_are_read_as_they_were_written_and_half_a_one_does_not_count() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("marks");
        let written = [entry(1000, 100, None), entry(1000, 200, Some(150)), entry(3000, 300, Some(250))];
        let mut marks = Marks::hold(&path).expect("opened").expect("free");
        for entry in &written {
            marks.add(entry).expect("added");
        }
        assert!(Marks::hold(&path).expect("opened").is_none(), "somebody holds it");
        drop(marks);
        let length = std::fs::metadata(&path).expect("there").len();
        File::options()
            .append(true)
            .open(&path)
            .and_then(|file| file.write_all_at(b"torn", length))
            .expect("torn");
        let mut marks = Marks::hold(&path).expect("opened").expect("free again");
        let ends = (marks.first().expect("read"), marks.last().expect("read"));
        assert_eq!(ends, (written.first().copied(), written.last().copied()));
        assert_eq!((marks.length(), marks.read().expect("read")), (length, written.to_vec()));
        marks.add(&entry(2000, 400, Some(350))).expect("added");
        assert_eq!(marks.read().expect("read"), written, "time does not go back");
        marks.replace(&written[..1]).expect("replaced");
        assert_eq!(marks.read().expect("read"), written[..1]);
    }
}
