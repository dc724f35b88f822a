//! Pages of a log, read from its files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use coppice_core::lsn::Lsn;
use coppice_wal::{Log, PAGE, Page, Pages};

use crate::local::untrusted::UntrustedDir;

/// Bytes read at a time.
const CHUNK: usize = 16 * PAGE;

/// Files of a log in the first of these directories that has them. What was
/// read once is not read again: it is made anew for each look.
pub(super) struct Files<'a> {
    log: Log,
    directories: Vec<&'a UntrustedDir>,
    /// The file that was read last, if there is one of this number.
    open: Option<(u64, Option<File>)>,
    chunk: Box<[Page]>,
    /// Where the chunk begins, and how many of its pages were read.
    read: (Lsn, usize),
}

impl<'a> Files<'a> {
    pub(super) fn new(log: Log, directories: Vec<&'a UntrustedDir>) -> Self {
        let chunk = vec![[0; PAGE]; CHUNK / PAGE].into_boxed_slice();
        Self { log, directories, open: None, chunk, read: (Lsn(0), 0) }
    }

    /// The file that a page was last asked of.
    pub(super) fn number(&self) -> Option<u64> {
        self.open.as_ref().map(|(number, _)| *number)
    }

    /// Behind the last page that was read.
    pub(super) fn end(&self) -> Lsn {
        let (start, count) = self.read;
        Lsn(start.0.saturating_add((count * PAGE) as u64))
    }

    fn open(&mut self, number: u64) -> io::Result<Option<&File>> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            let name = self.log.file_name(number);
            let mut found = None;
            for directory in &self.directories {
                found = directory.file(name.as_str())?.map(|(file, _)| file);
                if found.is_some() {
                    break;
                }
            }
            self.open = Some((number, found));
        }
        Ok(self.open.as_ref().and_then(|(_, file)| file.as_ref()))
    }
}

impl Pages for Files<'_> {
    fn page(&mut self, place: Lsn) -> io::Result<Option<&Page>> {
        let (start, count) = self.read;
        let in_chunk = |start: Lsn, count: usize| {
            let index = usize::try_from(place.0.checked_sub(start.0)? / PAGE as u64).ok()?;
            (index < count).then_some(index)
        };
        let index = match in_chunk(start, count) {
            Some(index) => index,
            None => {
                let segment = self.log.segment();
                let number = segment.number(place);
                let offset = place.0 - segment.start(number).0;
                self.read = (place, 0);
                if self.open(number)?.is_none() {
                    return Ok(None);
                }
                // The server may cut the file off, or make it longer than it is.
                let pages = ((segment.bytes - offset) as usize / PAGE).min(self.chunk.len());
                let Some((_, Some(file))) = &self.open else { return Ok(None) };
                let mut count = 0;
                for page in self.chunk[..pages].iter_mut() {
                    match file.read_exact_at(page, offset + (count * PAGE) as u64) {
                        Ok(()) => count += 1,
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                        Err(error) => return Err(error),
                    }
                }
                self.read = (place, count);
                if count == 0 {
                    return Ok(None);
                }
                0
            }
        };
        Ok(self.chunk.get(index))
    }
}
