//! Logs that are made here, whole and damaged.

use std::collections::BTreeMap;
use std::io;

use coppice_core::lsn::Lsn;
use coppice_wal::{Ended, Log, PAGE, Page, Pages, Place, Segment, Walked};
use proptest::prelude::*;

/// Small files, so that a log has many.
const SEGMENT: Segment = Segment { bytes: 4 * PAGE as u64 };
const SYSTEM: u64 = 0x0102_0304_0506_0708;
const TIMELINE: u32 = 1;
const BEGINNING: u64 = SEGMENT.bytes;

/// A log in memory.
#[derive(Clone, Default)]
struct Made {
    pages: BTreeMap<u64, Page>,
    at: u64,
    previous: u64,
    /// Where records end.
    ends: Vec<u64>,
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut value = u32::MAX;
    for byte in bytes {
        value ^= u32::from(*byte);
        for _ in 0..8 {
            value = if value & 1 == 1 { value >> 1 ^ 0x82F6_3B78 } else { value >> 1 };
        }
    }
    !value
}

impl Made {
    fn new() -> Self {
        Self { at: BEGINNING, ..Self::default() }
    }

    fn header(&mut self, continued: u32, more_flags: u16) {
        let is_long = self.at.is_multiple_of(SEGMENT.bytes);
        let flags = u16::from(continued > 0) | u16::from(is_long) << 1 | more_flags;
        let mut page = [0; PAGE];
        page[0..2].copy_from_slice(&0xD116_u16.to_le_bytes());
        page[2..4].copy_from_slice(&flags.to_le_bytes());
        page[4..8].copy_from_slice(&TIMELINE.to_le_bytes());
        page[8..16].copy_from_slice(&self.at.to_le_bytes());
        page[16..20].copy_from_slice(&continued.to_le_bytes());
        if is_long {
            page[24..32].copy_from_slice(&SYSTEM.to_le_bytes());
            page[32..36].copy_from_slice(&(SEGMENT.bytes as u32).to_le_bytes());
            page[36..40].copy_from_slice(&(PAGE as u32).to_le_bytes());
        }
        self.pages.insert(self.at, page);
        self.at += if is_long { 40 } else { 24 };
    }

    fn put(&mut self, bytes: &[u8], mut count: usize) {
        let mut left = bytes;
        if self.at.is_multiple_of(PAGE as u64) {
            self.header(0, 0);
        }
        while count > 0 && !left.is_empty() {
            if self.at.is_multiple_of(PAGE as u64) {
                self.header(left.len() as u32, 0);
            }
            let offset = (self.at % PAGE as u64) as usize;
            let now = left.len().min(PAGE - offset).min(count);
            let page = self.pages.get_mut(&(self.at - offset as u64)).expect("a page");
            page[offset..offset + now].copy_from_slice(&left[..now]);
            left = &left[now..];
            count -= now;
            self.at += now as u64;
        }
    }

    fn record(&mut self, body: &[u8], manager: u8, info: u8) -> Vec<u8> {
        let mut header = [0; 24];
        header[0..4].copy_from_slice(&(body.len() as u32 + 24).to_le_bytes());
        header[8..16].copy_from_slice(&self.previous.to_le_bytes());
        header[16..18].copy_from_slice(&[info, manager]);
        let sum = checksum(&[body, &header[..20]].concat());
        header[20..].copy_from_slice(&sum.to_le_bytes());
        if self.at.is_multiple_of(PAGE as u64) {
            self.header(0, 0);
        }
        self.previous = self.at;
        [&header[..], body].concat()
    }

    fn add(&mut self, body: &[u8]) {
        let record = self.record(body, 10, 0);
        self.put(&record, usize::MAX);
        self.at = self.at.next_multiple_of(8);
        self.ends.push(self.at);
    }

    /// The rest of the file is not used.
    fn switch(&mut self) {
        let record = self.record(&[], 0, 0x40);
        self.put(&record, usize::MAX);
        self.at = self.at.next_multiple_of(SEGMENT.bytes);
        self.ends.push(self.at);
    }

    /// A record of which only the first bytes were written before a crash.
    fn abandon(&mut self, body: &[u8], written: usize) {
        let before = self.previous;
        let record = self.record(body, 10, 0);
        self.put(&record, written);
        assert!(self.at.is_multiple_of(PAGE as u64), "it is cut at a page");
        self.header(0, 8);
        self.previous = before;
    }

    fn walk(&mut self, from: Place, limit: Option<u64>) -> Walked {
        let log = Log::of(17, SYSTEM, TIMELINE, SEGMENT).expect("a release");
        log.walk(from, limit.map(Lsn), self).expect("memory can be read")
    }

    fn walk_all(&mut self) -> u64 {
        self.walk(beginning(), None).place.at.0
    }
}

impl Pages for Made {
    fn page(&mut self, place: Lsn) -> io::Result<Option<&Page>> {
        Ok(self.pages.get(&place.0))
    }
}

fn beginning() -> Place {
    Place { at: Lsn(BEGINNING), previous: None }
}

fn log_of(lengths: &[usize]) -> Made {
    let mut made = Made::new();
    for (index, length) in lengths.iter().enumerate() {
        made.add(&vec![index as u8; *length]);
    }
    made
}

#[test]
fn a_walk_ends_behind_the_last_record_however_records_lie_on_pages() {
    // Those of 24 bytes less than a page's rest leave no room for a header, or for half of one.
    for first in (PAGE - 40 - 24 - 40)..=(PAGE - 40 - 24) {
        let mut made = log_of(&[first, 0, 100, 3 * PAGE, 1, 5 * PAGE, 7]);
        assert_eq!(made.walk_all(), made.at, "a first record of {first}");
    }
}

#[test]
fn a_walk_goes_on_where_another_one_ended() {
    let mut made = log_of(&[100, 9000, 20]);
    let first = made.walk(beginning(), None).place;
    assert_eq!(made.walk(first, None).place, first);
    made.add(&[7; 20_000]);
    assert_eq!(made.walk(first, None).place.at.0, made.at);
    let wrong = Place { previous: Some(Lsn(first.at.0 - 8)), ..first };
    assert_eq!(made.walk(wrong, None).place, wrong, "the record names another one before it");
}

#[test]
fn what_a_file_held_before_is_no_part_of_the_log() {
    let mut made = log_of(&[100, 200]);
    let end = made.at;
    let mut old = log_of(&[100, 200, 9000, 9000]);
    for (place, page) in &mut old.pages {
        // A file that is used again has the places of its first use.
        page[8..16].copy_from_slice(&(place - SEGMENT.bytes).to_le_bytes());
        made.pages.entry(*place).or_insert(*page);
    }
    assert_eq!(made.walk_all(), end);
}

#[test]
fn a_record_that_was_never_finished_is_passed_over() {
    let mut made = log_of(&[100]);
    let room = PAGE - (made.at % PAGE as u64) as usize;
    made.abandon(&[1; 20_000], room);
    made.add(&[2; 300]);
    made.add(&[3; 10_000]);
    assert_eq!(made.walk_all(), made.at);
}

#[test]
fn a_switch_leads_to_the_next_file() {
    let mut made = log_of(&[100]);
    made.switch();
    assert!(made.at.is_multiple_of(SEGMENT.bytes));
    assert_eq!(made.walk_all(), made.at);
    made.add(&[1; 50]);
    assert_eq!(made.walk_all(), made.at);
}

#[test]
fn a_walk_ends_at_its_limit_with_the_last_record_that_ends_by_then() {
    let mut made = log_of(&[100, 9000, 20, 30_000, 8]);
    for limit in (BEGINNING..=made.at).step_by(24) {
        let expected = made.ends.iter().copied().filter(|end| *end <= limit).max().unwrap_or(BEGINNING);
        let walked = made.walk(beginning(), Some(limit));
        // What is behind the header of a page is the page's beginning.
        let is_in_header = (limit % PAGE as u64) <= 40;
        assert!(walked.place.at.0 == expected || is_in_header, "{limit}: {walked:?}, {expected}");
        assert_eq!(walked.ended, Ended::Limit, "{limit}");
    }
    let behind = made.walk(beginning(), Some(made.at + 8));
    assert_eq!((behind.place.at.0, behind.ended), (made.at, Ended::Valid), "the log does not go that far");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_byte_that_changed_ends_the_walk_before_the_record_it_is_in(
        lengths in prop::collection::vec(0..12_000_usize, 1..12),
        place in any::<prop::sample::Index>(),
        change in 1..=255_u8,
    ) {
        let mut made = log_of(&lengths);
        let (whole, ends) = (made.at, made.ends.clone());
        let at = BEGINNING + place.index((whole - BEGINNING) as usize) as u64;
        let page = made.pages.get_mut(&(at - at % PAGE as u64)).expect("a page");
        page[(at % PAGE as u64) as usize] ^= change;
        let walked = made.walk_all();
        let before = ends.iter().copied().filter(|end| *end <= at).max().unwrap_or(BEGINNING);
        // Nobody looks at what lies between records, and in the unused bytes of headers.
        prop_assert!(walked == before || walked == whole, "{at}: {walked}, {before} or {whole}");
    }

    #[test]
    fn whatever_the_bytes_are_the_walk_ends(
        bytes in prop::collection::vec(any::<u8>(), 0..4 * PAGE),
        lengths in prop::collection::vec(0..9000_usize, 0..4),
        limit in prop::option::of(0..8 * SEGMENT.bytes),
    ) {
        let mut made = log_of(&lengths);
        let end = made.at;
        // Anything behind valid records, with headers that look right.
        made.put(&bytes, usize::MAX);
        let walked = made.walk(beginning(), limit);
        prop_assert!(walked.place.at.0 <= made.at.next_multiple_of(SEGMENT.bytes));
        prop_assert!(limit.is_some() || walked.place.at.0 >= end);
    }
}
