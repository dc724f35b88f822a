//! How much of a subvolume was written since it was made, and how much of the disk is held for that.
//!
//! btrfs keeps with each extent of a file in which transaction it was written, and
//! with each node of a tree in which one it was changed last. So what is older than a
//! snapshot is not even read, however much of it there is: this costs as much as was
//! written since.
//!
//! An extent is kept as a whole while a block of it is in a file: one of 128 MiB may be held for 8 KiB.
#![expect(unsafe_code, reason = "an ioctl takes a structure whose layout only the caller vouches for")]

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use super::btrfs::{SubvolumeOrigin, origin};

const BTRFS_IOCTL_MAGIC: u8 = 0x94;
/// The kernel's structure ends before the buffer, which is of any length.
const TREE_SEARCH_V2: Opcode = opcode::read_write::<SearchHead>(BTRFS_IOCTL_MAGIC, 17);

/// The type of items that name an extent of a file, or hold what is in a small one.
const EXTENT_DATA: u32 = 108;
/// Small files are in the item itself; their `type`.
const INLINE: u8 = 0;
/// What one of those counts: as in sizes, each file takes that much at least.
const INLINE_BYTES: u64 = 4096;
/// Where, in an item that names an extent, the transaction it was written in is,
const GENERATION: usize = 0;
/// its type,
const KIND: usize = 20;
/// its place on the disk, 0 for a hole,
const PLACE: usize = 21;
/// its length there,
const LENGTH_HELD: usize = 29;
/// and its length in the file.
const LENGTH: usize = 45;
/// All files of a subvolume, by their inodes.
const ALL: RangeInclusive<u64> = 0..=u64::MAX;
/// Bytes in front of each item of an answer.
const HEADER: usize = 32;
/// The longest item is shorter than a node, of 64 KiB at most.
const BUFFER: usize = 256 << 10;

/// `struct btrfs_ioctl_search_key`
#[repr(C)]
struct SearchKey {
    tree: u64,
    object: [u64; 2],
    offset: [u64; 2],
    transaction: [u64; 2],
    kind: [u32; 2],
    items: u32,
    unused: [u32; 9],
}

/// `struct btrfs_ioctl_search_args_v2` without its buffer.
#[repr(C)]
struct SearchHead {
    key: SearchKey,
    buffer_bytes: u64,
}

#[repr(C)]
struct Search {
    head: SearchHead,
    buffer: [u8; BUFFER],
}

const _: () = assert!(size_of::<SearchHead>() == 112);
const _: () = assert!(size_of::<Search>() == 112 + BUFFER);

/// Where in a tree an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    object: u64,
    kind: u32,
    offset: u64,
}

impl Place {
    const FIRST: Self = Self { object: 0, kind: 0, offset: 0 };

    /// The next one there can be; none after the last.
    fn next(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(kind) = self.kind.checked_add(1) {
            return Some(Self { kind, offset: 0, ..self });
        }
        Some(Self { object: self.object.checked_add(1)?, kind: 0, offset: 0 })
    }
}

/// Bytes of files of a subvolume that were written since it was made as a snapshot;
/// none when it is no snapshot, so that all of it was. `Err` of kind `TimedOut` when
/// counting takes longer than `until`.
pub(super) fn since_snapshot(path: &Path, until: Instant) -> io::Result<Option<u64>> {
    let subvolume = File::open(path)?;
    let SubvolumeOrigin::Snapshot { made } = origin(&subvolume)? else { return Ok(None) };
    let mut bytes = 0_u64;
    each_item(&subvolume, ALL, made, until, |item| bytes = bytes.saturating_add(extent_bytes(item)))?;
    Ok(Some(bytes))
}

/// Bytes of the disk that a subvolume holds with what was written since it was made. As far as they were counted, when
/// counting takes longer than `until`.
pub(super) fn held(path: &Path, until: Instant) -> io::Result<u64> {
    let subvolume = File::open(path)?;
    let made = match origin(&subvolume)? {
        SubvolumeOrigin::Snapshot { made } => made,
        _ => 0,
    };
    count_held(&subvolume, ALL, made, until, |_| true)
}

/// Bytes of the disk that a file holds, as [`held`] counts.
pub(super) fn held_by_file(file: &File, until: Instant) -> io::Result<u64> {
    let inode = file.metadata()?.ino();
    count_held(file, inode..=inode, 0, until, |_| true)
}

/// Bytes of the disk that a subvolume holds with what was written since `older` was made as a snapshot, as [`held`]
/// counts.
pub(super) fn held_since(path: &Path, older: &Path, until: Instant) -> io::Result<u64> {
    let SubvolumeOrigin::Snapshot { made } = origin(&File::open(older)?)? else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    count_held(&File::open(path)?, ALL, made, until, |_| true)
}

/// Bytes of the disk that a subvolume holds with what was there when it was made as a snapshot, as [`held`] counts. It
/// goes through all extents that there are.
pub(super) fn inherited(path: &Path, until: Instant) -> io::Result<u64> {
    let subvolume = File::open(path)?;
    let SubvolumeOrigin::Snapshot { made } = origin(&subvolume)? else { return Ok(0) };
    let is_older = |item: &[u8]| number(item, GENERATION).is_some_and(|written| written <= made);
    count_held(&subvolume, ALL, 0, until, is_older)
}

/// Of extents newer than `made`, those that `counts` says.
fn count_held(
    subvolume: &File,
    inodes: RangeInclusive<u64>,
    made: u64,
    until: Instant,
    counts: impl Fn(&[u8]) -> bool,
) -> io::Result<u64> {
    let mut held = Held::default();
    let add = |item: &[u8]| {
        if counts(item) {
            held.add(item);
        }
    };
    match each_item(subvolume, inodes, made, until, add) {
        Err(error) if error.kind() != io::ErrorKind::TimedOut => Err(error),
        _ => Ok(held.bytes()),
    }
}

/// Goes through the items of a subvolume that name extents newer than `made` of some of its files. `subvolume` may be
/// any file of it.
fn each_item(
    subvolume: &File,
    inodes: RangeInclusive<u64>,
    made: u64,
    until: Instant,
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut search = new_search();
    let (first, last) = inodes.into_inner();
    let mut from = Some(Place { object: first, ..Place::FIRST });
    while let Some(place) = from {
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        search.head = head(place, last, made + 1);
        // SAFETY: the request takes a btrfs_ioctl_search_args_v2, whose buffer is as long as it says, and fills it in.
        unsafe { ioctl(subvolume, Updater::<TREE_SEARCH_V2, Search>::new(&mut search)) }?;
        from = read(&search.buffer, search.head.key.items, made, &mut take).and_then(Place::next);
    }
    Ok(())
}

/// Extents, each counted once, however many parts of files are in it.
///
/// Of more than fit, every second one counts for two, then every fourth for four: which do is up to their places, so
/// all parts of one are taken alike.
#[derive(Default)]
struct Held {
    /// By their places.
    bytes: HashMap<u64, u64>,
    /// One of two to the power of this many is taken.
    halvings: u32,
}

impl Held {
    const COUNT_MAX: usize = 1 << 16;

    fn add(&mut self, item: &[u8]) {
        let is_inline = item.get(KIND) == Some(&INLINE);
        let Some(place @ 1..) = number(item, PLACE).filter(|_| !is_inline) else { return };
        if !Self::is_taken(place, self.halvings) {
            return;
        }
        self.bytes.insert(place, number(item, LENGTH_HELD).unwrap_or_default());
        while self.bytes.len() > Self::COUNT_MAX {
            self.halvings += 1;
            let halvings = self.halvings;
            self.bytes.retain(|place, _| Self::is_taken(*place, halvings));
        }
    }

    fn is_taken(place: u64, halvings: u32) -> bool {
        // Places are multiples of a block; the high bits of this product depend on all of theirs.
        let mixed = (place >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.leading_zeros() >= halvings
    }

    fn bytes(&self) -> u64 {
        let taken = self.bytes.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        taken.saturating_mul(1 << self.halvings.min(63))
    }
}

fn new_search() -> Box<Search> {
    Box::new(Search { head: head(Place::FIRST, u64::MAX, 0), buffer: [0; BUFFER] })
}

/// Asks for what is from `place` on, up to the object `last`, of parts of the tree that
/// were changed in `since` or later.
fn head(place: Place, last: u64, since: u64) -> SearchHead {
    let key = SearchKey {
        // The subvolume that is asked.
        tree: 0,
        object: [place.object, last],
        offset: [place.offset, u64::MAX],
        transaction: [since, u64::MAX],
        kind: [place.kind, u32::MAX],
        items: u32::MAX,
        unused: [0; 9],
    };
    SearchHead { key, buffer_bytes: BUFFER as u64 }
}

/// Takes those items of an answer that name extents newer than `made`; returns the last place.
fn read(mut buffer: &[u8], items: u32, made: u64, mut take: impl FnMut(&[u8])) -> Option<Place> {
    let mut last = None;
    for _ in 0..items {
        let Some((place, item, rest)) = take_item(buffer) else { break };
        (last, buffer) = (Some(place), rest);
        if place.kind == EXTENT_DATA && number(item, GENERATION).is_some_and(|written| written > made) {
            take(item);
        }
    }
    last
}

fn take_item(buffer: &[u8]) -> Option<(Place, &[u8], &[u8])> {
    let (header, rest) = buffer.split_at_checked(HEADER)?;
    // struct btrfs_ioctl_search_header: transid, objectid, offset, type, len
    let whole = |at: usize| header.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    let half = |at: usize| header.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let place = Place { object: whole(8)?, kind: half(24)?, offset: whole(16)? };
    let (item, rest) = rest.split_at_checked(usize::try_from(half(28)?).ok()?)?;
    Some((place, item, rest))
}

/// What an extent takes; nothing when it is a hole.
fn extent_bytes(item: &[u8]) -> u64 {
    match (item.get(KIND), number(item, PLACE)) {
        (Some(&INLINE), _) => INLINE_BYTES,
        (_, Some(1..)) => number(item, LENGTH).unwrap_or_default(),
        _ => 0,
    }
}

/// A number of an item, as btrfs writes them.
fn number(item: &[u8], at: usize) -> Option<u64> {
    item.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An item of an answer.
    fn item(place: Place, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![];
        for number in [0, place.object, place.offset] {
            bytes.extend(u64::to_ne_bytes(number));
        }
        bytes.extend(place.kind.to_ne_bytes());
        bytes.extend((content.len() as u32).to_ne_bytes());
        bytes.extend(content);
        bytes
    }

    fn extent(written: u64, kind: u8, place: u64, length: u64) -> Vec<u8> {
        let mut content = vec![0; 53];
        content[GENERATION..GENERATION + 8].copy_from_slice(&written.to_le_bytes());
        content[KIND] = kind;
        content[PLACE..PLACE + 8].copy_from_slice(&place.to_le_bytes());
        content[LENGTH..].copy_from_slice(&length.to_le_bytes());
        content
    }

    #[test]
    fn what_is_newer_counts_and_holes_do_not() {
        let at = |object, kind| Place { object, kind, offset: 5 };
        let answer = [
            item(at(257, 1), &[9; 160]),
            item(at(257, EXTENT_DATA), &extent(7, 1, 4096, 1 << 20)),
            item(at(258, EXTENT_DATA), &extent(8, 1, 4096, 8192)),
            item(at(259, EXTENT_DATA), &extent(8, 1, 0, 1 << 30)),
            item(at(260, EXTENT_DATA), &extent(9, 2, 8192, 16384)),
            item(at(261, EXTENT_DATA), &extent(9, INLINE, 0, 0)[..30]),
        ];
        let all = answer.concat();
        let mut bytes = 0;
        let last = read(&all, 6, 7, |item| bytes += extent_bytes(item));
        assert_eq!(bytes, 8192 + 16384 + INLINE_BYTES);
        assert!(last == Some(at(261, EXTENT_DATA)));
        let cut = read(&all[..all.len() - 1], 6, 7, |_| {});
        assert!(cut == Some(at(260, EXTENT_DATA)), "as far as it goes");
        assert!(read(&[], 0, 7, |_| {}).is_none());
    }

    #[test]
    fn an_extent_is_held_once_and_as_a_whole() {
        let of = |place: u64, held: u64| {
            let mut item = extent(8, 1, place, 8192);
            item[LENGTH_HELD..LENGTH_HELD + 8].copy_from_slice(&held.to_le_bytes());
            item
        };
        let mut held = Held::default();
        for item in [of(4096, 1 << 27), of(8192, 65536), of(4096, 1 << 27), of(0, 1 << 30)] {
            held.add(&item);
        }
        held.add(&extent(8, INLINE, 4096, 0)[..30]);
        assert_eq!(held.bytes(), (1 << 27) + 65536);
        // Of very many it is about right.
        let mut held = Held::default();
        for number in 1..=1_000_000_u64 {
            held.add(&of(number * 65536, 65536));
            held.add(&of(number * 65536, 65536));
        }
        let (found, expected) = (held.bytes(), 1_000_000 * 65536);
        assert!(found.abs_diff(expected) < expected / 20, "{found} of {expected}");
        assert!(held.bytes.len() <= Held::COUNT_MAX);
    }

    #[test]
    fn after_the_last_place_there_is_none() {
        let place = Place { object: 5, kind: 6, offset: u64::MAX };
        assert!(place.next() == Some(Place { object: 5, kind: 7, offset: 0 }));
        let place = Place { kind: u32::MAX, ..place };
        assert!(place.next() == Some(Place { object: 6, kind: 0, offset: 0 }));
        assert!(Place { object: u64::MAX, ..place }.next().is_none());
    }
}
