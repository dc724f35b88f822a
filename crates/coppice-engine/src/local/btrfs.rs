//! The few requests to btrfs that have no ordinary system call.
//!
//! The `btrfs` command could do the same, but starting it costs more than a
//! snapshot does.
#![expect(unsafe_code, reason = "an ioctl takes a structure whose layout only the caller vouches for")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::ioctl::{Getter, NoArg, Opcode, Setter, Updater, ioctl, opcode};

const BTRFS_IOCTL_MAGIC: u8 = 0x94;
const RESIZE: Opcode = opcode::write::<VolArgs>(BTRFS_IOCTL_MAGIC, 3);
const SYNC: Opcode = opcode::none(BTRFS_IOCTL_MAGIC, 8);
const SNAP_CREATE_V2: Opcode = opcode::write::<VolArgsV2>(BTRFS_IOCTL_MAGIC, 23);
const SUBVOL_CREATE_V2: Opcode = opcode::write::<VolArgsV2>(BTRFS_IOCTL_MAGIC, 24);
const GET_SUBVOL_INFO: Opcode = opcode::read::<SubvolInfo>(BTRFS_IOCTL_MAGIC, 60);
const GET_SUBVOL_ROOTREF: Opcode = opcode::read_write::<RootrefArgs>(BTRFS_IOCTL_MAGIC, 61);
const SNAP_DESTROY_V2: Opcode = opcode::write::<VolArgsV2>(BTRFS_IOCTL_MAGIC, 63);

/// `f_type` of statfs(2).
const SUPER_MAGIC: u64 = 0x9123_683e;
/// The inode number of every subvolume's root directory.
const SUBVOLUME_INODE: u64 = 256;

/// `struct btrfs_ioctl_vol_args`
#[repr(C)]
struct VolArgs {
    fd: i64,
    name: [u8; 4088],
}

/// `struct btrfs_ioctl_vol_args_v2`
#[repr(C)]
struct VolArgsV2 {
    fd: i64,
    transid: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4040],
}

/// `struct btrfs_ioctl_get_subvol_rootref_args`
#[repr(C)]
struct RootrefArgs {
    min_treeid: u64,
    rootref: [[u64; 2]; 255],
    num_items: u8,
    align: [u8; 7],
}

/// `struct btrfs_ioctl_get_subvol_info_args`
#[repr(C)]
struct SubvolInfo {
    treeid: u64,
    name: [u8; 256],
    parent_id: u64,
    dirid: u64,
    generation: u64,
    flags: u64,
    uuid: [u64; 2],
    parent_uuid: [u64; 2],
    received_uuid: [u64; 2],
    ctransid: u64,
    otransid: u64,
    others: [u64; 18],
}

/// How a subvolume came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubvolumeOrigin {
    /// It was made empty.
    Empty,
    /// It was made as a snapshot, in this transaction.
    Snapshot { made: u64 },
}

const _: () = assert!(size_of::<SubvolInfo>() == 504);
const _: () = assert!(size_of::<VolArgs>() == 4096);
const _: () = assert!(size_of::<VolArgsV2>() == 4096);
const _: () = assert!(size_of::<RootrefArgs>() == 4096);

/// Makes an empty subvolume.
pub(super) fn create_subvolume(path: &Path) -> io::Result<()> {
    let (parent, name) = split(path)?;
    let args = named(&name)?;
    // SAFETY: the request takes a btrfs_ioctl_vol_args_v2 and only reads it.
    unsafe { ioctl(&parent, Setter::<SUBVOL_CREATE_V2, VolArgsV2>::new(args)) }?;
    Ok(())
}

/// Makes a writable subvolume with the content of `source`, a subvolume, at
/// one moment. It is durable when this returns.
pub(super) fn snapshot(source: &Path, path: &Path) -> io::Result<()> {
    let source = File::open(source)?;
    let (parent, name) = split(path)?;
    let mut args = named(&name)?;
    args.fd = i64::from(source.as_raw_fd());
    // SAFETY: the request takes a btrfs_ioctl_vol_args_v2 and only reads it;
    // `source` stays open until it returns.
    unsafe { ioctl(&parent, Setter::<SNAP_CREATE_V2, VolArgsV2>::new(args)) }?;
    Ok(())
}

/// Commits what is pending on a file system, and lets the kernel look for subvolumes that
/// were deleted. Their blocks are free at the next commit after that look; by itself it
/// does both twice a minute. syncfs(2) only commits, which puts the look off.
pub(super) fn commit(path: &Path) -> io::Result<()> {
    let root = File::open(path)?;
    // SAFETY: the request takes no argument.
    unsafe { ioctl(&root, NoArg::<SYNC>::new()) }?;
    Ok(())
}

/// Deletes a subvolume; the kernel frees its blocks in the background.
pub(super) fn delete_subvolume(path: &Path) -> io::Result<()> {
    let (parent, name) = split(path)?;
    delete_subvolume_in(parent, &name)
}

/// Deletes the subvolume `name` of an open directory. Links are not followed.
pub(super) fn delete_subvolume_in(parent: impl AsFd, name: &CStr) -> io::Result<()> {
    let args = named(name)?;
    // SAFETY: the request takes a btrfs_ioctl_vol_args_v2 and only reads it.
    unsafe { ioctl(parent, Setter::<SNAP_DESTROY_V2, VolArgsV2>::new(args)) }?;
    Ok(())
}

/// Whether `path` is on btrfs.
pub(super) fn is_btrfs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type as u64 == SUPER_MAGIC)
}

/// Whether `path` is the root of a subvolume.
pub(super) fn is_subvolume(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.ino() == SUBVOLUME_INODE) && is_btrfs(path)
}

/// The transaction in which `path`, a subvolume, was last changed, of those that
/// were committed.
pub(super) fn generation(path: &Path) -> io::Result<u64> {
    Ok(info(&File::open(path)?)?.generation)
}

/// How an open subvolume came to be.
pub(super) fn origin(subvolume: &File) -> io::Result<SubvolumeOrigin> {
    let info = info(subvolume)?;
    Ok(match info.parent_uuid {
        [0, 0] => SubvolumeOrigin::Empty,
        _ => SubvolumeOrigin::Snapshot { made: info.otransid },
    })
}

fn info(subvolume: &File) -> io::Result<SubvolInfo> {
    // SAFETY: the request fills in a btrfs_ioctl_get_subvol_info_args.
    Ok(unsafe { ioctl(subvolume, Getter::<GET_SUBVOL_INFO, SubvolInfo>::new()) }?)
}

/// Whether `path`, a subvolume, contains others. A snapshot would leave them out.
pub(super) fn has_nested_subvolumes(path: &Path) -> io::Result<bool> {
    let subvolume = File::open(path)?;
    let mut args = RootrefArgs { min_treeid: 0, rootref: [[0; 2]; 255], num_items: 0, align: [0; 7] };
    // SAFETY: the request takes a btrfs_ioctl_get_subvol_rootref_args and fills it in.
    let answer = unsafe { ioctl(&subvolume, Updater::<GET_SUBVOL_ROOTREF, RootrefArgs>::new(&mut args)) };
    match answer {
        Ok(()) => Ok(args.num_items > 0),
        // More than fit into one answer.
        Err(rustix::io::Errno::OVERFLOW) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Makes the file system fill its device.
pub(super) fn resize_to_device(mount_point: &Path) -> io::Result<()> {
    let root = File::open(mount_point)?;
    let mut args = VolArgs { fd: 0, name: [0; 4088] };
    args.name[..3].copy_from_slice(b"max");
    // SAFETY: the request takes a btrfs_ioctl_vol_args and only reads it.
    unsafe { ioctl(root.as_fd(), Setter::<RESIZE, VolArgs>::new(args)) }?;
    Ok(())
}

/// The directory `path` is in, opened, and its last component.
fn split(path: &Path) -> io::Result<(File, CString)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    Ok((File::open(parent)?, CString::new(name.as_bytes())?))
}

/// Arguments with this name.
fn named(name: &CStr) -> io::Result<VolArgsV2> {
    let name = name.to_bytes_with_nul();
    let mut args = VolArgsV2 { fd: 0, transid: 0, flags: 0, unused: [0; 4], name: [0; 4040] };
    let place = args.name.get_mut(..name.len()).ok_or(io::ErrorKind::InvalidFilename)?;
    place.copy_from_slice(name);
    Ok(args)
}
