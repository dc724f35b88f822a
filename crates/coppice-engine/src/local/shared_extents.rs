//! Which blocks of a file others have, too, as the file system tells it: whoever that
//! may be, or one other file.
#![expect(unsafe_code, reason = "an ioctl takes a structure whose layout only the caller vouches for")]

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::time::Instant;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// The kernel's structure ends before the extents, of which there are any number.
const FIEMAP: Opcode = opcode::read_write::<MapHead>(b'f', 11);
const LAST: u32 = 1;
/// Compressed or encrypted: its place is that of the whole.
const ENCODED: u32 = 8;
/// Not on the disk yet, or within what the file system keeps for itself.
const NOWHERE: u32 = 0x2 | 0x4 | 0x100 | 0x200;
const SHARED: u32 = 0x2000;
/// Extents of one answer.
const EXTENTS: usize = 256;

/// `struct fiemap` without its extents.
#[repr(C)]
#[derive(Clone, Copy)]
struct MapHead {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
}

/// `struct fiemap_extent`
#[repr(C)]
#[derive(Clone, Copy)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    more_reserved: [u32; 3],
}

impl Extent {
    const NONE: Self =
        Self { logical: 0, physical: 0, length: 0, reserved: [0; 2], flags: 0, more_reserved: [0; 3] };

    fn end(&self) -> u64 {
        self.logical.saturating_add(self.length)
    }

    /// Bytes of it that are the same blocks in another file, where that has this there.
    fn common(&self, other: &Self) -> u64 {
        let is_same = match (self.flags | other.flags) & ENCODED {
            _ if (self.flags | other.flags) & NOWHERE != 0 => false,
            0 => self.physical.wrapping_sub(self.logical) == other.physical.wrapping_sub(other.logical),
            _ => self.flags & other.flags & ENCODED != 0 && self.physical == other.physical,
        };
        let both = self.end().min(other.end()).saturating_sub(self.logical.max(other.logical));
        if is_same { both } else { 0 }
    }
}

#[repr(C)]
struct Map {
    head: MapHead,
    extents: [Extent; EXTENTS],
}

const _: () = assert!(size_of::<MapHead>() == 32);
const _: () = assert!(size_of::<Extent>() == 56);
const _: () = assert!(size_of::<Map>() == 32 + EXTENTS * 56);

/// Bytes of a file whose blocks it shares. `Err` of kind `TimedOut` when counting
/// takes longer than `until`.
pub(super) fn in_file(file: &File, until: Instant) -> io::Result<u64> {
    let mut bytes = 0_u64;
    for extent in Extents::of(file, until) {
        let extent = extent?;
        if extent.flags & SHARED != 0 {
            bytes = bytes.saturating_add(extent.length);
        }
    }
    Ok(bytes)
}

/// Bytes of a file that are not the same blocks, at the same place, in another one;
/// all of them without another one. Holes count nothing. `Err` of kind `TimedOut` when
/// counting takes longer than `until`.
pub(super) fn not_in(file: &File, other: Option<&File>, until: Instant) -> io::Result<u64> {
    let others = other.map(|other| Extents::of(other, until));
    count_not_in(Extents::of(file, until), others.into_iter().flatten())
}

/// Both in the order of the file.
fn count_not_in(
    extents: impl Iterator<Item = io::Result<Extent>>,
    mut others: impl Iterator<Item = io::Result<Extent>>,
) -> io::Result<u64> {
    let (mut bytes, mut other) = (0_u64, others.next().transpose()?);
    for extent in extents {
        let extent = extent?;
        let mut common = 0_u64;
        while let Some(there) = other.filter(|there| there.logical < extent.end()) {
            common = common.saturating_add(extent.common(&there));
            if there.end() > extent.end() {
                break;
            }
            other = others.next().transpose()?;
        }
        bytes = bytes.saturating_add(extent.length.saturating_sub(common));
    }
    Ok(bytes)
}

/// Extents of a file, in its order, as they are when they are come by.
struct Extents<'a> {
    file: &'a File,
    until: Instant,
    /// Where the next question begins; none when all were told.
    next: Option<u64>,
    told: VecDeque<Extent>,
}

impl<'a> Extents<'a> {
    fn of(file: &'a File, until: Instant) -> Self {
        Self { file, until, next: Some(0), told: VecDeque::new() }
    }

    fn ask(&mut self, start: u64) -> io::Result<()> {
        if Instant::now() > self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let length = u64::MAX - start;
        let head = MapHead { start, length, flags: 0, mapped: 0, room: EXTENTS as u32, reserved: 0 };
        let mut map = Map { head, extents: [Extent::NONE; EXTENTS] };
        // SAFETY: the request takes a fiemap with room for as many extents as it says, and fills it in.
        unsafe { ioctl(self.file, Updater::<FIEMAP, Map>::new(&mut map)) }?;
        let count = usize::try_from(map.head.mapped).unwrap_or_default().min(EXTENTS);
        let found = map.extents.get(..count).unwrap_or_default();
        self.next = found.last().filter(|last| last.flags & LAST == 0).map(Extent::end);
        self.told.extend(found);
        Ok(())
    }
}

impl Iterator for Extents<'_> {
    type Item = io::Result<Extent>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(extent) = self.told.pop_front() {
            return Some(Ok(extent));
        }
        let start = self.next.take()?;
        match self.ask(start) {
            Ok(()) => self.told.pop_front().map(Ok),
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn counting_ends_in_time() {
        let file = tempfile::tempfile().expect("a file");
        let past = Instant::now().checked_sub(Duration::from_secs(1)).expect("a time");
        let ended = in_file(&file, past).expect_err("it is too late");
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        let ended = not_in(&file, Some(&file), past).expect_err("it is too late");
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn what_is_at_the_same_place_in_both_files_is_common() {
        let extent =
            |logical, physical, length, flags| Extent { logical, physical, length, flags, ..Extent::NONE };
        let differ = |file: &[Extent], other: &[Extent]| {
            count_not_in(file.iter().copied().map(Ok), other.iter().copied().map(Ok)).expect("a number")
        };
        let whole = [extent(0, 1000, 100, 0)];
        assert_eq!(differ(&whole, &whole), 0);
        assert_eq!(differ(&whole, &[]), 100, "nothing of it is there");
        assert_eq!(differ(&[], &whole), 0, "what only the other one has does not count");
        let rewritten = [extent(0, 1000, 40, 0), extent(40, 7000, 10, 0), extent(50, 1050, 50, 0)];
        assert_eq!(differ(&rewritten, &whole), 10);
        assert_eq!(differ(&whole, &rewritten), 10);
        assert_eq!(differ(&[extent(50, 1000, 100, 0)], &whole), 100, "the same blocks, but elsewhere");
        assert_eq!(differ(&[extent(0, 1000, 150, 0)], &whole), 50);
        let sparse = [extent(0, 1000, 10, 0), extent(90, 1090, 10, 0)];
        assert_eq!((differ(&sparse, &whole), differ(&whole, &sparse)), (0, 80));

        let packed = [extent(0, 1000, 40, ENCODED), extent(60, 1000, 40, ENCODED)];
        assert_eq!(differ(&packed, &[extent(0, 1000, 100, ENCODED)]), 0, "parts of one compressed piece");
        assert_eq!(differ(&packed, &whole), 80);
        for flag in [0x2, 0x4, 0x100, 0x200] {
            let unplaced = [extent(0, 0, 100, flag)];
            assert_eq!(differ(&unplaced, &unplaced), 100, "{flag:#x}");
        }
    }
}
