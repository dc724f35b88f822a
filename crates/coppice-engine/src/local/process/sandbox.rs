//! What the launched process does to itself before it becomes the program.
//!
//! The launcher is a hidden subcommand with a single thread. Every mount is
//! made in its private mount namespace, and System V and POSIX shared memory
//! are private too, so nothing is left of it when its processes are gone.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use failure::{Context, Failure};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
    path_beneath_rules,
};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid, setsid};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind,
    mount_change, move_mount, open_tree, unmount,
};

use super::launch::{BindMount, FileAccess, Isolation, LaunchSpec};
use super::syscalls::{Fork, fork_child, fork_into, set_id_map, set_read_only};

/// The newest Landlock rules this program knows; an older kernel enforces what
/// it can.
const LANDLOCK_ABI: ABI = ABI::V6;

/// Reads a [`LaunchSpec`] from standard input, confines this process to it
/// and becomes its program. Does not return.
#[expect(clippy::disallowed_methods, reason = "a launcher that failed has nothing to clean up")]
pub fn launcher_main() -> ! {
    let failure = match launch() {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    eprintln!("launcher: {failure}");
    std::process::exit(71);
}

fn launch() -> Result<std::convert::Infallible, Failure> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).context("reading the description")?;
    let spec: LaunchSpec = serde_json::from_str(&text).context("understanding the description")?;

    if let Some(cgroup) = &spec.cgroup {
        enter_cgroup(cgroup).with_context(|| format!("joining {}", cgroup.display()))?;
    }
    rustix::io::write(io::stdin(), &std::process::id().to_le_bytes()).context("telling the pid")?;
    // Fails only for a process that leads a group already.
    let _ = setsid();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None).context("clearing the signal mask")?;
    let input = match &spec.input {
        Some(path) => Stdio::from(fs::File::open(path).context("opening the input")?),
        None => Stdio::null(),
    };
    if let Some(isolation) = &spec.isolation {
        isolate(isolation, &spec.access)?;
    }
    confine_files(&spec.access)?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));

    let error = Command::new(&spec.program)
        .args(&spec.arguments)
        .env_clear()
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .stdin(input)
        .current_dir("/")
        .exec();
    Err(error).with_context(|| format!("running {}", spec.program.display()))
}

/// Goes on inside a cgroup. A process that is born there costs nothing; one
/// that moves there waits until every processor has noticed, 10 to 20 ms.
#[expect(
    clippy::disallowed_methods,
    reason = "the launcher's work is done by its child, and nothing is open"
)]
fn enter_cgroup(directory: &Path) -> io::Result<()> {
    let cgroup = fs::File::open(directory)?;
    match fork_into(cgroup.as_fd()) {
        Ok(Fork::Child) => Ok(()),
        Ok(Fork::Parent) => std::process::exit(0),
        // A kernel before 5.7, or one that forbids it.
        Err(_) => fs::write(directory.join("cgroup.procs"), std::process::id().to_string()),
    }
}

fn isolate(isolation: &Isolation, access: &FileAccess) -> Result<(), Failure> {
    let apart = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC;
    unshare(apart).context("leaving the host's namespaces")?;
    // Unmounts on the host still reach us; our mounts do not reach the host.
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", downstream).context("separating the mounts")?;
    for bind in &isolation.mounts {
        mount_directory(bind, isolation.account)
            .with_context(|| format!("mounting {} on {}", bind.from.display(), bind.to.display()))?;
    }
    mount_bind(&isolation.passwd, "/etc/passwd").context("naming the account")?;
    let shared_memory = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("tmpfs", "/dev/shm", "tmpfs", shared_memory, Some(c"mode=1777"))
        .context("mounting shared memory")?;

    drop_other_mounts(access)?;

    let (uid, gid) = (Uid::from_raw(isolation.account), Gid::from_raw(isolation.account));
    setgroups(&[]).context("leaving groups")?;
    setresgid(gid, gid, gid).context("changing the group")?;
    setresuid(uid, uid, uid).context("changing the account")
}

/// Detaches every mount that the program has no use for. A copy of a file
/// system's mount keeps it busy, so without this no pool, also not somebody
/// else's, could be detached while any server runs.
fn drop_other_mounts(access: &FileAccess) -> Result<(), Failure> {
    let needed: Vec<_> = [&access.execute, &access.read, &access.write].into_iter().flatten().collect();
    let table = fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    let useless: Vec<_> = points
        .filter(|point| !needed.iter().any(|path| path.starts_with(point) || point.starts_with(path)))
        .collect();
    // The newest first, so that what is mounted on a mount goes before it.
    for point in useless.iter().rev() {
        // One that was below another is gone with it.
        let _ = unmount(point, UnmountFlags::DETACH);
    }
    Ok(())
}

/// A path of `mountinfo`, where blanks and such are written in octal (proc(5)).
fn unescape(text: &str) -> PathBuf {
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal =
            tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

fn mount_directory(bind: &BindMount, account: u32) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(rustix::fs::CWD, &bind.from, flags)?;
    if let Some(owner) = bind.owner_on_disk {
        let namespace = id_mapping_namespace(owner, account)?;
        set_id_map(tree.as_fd(), namespace.as_fd())?;
    }
    if bind.is_read_only {
        set_read_only(tree.as_fd())?;
    }
    let empty_path = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(tree.as_fd(), "", rustix::fs::CWD, &bind.to, empty_path)?;
    Ok(())
}

/// A user namespace in which `owner` on disk is `account`. A namespace needs a
/// process while it is opened, so a child makes it and waits to be ended.
fn id_mapping_namespace(owner: u32, account: u32) -> io::Result<OwnedFd> {
    let (made_read, made_write) = rustix::pipe::pipe()?;
    let child = fork_child(move || {
        if unshare(CloneFlags::CLONE_NEWUSER).is_ok() {
            let _ = rustix::io::write(&made_write, b"x");
            // Long enough to be opened; the caller ends it much sooner.
            std::thread::sleep(std::time::Duration::from_secs(30));
        }
    })?;
    let outcome = (|| {
        if rustix::io::read(&made_read, &mut [0; 1][..])? == 0 {
            return Err(io::Error::other("this kernel makes no user namespace"));
        }
        let map = format!("{owner} {account} 1\n");
        fs::write(format!("/proc/{child}/uid_map"), &map)?;
        fs::write(format!("/proc/{child}/gid_map"), &map)?;
        Ok(OwnedFd::from(fs::File::open(format!("/proc/{child}/ns/user"))?))
    })();
    let _ = nix::sys::signal::kill(child, Signal::SIGKILL);
    let _ = waitpid(child, None);
    outcome
}

fn confine_files(access: &FileAccess) -> Result<(), Failure> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let rules = |paths: &[PathBuf], rights| {
        let present: Vec<_> = paths.iter().filter(|path| Path::exists(path)).cloned().collect();
        path_beneath_rules(present, rights)
    };
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(LANDLOCK_ABI)))
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.add_rules(rules(&access.execute, read | AccessFs::Execute)))
        .and_then(|ruleset| ruleset.add_rules(rules(&access.read, read)))
        .and_then(|ruleset| {
            ruleset.add_rules(rules(&access.write, AccessFs::from_all(LANDLOCK_ABI) & !AccessFs::Execute))
        })
        // Also sets no_new_privs.
        .and_then(landlock::RulesetCreated::restrict_self)
        .context("confining file access")?;
    Ok(())
}

/// The newest version of Landlock's rules that this kernel and this program
/// know; none without Landlock.
pub fn landlock_version() -> Option<u32> {
    let versions = [(6, ABI::V6), (5, ABI::V5), (4, ABI::V4), (3, ABI::V3), (2, ABI::V2), (1, ABI::V1)];
    let is_known = |abi| {
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi))
            .and_then(|ruleset| {
                let scopes = Scope::from_all(abi);
                if scopes.is_empty() { Ok(ruleset) } else { ruleset.scope(scopes) }
            })
            .and_then(Ruleset::create)
            .is_ok()
    };
    versions.into_iter().find(|(_, abi)| is_known(*abi)).map(|(version, _)| version)
}

/// Errors of a process that has only its standard error to report to.
mod failure {
    use std::fmt;

    /// What was being done, and why it failed.
    #[derive(Debug)]
    pub(super) struct Failure(String);

    impl fmt::Display for Failure {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.0)
        }
    }

    /// Adds what was being done.
    pub(super) trait Context<T> {
        fn context(self, action: &str) -> Result<T, Failure>;
        fn with_context(self, action: impl FnOnce() -> String) -> Result<T, Failure>;
    }

    impl<T, E: fmt::Display> Context<T> for Result<T, E> {
        fn context(self, action: &str) -> Result<T, Failure> {
            self.with_context(|| action.to_owned())
        }

        fn with_context(self, action: impl FnOnce() -> String) -> Result<T, Failure> {
            self.map_err(|error| Failure(format!("{}: {error}", action())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_and_backslashes_in_mount_points_are_understood() {
        assert_eq!(unescape("/a\\040b\\134c"), PathBuf::from("/a b\\c"));
        assert_eq!(unescape("/plain"), PathBuf::from("/plain"));
    }
}
