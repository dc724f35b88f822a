//! Headers of records (src/include/access/xlogrecord.h).

use coppice_core::lsn::Lsn;

use crate::checksum::Checksum;
use crate::page::{u32_at, u64_at};

/// Bytes of a record's header; the checksum is the last four.
pub(crate) const HEADER: usize = 24;
const CHECKSUM_AT: usize = 20;
/// Records begin at multiples of this.
const ALIGNMENT: u64 = 8;
/// No release writes longer ones (`XLogRecordMaxSize`).
const LENGTH_MAX: u32 = 1020 << 20;
/// Manager 0 writes records about the log itself; of those this one says that
/// the rest of the file is not used.
const LOG_MANAGER: u8 = 0;
const SWITCH: u8 = 0x40;

/// The next place at which a record can begin.
pub(crate) fn aligned(place: u64) -> u64 {
    place.saturating_add(ALIGNMENT - 1) & !(ALIGNMENT - 1)
}

/// A record while its bytes come, page by page.
#[derive(Debug)]
pub(crate) struct Reading {
    header: [u8; HEADER],
    read: u32,
    checksum: Checksum,
}

impl Reading {
    pub(crate) fn new() -> Self {
        Self { header: [0; HEADER], read: 0, checksum: Checksum::new() }
    }

    /// Takes the next bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let begun = (self.read as usize).min(HEADER);
        let (head, body) = bytes.split_at(bytes.len().min(HEADER - begun));
        self.header[begun..begun + head.len()].copy_from_slice(head);
        self.checksum.add(body);
        self.read += bytes.len() as u32;
    }

    /// Bytes still to come of a record of this length.
    pub(crate) fn left(&self, length: u32) -> u32 {
        length.saturating_sub(self.read)
    }

    /// Whether what was read so far can be a record behind this one.
    pub(crate) fn follows(&self, previous: Option<Lsn>, start: Lsn) -> bool {
        let named = Lsn(u64_at(&self.header, 8));
        (self.read as usize) < HEADER || previous.map_or(named < start, |previous| named == previous)
    }

    /// Whether the bytes, all of which were read, are those that were written.
    pub(crate) fn is_whole(&self) -> bool {
        let mut checksum = self.checksum;
        checksum.add(&self.header[..CHECKSUM_AT]);
        checksum.value() == u32_at(&self.header, CHECKSUM_AT)
    }

    /// Whether the next record is in the next file.
    pub(crate) fn is_switch(&self) -> bool {
        self.header[17] == LOG_MANAGER && self.header[16] & 0xf0 == SWITCH
    }
}

/// Whether a record can be this long, its header included.
pub(crate) fn is_length(length: u32) -> bool {
    (HEADER as u32..=LENGTH_MAX).contains(&length)
}
