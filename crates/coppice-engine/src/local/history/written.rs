//! A log as a server writes it, page by page.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use coppice_core::lsn::Lsn;
use coppice_wal::{PAGE, Segment};

const FILE: u64 = Segment::USUAL.bytes;
/// As src/include/access/xlog_internal.h has it for release 18.
const MAGIC: u16 = 0xD118;
/// Whose log it is.
pub(super) const SYSTEM: u64 = 7;

/// What a server has still to write, from its first page on, and where it goes on.
pub(super) struct Written {
    pages: Vec<(u64, [u8; PAGE])>,
    at: u64,
    previous: u64,
}

/// CRC-32C, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |value, byte| {
        let shift = |value: u32, _| if value & 1 == 1 { value >> 1 ^ 0x82F6_3B78 } else { value >> 1 };
        (0..8).fold(value ^ u32::from(*byte), shift)
    })
}

impl Written {
    /// Goes on at the beginning of a page.
    pub(super) fn from(at: u64) -> Self {
        Self { pages: vec![], at, previous: 8 }
    }

    fn begin_page(&mut self, continued: usize) {
        let is_first = self.at.is_multiple_of(FILE);
        let mut page = [0; PAGE];
        page[..2].copy_from_slice(&MAGIC.to_le_bytes());
        page[2] = u8::from(continued > 0) | u8::from(is_first) << 1;
        page[4] = 1;
        page[8..16].copy_from_slice(&self.at.to_le_bytes());
        page[16..20].copy_from_slice(&(continued as u32).to_le_bytes());
        if is_first {
            page[24..32].copy_from_slice(&SYSTEM.to_le_bytes());
            page[32..36].copy_from_slice(&(FILE as u32).to_le_bytes());
            page[36..40].copy_from_slice(&(PAGE as u32).to_le_bytes());
        }
        self.pages.push((self.at, page));
        self.at += if is_first { 40 } else { 24 };
    }

    /// Adds a record, and tells where it ends.
    pub(super) fn add(&mut self, body: &[u8]) -> Lsn {
        if self.at.is_multiple_of(PAGE as u64) {
            self.begin_page(0);
        }
        let mut header = [0; 24];
        header[..4].copy_from_slice(&(body.len() as u32 + 24).to_le_bytes());
        header[8..16].copy_from_slice(&self.previous.to_le_bytes());
        header[17] = 10;
        let sum = checksum(&[body, &header[..20]].concat());
        header[20..].copy_from_slice(&sum.to_le_bytes());
        self.previous = self.at;
        let record = [&header[..], body].concat();
        let mut left = &record[..];
        while !left.is_empty() {
            if self.at.is_multiple_of(PAGE as u64) {
                self.begin_page(left.len());
            }
            let offset = (self.at % PAGE as u64) as usize;
            let (now, later) = left.split_at(left.len().min(PAGE - offset));
            let (_, page) = self.pages.last_mut().expect("a page");
            page[offset..offset + now.len()].copy_from_slice(now);
            self.at += now.len() as u64;
            left = later;
        }
        self.at = self.at.next_multiple_of(8);
        Lsn(self.at)
    }

    /// Writes what lies before a place, so long ago that each file is settled at once.
    pub(super) fn write_before(&mut self, wal: &Path, end: u64, seconds_ago: u64) {
        for (place, page) in self.pages.iter().filter(|(place, _)| *place < end) {
            let path = wal.join(Segment::USUAL.name(1, place / FILE));
            let mut options = File::options();
            let file = options.create(true).truncate(false).write(true).open(path).expect("a file");
            file.write_all_at(page, place % FILE).expect("written");
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds_ago)).expect("a time");
        }
        self.pages.retain(|(place, _)| *place >= end / PAGE as u64 * PAGE as u64);
    }
}
