//! System calls that no library wraps, and `fork`.

#![allow(unsafe_code, reason = "raw system calls")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::process::Pid;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Changes what a mount allows (`MOUNT_ATTR_*` of mount_setattr(2)). With a
/// user namespace, a detached mount also shows its files as owned by others
/// than on disk, as that namespace maps them.
pub(super) fn restrict_mount(
    mount: BorrowedFd<'_>,
    attributes: u64,
    owners: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    match owners {
        None => set_attributes(mount, attributes, 0),
        Some(namespace) => {
            let namespace = u64::try_from(namespace.as_raw_fd()).unwrap_or_default();
            set_attributes(mount, attributes | libc::MOUNT_ATTR_IDMAP, namespace)
        }
    }
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
    match unsafe { libc::fork() } {
        0 => {
            body();
            std::process::exit(0);
        }
        pid => Pid::from_raw(pid.max(0)).ok_or_else(io::Error::last_os_error),
    }
}

/// Which of two processes a call returned in.
pub(super) enum Fork {
    /// With the pid of the other one.
    Parent(Pid),
    Child,
}

/// Goes on twice: here, and in a process that is a child of this one's parent
/// (clone(2), CLONE_PARENT). It is born in a cgroup of the unified hierarchy,
/// if one is given, and may be the first process of a pid namespace.
///
/// The caller must have a single thread, as the launcher does.
pub(super) fn fork_beside(cgroup: Option<BorrowedFd<'_>>, is_first: bool) -> io::Result<Fork> {
    // As in linux/sched.h; the constant of `libc` is too narrow.
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut flags = u64::from(libc::CLONE_PARENT.unsigned_abs());
    if cgroup.is_some() {
        flags |= CLONE_INTO_CGROUP;
    }
    if is_first {
        flags |= u64::from(libc::CLONE_NEWPID.unsigned_abs());
    }
    let arguments = libc::clone_args {
        flags,
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
        cgroup: cgroup.and_then(|cgroup| u64::try_from(cgroup.as_raw_fd()).ok()).unwrap_or_default(),
    };
    // SAFETY: without a stack and without sharing memory this is a `fork`, and
    // the launcher has one thread, so the child may go on as usual. `arguments`
    // lives through the call, and its size is passed with it.
    let result =
        unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) };
    match result {
        0 => Ok(Fork::Child),
        pid => match i32::try_from(pid.max(0)).ok().and_then(Pid::from_raw) {
            Some(pid) => Ok(Fork::Parent(pid)),
            None => Err(io::Error::last_os_error()),
        },
    }
}

/// Leaves namespaces for new ones.
pub(super) fn leave_namespaces(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: descriptors are not among what is left.
    unsafe { unshare_unsafe(flags.difference(UnshareFlags::FILES)) }.map_err(io::Error::from)
}

/// Lets every signal through that was blocked.
pub(super) fn unblock_signals() -> io::Result<()> {
    // SAFETY: the empty set is made before it is used, and the former one is not asked for.
    let result = unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sees to it that no descriptor but the first three outlives an `execve`.
pub(super) fn keep_descriptors_from_programs() -> io::Result<()> {
    // SAFETY: descriptors are only marked; none is closed here.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts a filter in front of every system call from here on, for this process
/// and whatever it becomes (seccomp(2)). The process must have given up new
/// privileges.
pub(super) fn filter_calls(filter: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut() };
    // SAFETY: `program` and what it points to live through the call, which
    // copies them and changes nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            // Without it, older kernels slow the whole server down.
            libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            &raw const program,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Becomes a program, as `execve` does; returns only when that fails. The key
/// goes to the three arguments that `execve` does not look at.
pub(super) fn execute(
    program: &CStr,
    arguments: &[CString],
    environment: &[CString],
    key: &[u64; 3],
) -> io::Error {
    let pointers = |texts: &[CString]| {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: Rust ignores SIGPIPE and a program must not inherit that. All
    // texts end with NUL, all arrays with a null pointer, and all of them live
    // through the call.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::syscall(
            libc::SYS_execve,
            program.as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            key[0],
            key[1],
            key[2],
        );
    }
    io::Error::last_os_error()
}

/// Lets the async runtime wait for the end of a process.
pub(in crate::local) fn watch_exit(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` keeps its descriptor open and the same.
    unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }.map_err(io::Error::from)
}
