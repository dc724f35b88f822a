//! System calls that no library wraps, and `fork`.

#![allow(unsafe_code, reason = "raw system calls")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::libc;
use nix::unistd::{ForkResult, Pid, fork};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Makes a detached mount show files owned by others than on disk, as the
/// user namespace `userns` maps them (mount_setattr(2), MOUNT_ATTR_IDMAP).
pub(super) fn set_id_map(mount: BorrowedFd<'_>, userns: BorrowedFd<'_>) -> io::Result<()> {
    set_attributes(mount, libc::MOUNT_ATTR_IDMAP, u64::try_from(userns.as_raw_fd()).unwrap_or_default())
}

/// Makes a detached mount read-only.
pub(super) fn set_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    set_attributes(mount, libc::MOUNT_ATTR_RDONLY, 0)
}

fn set_attributes(mount: BorrowedFd<'_>, attributes: u64, userns_fd: u64) -> io::Result<()> {
    #[repr(C)]
    struct MountAttr {
        attr_set: u64,
        attr_clr: u64,
        propagation: u64,
        userns_fd: u64,
    }
    let attr = MountAttr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd };
    // SAFETY: the path is a NUL-terminated empty string, `attr` lives through
    // the call, and its size is passed with it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs `body` in a child process and returns its pid.
///
/// The caller must have a single thread, as the launcher does.
#[expect(
    clippy::disallowed_methods,
    reason = "the launcher has one thread, and its child nothing to clean up"
)]
pub(super) fn fork_child(body: impl FnOnce()) -> io::Result<Pid> {
    // SAFETY: the launcher has one thread, so the child may go on as usual.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            body();
            std::process::exit(0);
        }
    }
}

/// Which of two processes a call returned in.
pub(super) enum Fork {
    Parent,
    Child,
}

/// Goes on twice: here, and in a process that is born in a cgroup of the
/// unified hierarchy, as a child of this one's parent (clone(2),
/// CLONE_INTO_CGROUP and CLONE_PARENT).
///
/// The caller must have a single thread, as the launcher does.
pub(super) fn fork_into(cgroup: BorrowedFd<'_>) -> io::Result<Fork> {
    // As in linux/sched.h; the constant of `libc` is too narrow.
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let arguments = libc::clone_args {
        flags: CLONE_INTO_CGROUP | u64::from(libc::CLONE_PARENT.unsigned_abs()),
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        // That of this process is inherited with its parent.
        exit_signal: 0,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: u64::try_from(cgroup.as_raw_fd()).unwrap_or_default(),
    };
    // SAFETY: without a stack and without sharing memory this is a `fork`, and
    // the launcher has one thread, so the child may go on as usual. `arguments`
    // lives through the call, and its size is passed with it.
    let result =
        unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) };
    match result {
        0 => Ok(Fork::Child),
        pid if pid > 0 => Ok(Fork::Parent),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the async runtime wait for the end of a process.
pub(in crate::local) fn watch_exit(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` keeps its descriptor open and the same.
    unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }.map_err(io::Error::from)
}
