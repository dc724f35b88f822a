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

/// Bytes behind the header that are kept: with the longest parts that may stand
/// before it, the time of a commit is among them.
const BEGINNING: usize = 24;
/// Manager 1 writes how transactions end; of those these say that one was
/// committed, the second one after it was prepared (src/include/access/xact.h).
const TRANSACTION_MANAGER: u8 = 1;
const ENDS: [u8; 2] = [0x00, 0x30];
const END: u8 = 0x70;
/// Parts of a record before what its manager says, by the byte that they begin
/// with, and how long they are: where it was first written, and in which
/// transaction (src/include/access/xlogrecord.h).
const ORIGIN: (u8, usize) = (253, 3);
const TOP_TRANSACTION: (u8, usize) = (252, 5);
/// What its manager says, by how its length is written.
const SHORT: (u8, usize) = (255, 2);
const LONG: (u8, usize) = (254, 5);
/// From the Unix epoch to 2000-01-01, from which PostgreSQL counts microseconds.
const EPOCH_MS: i64 = 946_684_800_000;

/// The next place at which a record can begin.
pub(crate) fn aligned(place: u64) -> u64 {
    place.saturating_add(ALIGNMENT - 1) & !(ALIGNMENT - 1)
}

/// A record while its bytes come, page by page.
#[derive(Debug)]
pub(crate) struct Reading {
    header: [u8; HEADER],
    beginning: [u8; BEGINNING],
    read: u32,
    checksum: Checksum,
}

impl Reading {
    pub(crate) fn new() -> Self {
        Self { header: [0; HEADER], beginning: [0; BEGINNING], read: 0, checksum: Checksum::new() }
    }

    /// Takes the next bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let begun = (self.read as usize).min(HEADER);
        let (head, body) = bytes.split_at(bytes.len().min(HEADER - begun));
        self.header[begun..begun + head.len()].copy_from_slice(head);
        self.checksum.add(body);
        let kept = (self.read as usize + head.len()).saturating_sub(HEADER);
        if let Some(room) = self.beginning.get_mut(kept..) {
            let count = body.len().min(room.len());
            room[..count].copy_from_slice(&body[..count]);
        }
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

    /// When the transaction was committed whose end this is, in milliseconds since
    /// the Unix epoch; none for all other records.
    pub(crate) fn committed_ms(&self) -> Option<i64> {
        if self.header[17] != TRANSACTION_MANAGER || !ENDS.contains(&(self.header[16] & END)) {
            return None;
        }
        let mut at = 0;
        loop {
            let kind = *self.beginning.get(at)?;
            let (_, length) =
                [ORIGIN, TOP_TRANSACTION, SHORT, LONG].into_iter().find(|(id, _)| *id == kind)?;
            at += length;
            if [SHORT.0, LONG.0].contains(&kind) {
                break;
            }
        }
        let microseconds = i64::from_le_bytes(self.beginning.get(at..at + 8)?.try_into().ok()?);
        Some(microseconds.div_euclid(1000).saturating_add(EPOCH_MS))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a manager with what is said in it, as pages have it: in pieces.
    fn read(manager: u8, info: u8, body: &[u8]) -> Option<i64> {
        let mut bytes = vec![0; HEADER];
        (bytes[16], bytes[17]) = (info, manager);
        bytes.extend_from_slice(body);
        [1, 7, 24, 25, 100].map(|length| {
            let mut reading = Reading::new();
            bytes.chunks(length).for_each(|piece| reading.take(piece));
            reading.committed_ms()
        })[0]
    }

    #[test]
    fn a_commit_says_when_it_was_and_nothing_else_does() {
        // 2026-11-22 09:30:00.123456 UTC
        let time = 848_655_000_123_456_i64.to_le_bytes();
        let at = |before: &[u8]| [before, &time, &[9; 40]].concat();
        for before in [
            &[255, 48][..],
            &[254, 48, 1, 0, 0],
            &[253, 7, 0, 255, 48],
            &[253, 7, 0, 252, 1, 2, 3, 4, 254, 48, 1, 0, 0],
        ] {
            for info in [0x00, 0x30, 0x80, 0xb0] {
                assert_eq!(read(1, info, &at(before)), Some(1_795_339_800_123), "{before:?}");
            }
        }
        for (manager, info) in [(1, 0x20), (1, 0x10), (0, 0x00), (10, 0x30)] {
            assert_eq!(read(manager, info, &at(&[255, 48])), None);
        }
        assert_eq!(read(1, 0, &[]), None);
        assert_eq!(read(1, 0, &[0, 1, 2]), None, "it begins with a block");
    }
}
