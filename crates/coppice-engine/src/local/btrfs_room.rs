//! Room for btrfs's metadata, and how to give it some of what is set aside for data.
//!
//! btrfs divides its device into chunks, each for data or for metadata. Names, small files
//! and all that is known of extents is metadata: where no chunk of it has room and nothing is
//! left to make another one of, nothing can be made or written any more, however much
//! statvfs(2) says is free in chunks for data.
#![expect(unsafe_code, reason = "an ioctl takes a structure whose layout only the caller vouches for")]

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

const BTRFS_IOCTL_MAGIC: u8 = 0x94;
/// The kernel's structure ends before the rooms, of which there are any number.
const SPACE_INFO: Opcode = opcode::read_write::<[u64; 2]>(BTRFS_IOCTL_MAGIC, 20);
const DEV_INFO: Opcode = opcode::read_write::<DevInfo>(BTRFS_IOCTL_MAGIC, 30);
const FS_INFO: Opcode = opcode::read::<FsInfo>(BTRFS_IOCTL_MAGIC, 31);
const BALANCE_V2: Opcode = opcode::read_write::<Balance>(BTRFS_IOCTL_MAGIC, 32);

/// What a chunk is for, and how it is kept.
const DATA: u64 = 1;
const METADATA: u64 = 1 << 2;
/// RAID1, DUP and RAID10 keep everything twice,
const TWICE: u64 = 1 << 4 | 1 << 5 | 1 << 6;
/// RAID1C3 three times,
const THRICE: u64 = 1 << 9;
/// and RAID1C4 four times.
const FOUR_TIMES: u64 = 1 << 10;
/// No chunk: what the kernel keeps of the metadata for its own work.
const RESERVE: u64 = 1 << 49;
/// Near its reserve the kernel says that there is no room. Seen with 4 MiB left.
const KERNEL_KEEPS: u64 = 4 << 20;
/// More kinds of chunks than there are.
const KINDS: usize = 64;

/// A chunk of which less than so many of a hundred parts are used is worth emptying.
const USED_MAX: u64 = 50;
const BALANCE_DATA: u64 = 1;
const BALANCE_USAGE: u64 = 1 << 1;
const BALANCE_LIMIT: u64 = 1 << 5;

/// `struct btrfs_ioctl_space_info`
#[repr(C)]
#[derive(Clone, Copy)]
struct Space {
    flags: u64,
    total_bytes: u64,
    used_bytes: u64,
}

/// `struct btrfs_ioctl_space_args`
#[repr(C)]
struct Spaces {
    slots: u64,
    count: u64,
    spaces: [Space; KINDS],
}

/// `struct btrfs_ioctl_fs_info_args`
#[repr(C)]
struct FsInfo {
    max_id: u64,
    num_devices: u64,
    others: [u64; 126],
}

/// `struct btrfs_ioctl_dev_info_args`
#[repr(C)]
struct DevInfo {
    devid: u64,
    uuid: [u64; 2],
    bytes_used: u64,
    total_bytes: u64,
    others: [u64; 507],
}

/// `struct btrfs_balance_args`
#[repr(C)]
#[derive(Clone, Copy)]
struct BalanceArgs {
    profiles: u64,
    usage: u64,
    range: [u64; 6],
    flags: u64,
    limit: u64,
    others: [u64; 7],
}

/// `struct btrfs_ioctl_balance_args`
#[repr(C)]
struct Balance {
    flags: u64,
    state: u64,
    data: BalanceArgs,
    metadata: BalanceArgs,
    system: BalanceArgs,
    others: [u64; 75],
}

const _: () = assert!(size_of::<Spaces>() == 16 + 24 * KINDS);
const _: () = assert!(size_of::<FsInfo>() == 1024);
const _: () = assert!(size_of::<DevInfo>() == 4096);
const _: () = assert!(size_of::<BalanceArgs>() == 136);
const _: () = assert!(size_of::<Balance>() == 1024);

/// How much metadata can still be written on a file system, in bytes; none where data and
/// metadata share their chunks.
pub(super) fn metadata_free(path: &Path) -> io::Result<Option<u64>> {
    let root = File::open(path)?;
    let (spaces, unallocated) = (spaces(&root)?, unallocated(&root)?);
    Ok(free(&spaces, unallocated))
}

fn free(spaces: &[Space], unallocated: u64) -> Option<u64> {
    let (mut room, mut kept, mut copies) = (0, KERNEL_KEEPS, 1);
    for space in spaces {
        if space.flags & RESERVE != 0 {
            kept += space.total_bytes;
        } else if space.flags & METADATA != 0 {
            if space.flags & DATA != 0 {
                return None;
            }
            room += space.total_bytes.saturating_sub(space.used_bytes);
            copies = copies.max(copies_of(space.flags));
        }
    }
    Some((room + unallocated / copies).saturating_sub(kept))
}

fn copies_of(flags: u64) -> u64 {
    match flags {
        _ if flags & FOUR_TIMES != 0 => 4,
        _ if flags & THRICE != 0 => 3,
        _ if flags & TWICE != 0 => 2,
        _ => 1,
    }
}

/// Chunks by kind.
fn spaces(root: &File) -> io::Result<Vec<Space>> {
    let none = Space { flags: 0, total_bytes: 0, used_bytes: 0 };
    let mut args = Spaces { slots: KINDS as u64, count: 0, spaces: [none; KINDS] };
    // SAFETY: the request takes a btrfs_ioctl_space_args and fills in as many as it says.
    unsafe { ioctl(root, Updater::<SPACE_INFO, Spaces>::new(&mut args)) }?;
    Ok(args.spaces[..KINDS.min(args.count as usize)].to_vec())
}

/// Bytes of all devices that are in no chunk.
fn unallocated(root: &File) -> io::Result<u64> {
    let mut all = FsInfo { max_id: 0, num_devices: 0, others: [0; 126] };
    // SAFETY: the request takes a btrfs_ioctl_fs_info_args and fills it in.
    unsafe { ioctl(root, Updater::<FS_INFO, FsInfo>::new(&mut all)) }?;
    let mut bytes = 0;
    for devid in 1..=all.max_id {
        let mut device = DevInfo { devid, uuid: [0; 2], bytes_used: 0, total_bytes: 0, others: [0; 507] };
        // SAFETY: the request takes a btrfs_ioctl_dev_info_args and fills it in.
        match unsafe { ioctl(root, Updater::<DEV_INFO, DevInfo>::new(&mut device)) } {
            Ok(()) => bytes += device.total_bytes.saturating_sub(device.bytes_used),
            // It was removed.
            Err(Errno::NODEV) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

/// Moves what is in one chunk for data that is less than half full into others, so that it
/// can become one for metadata. Takes as long as half a GiB does to be written, at most. Does
/// nothing where there is no such chunk, no room to work in, or the like is under way.
pub(super) fn empty_a_chunk(path: &Path) -> io::Result<()> {
    let root = File::open(path)?;
    let none = BalanceArgs { profiles: 0, usage: 0, range: [0; 6], flags: 0, limit: 0, others: [0; 7] };
    let data = BalanceArgs { usage: USED_MAX, flags: BALANCE_USAGE | BALANCE_LIMIT, limit: 1, ..none };
    let mut args =
        Balance { flags: BALANCE_DATA, state: 0, data, metadata: none, system: none, others: [0; 75] };
    // SAFETY: the request takes a btrfs_ioctl_balance_args and fills it in.
    match unsafe { ioctl(&root, Updater::<BALANCE_V2, Balance>::new(&mut args)) } {
        Ok(()) | Err(Errno::NOSPC | Errno::INPROGRESS | Errno::EXIST | Errno::CANCELED) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const DUP: u64 = 1 << 5;

    fn space(flags: u64, total_mib: u64, used_mib: u64) -> Space {
        Space { flags, total_bytes: total_mib * MIB, used_bytes: used_mib * MIB }
    }

    #[test]
    fn metadata_has_what_its_chunks_have_and_as_many_copies_as_are_kept_take_of_the_rest() {
        let data = space(DATA, 500, 200);
        let reserve = space(METADATA | RESERVE, 6, 0);
        let room = |metadata, unallocated| free(&[data, metadata, reserve], unallocated * MIB);
        assert_eq!(room(space(METADATA | DUP, 32, 2), 0), Some(20 * MIB));
        assert_eq!(room(space(METADATA | DUP, 32, 2), 100), Some(70 * MIB));
        assert_eq!(room(space(METADATA, 32, 2), 100), Some(120 * MIB));
        assert_eq!(room(space(METADATA | FOUR_TIMES, 32, 2), 100), Some(45 * MIB));
        assert_eq!(room(space(METADATA | DUP, 32, 24), 1), Some(0));
        assert_eq!(room(space(METADATA | DATA, 32, 2), 0), None);
    }
}
