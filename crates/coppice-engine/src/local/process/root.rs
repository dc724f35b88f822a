//! The root directory of a server: made anew for each, of what it needs.
//!
//! It is a small file system in memory with the host's libraries, a few device
//! files and the server's own directories mounted in it. Nothing else of the
//! host is left in the server's mount namespace, so no path leads there, and
//! no pool, also not somebody else's, is kept busy by it.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::Path;

use libc::{MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount, mount_change,
    move_mount, open_tree, unmount,
};
use rustix::process::{chdir, pivot_root};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::failure::{Context, Failure};
use super::launch::{BindMount, Isolation, MountUse, Neighbour};
use super::syscalls::restrict_mount;

/// A directory that every Linux has, to put the new root on before it is one.
const BEFORE: &str = "/proc";
/// Where programs look for libraries; on many systems links to those below `/usr`.
const LIBRARIES: [&str; 4] = ["/usr/lib", "/usr/lib64", "/lib", "/lib64"];
/// Where programs are that only making a cluster needs.
const PROGRAMS: [&str; 2] = ["/usr/bin", "/bin"];
const TIME_ZONES: &str = "/usr/share/zoneinfo";
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];
/// What the C library and OpenSSL read: where libraries are, and which
/// algorithms the machine's owner wants.
const COPIED: [&str; 3] = ["/etc/ld.so.cache", "/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf"];

const HARMLESS: u64 = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
const CODE: u64 = HARMLESS | MOUNT_ATTR_RDONLY;
const FILES: u64 = HARMLESS | MOUNT_ATTR_NOEXEC;

/// Makes the root directory and goes there. The caller has its own mount and
/// pid namespaces; `owners` maps the owner on disk to the account, and `door` is
/// the mount that [`socket_of`] found.
pub(super) fn enter(
    isolation: &Isolation,
    owners: Option<&OwnedFd>,
    door: Option<&OwnedFd>,
    has_programs: bool,
) -> Result<(), Failure> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .context("separating the mounts")?;
    let root = in_memory(&[], MountAttrFlags::empty()).context("making a root directory")?;
    attach(&root, Path::new(BEFORE)).context("mounting the root directory")?;
    // From here on, relative paths are in the new root, absolute ones outside.
    chdir(BEFORE).context("entering the root directory")?;

    let programs = if has_programs { &PROGRAMS[..] } else { &[] };
    for path in LIBRARIES.iter().chain(programs).chain([&TIME_ZONES]) {
        take_over(Path::new(path)).with_context(|| format!("mounting {path}"))?;
    }
    devices().context("mounting devices")?;
    settings(isolation.account).context("writing /etc")?;
    make_directory(Path::new("proc"), 0o755).context("making /proc")?;
    let harmless = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "proc", "proc", harmless, Some(c"subset=pid")).context("mounting /proc")?;
    for bind in &isolation.mounts {
        mount_directory(bind, owners)
            .with_context(|| format!("mounting {} on {}", bind.from.display(), bind.to.display()))?;
    }
    if let Some(path) = &isolation.socket {
        socket_directory(path, isolation.account).context("making a directory for the socket")?;
    }
    if let (Some(neighbour), Some(door)) = (&isolation.neighbour, door) {
        let to = inside(&neighbour.to);
        let mounted = make_directory(to, 0o755)
            .and_then(|()| restrict_mount(door.as_fd(), FILES | MOUNT_ATTR_RDONLY, None))
            .and_then(|()| attach(door, to));
        mounted.context("mounting the socket of the server to follow")?;
    }
    restrict_mount(root.as_fd(), FILES | MOUNT_ATTR_RDONLY, None).context("closing the root directory")?;

    pivot_root(".", ".").context("changing the root directory")?;
    // The host's is on top of the new one now.
    unmount(".", UnmountFlags::DETACH).context("leaving the host's directories")?;
    chdir("/").context("entering the root directory")
}

/// The directory of another server's socket, as a mount of nobody yet. A mount can
/// be copied only from inside the namespace that it is in, so we go there and come
/// back; the caller has a single thread.
pub(super) fn socket_of(neighbour: &Neighbour) -> io::Result<OwnedFd> {
    let own = fs::File::open("/proc/self/ns/mnt")?;
    let other = fs::File::open(format!("/proc/{}/ns/mnt", neighbour.pid))?;
    let mounts = Some(LinkNameSpaceType::Mount);
    move_into_link_name_space(other.as_fd(), mounts)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(rustix::fs::CWD, &neighbour.from, flags);
    move_into_link_name_space(own.as_fd(), mounts)?;
    Ok(tree?)
}

/// A path of the host as one in the new root.
fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path)
}

/// A file system in memory, mounted nowhere yet.
fn in_memory(options: &[(&str, &str)], attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        fsconfig_set_string(&context, *name, *value)?;
    }
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Small: whatever the server puts there, the host has room. Its replicas, which
/// are in its group, get to its socket there, and see nothing else.
fn socket_directory(path: &Path, account: u32) -> io::Result<()> {
    let account = account.to_string();
    let owner = account.as_str();
    let options = [("size", "1m"), ("nr_inodes", "64"), ("mode", "0710"), ("uid", owner), ("gid", owner)];
    let harmless = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = in_memory(&options, harmless)?;
    make_directory(inside(path), 0o755)?;
    attach(&mount, inside(path))
}

fn attach(mount: &OwnedFd, to: &Path) -> io::Result<()> {
    let empty_path = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(mount, "", rustix::fs::CWD, to, empty_path)?)
}

fn bind(from: &Path, to: &Path, attributes: u64, owners: Option<&OwnedFd>) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(rustix::fs::CWD, from, flags)?;
    restrict_mount(tree.as_fd(), attributes, owners.map(AsFd::as_fd))?;
    attach(&tree, to)
}

/// Shows a directory of the system, if there is one, in its own place.
fn take_over(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => symlink(fs::read_link(path)?, inside(path)),
        Ok(_) => {
            make_directory(inside(path), 0o755)?;
            bind(path, inside(path), CODE, None)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn devices() -> io::Result<()> {
    make_directory(Path::new("dev"), 0o755)?;
    for path in DEVICES.map(Path::new) {
        fs::write(inside(path), "")?;
        bind(path, inside(path), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, None)?;
    }
    let shared_memory = Path::new("dev/shm");
    make_directory(shared_memory, 0o755)?;
    fs::set_permissions(shared_memory, Permissions::from_mode(0o1777))?;
    // The same file system, and the only place in it that can be written.
    bind(shared_memory, shared_memory, FILES, None)
}

fn settings(account: u32) -> io::Result<()> {
    make_directory(Path::new("etc"), 0o755)?;
    fs::write(
        "etc/passwd",
        format!("root:x:0:0::/:/bin/false\npostgres:x:{account}:{account}::/:/bin/false\n"),
    )?;
    fs::write("etc/group", format!("root:x:0:\npostgres:x:{account}:\n"))?;
    for path in COPIED.map(Path::new).into_iter().filter(|path| path.exists()) {
        make_directory(inside(path).parent().unwrap_or(Path::new("etc")), 0o755)?;
        fs::copy(path, inside(path))?;
    }
    Ok(())
}

fn mount_directory(mount: &BindMount, owners: Option<&OwnedFd>) -> io::Result<()> {
    let attributes = match mount.usage {
        MountUse::Code => CODE,
        MountUse::Read => FILES | MOUNT_ATTR_RDONLY,
        MountUse::Write => FILES,
    };
    let to = inside(&mount.to);
    make_directory(to, 0o755)?;
    bind(&mount.from, to, attributes, owners.filter(|_| mount.owner_on_disk.is_some()))
}
