//! Pages and the segments they lie in (src/include/access/xlog_internal.h).

use coppice_core::lsn::Lsn;

/// Bytes of a page (`XLOG_BLCKSZ`).
pub const PAGE: usize = 8192;
/// A page as it is on disk.
pub type Page = [u8; PAGE];

pub(crate) const SHORT_HEADER: usize = 24;
pub(crate) const LONG_HEADER: usize = 40;

/// The record from the page before goes on here.
const CONTINUES: u16 = 1;
const IS_LONG: u16 = 2;
/// What the page before began was never finished: another record is here.
const OVERWRITES: u16 = 8;
const KNOWN_FLAGS: u16 = 0xf;

/// How a log is cut into files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Bytes of a file: 16 MiB unless `initdb` was told otherwise.
    pub bytes: u64,
}

impl Segment {
    /// What PostgreSQL takes when nothing else is said.
    pub const USUAL: Self = Self { bytes: 16 << 20 };

    /// The number of the file that has the byte at `place`.
    pub fn number(self, place: Lsn) -> u64 {
        place.0 / self.bytes
    }

    /// Where a file begins.
    pub fn start(self, number: u64) -> Lsn {
        Lsn(number.saturating_mul(self.bytes))
    }

    /// The name of a file.
    pub fn name(self, timeline: u32, number: u64) -> String {
        let per_id = (1 << 32) / self.bytes;
        format!("{timeline:08X}{:08X}{:08X}", number / per_id, number % per_id)
    }

    /// The timeline and number of the file with this name; none when no file of a
    /// log is called so.
    pub fn parse(self, name: &[u8]) -> Option<(u32, u64)> {
        let part = |from: usize| {
            let digits = std::str::from_utf8(name.get(from..from + 8)?).ok()?;
            let is_hex = digits.bytes().all(|byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte));
            u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)
        };
        let (timeline, high, low) = (part(0)?, part(8)?, part(16)?);
        let per_id = (1 << 32) / self.bytes;
        let is_name = name.len() == 24 && u64::from(low) < per_id;
        is_name.then(|| (timeline, u64::from(high) * per_id + u64::from(low)))
    }
}

/// Whose log it is: what every page has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) magic: u16,
    pub(crate) timeline: u32,
    pub(crate) system: u64,
    pub(crate) segment: Segment,
}

/// What the header of a page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) length: usize,
    /// Bytes of a record of the page before that are still to come, these included.
    pub(crate) continued: Option<u32>,
    pub(crate) overwrites: bool,
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Owner {
    /// The header of the page at `place`, if that is a page of this log and of
    /// this place: what a file held before it was used again is neither.
    pub(crate) fn header(&self, page: &Page, place: Lsn) -> Option<Header> {
        let flags = u16_at(page, 2);
        let is_long = flags & IS_LONG != 0;
        let is_ours = u16_at(page, 0) == self.magic
            && flags & !KNOWN_FLAGS == 0
            && u32_at(page, 4) == self.timeline
            && u64_at(page, 8) == place.0
            && is_long == place.0.is_multiple_of(self.segment.bytes);
        let is_of_system = !is_long
            || (u64_at(page, 24) == self.system
                && u64::from(u32_at(page, 32)) == self.segment.bytes
                && u32_at(page, 36) as usize == PAGE);
        (is_ours && is_of_system).then(|| Header {
            length: if is_long { LONG_HEADER } else { SHORT_HEADER },
            continued: (flags & CONTINUES != 0).then(|| u32_at(page, 16)),
            overwrites: flags & OVERWRITES != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_its_file_and_back() {
        let segment = Segment::USUAL;
        assert_eq!(segment.name(1, 1), "000000010000000000000001");
        assert_eq!(segment.name(3, 256), "000000030000000100000000");
        for number in [0, 1, 255, 256, 70_000] {
            assert_eq!(segment.parse(segment.name(7, number).as_bytes()), Some((7, number)));
        }
        for name in
            ["", "000000010000000000000001.partial", "00000001000000000000000g", "000000010000000000000100"]
        {
            assert_eq!(segment.parse(name.as_bytes()), None, "{name}");
        }
    }
}
