//! Which blocks of a file others have, too, as the file system tells it.
#![expect(unsafe_code, reason = "an ioctl takes a structure whose layout only the caller vouches for")]

use std::fs::File;
use std::io;
use std::time::Instant;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// The kernel's structure ends before the extents, of which there are any number.
const FIEMAP: Opcode = opcode::read_write::<MapHead>(b'f', 11);
const LAST: u32 = 1;
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
    let none =
        Extent { logical: 0, physical: 0, length: 0, reserved: [0; 2], flags: 0, more_reserved: [0; 3] };
    let (mut start, mut bytes) = (0_u64, 0_u64);
    loop {
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let head = MapHead {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped: 0,
            room: EXTENTS as u32,
            reserved: 0,
        };
        let mut map = Map { head, extents: [none; EXTENTS] };
        // SAFETY: the request takes a fiemap with room for as many extents as it says, and fills it in.
        unsafe { ioctl(file, Updater::<FIEMAP, Map>::new(&mut map)) }?;
        let count = usize::try_from(map.head.mapped).unwrap_or_default().min(EXTENTS);
        let found = map.extents.get(..count).unwrap_or_default();
        let shared = found.iter().filter(|extent| extent.flags & SHARED != 0);
        bytes = shared.fold(bytes, |bytes, extent| bytes.saturating_add(extent.length));
        match found.last() {
            Some(last) if last.flags & LAST == 0 => start = last.logical.saturating_add(last.length),
            _ => return Ok(bytes),
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
    }
}
