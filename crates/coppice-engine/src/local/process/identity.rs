//! Recognising a process: a pid alone may belong to somebody else by now.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::LazyLock;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

/// What makes a process unmistakable on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Changes with every boot.
    pub boot_id: String,
    /// Its pid.
    pub pid: u32,
    /// Clock ticks after boot at which it started (proc(5), field 22 of `stat`).
    pub start_time: u64,
}

/// The id of the running boot.
pub fn boot_id() -> &'static str {
    static BOOT_ID: LazyLock<String> = LazyLock::new(|| {
        fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    });
    &BOOT_ID
}

/// What a file in the directory of a process says; none when the process has ended. A process calls itself what it likes,
/// which may be no UTF-8, and is in there as it is.
pub(super) fn read(pid: u32, file: &str) -> Option<String> {
    let said = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&said).into_owned())
}

/// State letter and start time of a process that exists.
fn stat(pid: u32) -> Option<(char, u64)> {
    let text = read(pid, "stat")?;
    // The command name is in parentheses and may hold anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let start_time = fields.nth(18)?.parse().ok()?;
    Some((state, start_time))
}

impl ProcessIdentity {
    /// The identity of a living process.
    pub fn of(pid: u32) -> Option<Self> {
        let (state, start_time) = stat(pid)?;
        (state != 'Z').then(|| Self { boot_id: boot_id().to_owned(), pid, start_time })
    }

    /// Whether that very process lives; one that has ended and was not waited
    /// for does not.
    pub fn is_alive(&self) -> bool {
        self.boot_id == boot_id()
            && stat(self.pid).is_some_and(|(state, start)| state != 'Z' && start == self.start_time)
    }

    /// The uid and gid it runs under; none when it has ended.
    pub fn account(&self) -> Option<(u32, u32)> {
        let status = read(self.pid, "status")?;
        let account = (effective(&status, "Uid:")?, effective(&status, "Gid:")?);
        // Checked after reading: a recycled pid would show another start time.
        self.is_alive().then_some(account)
    }

    /// The pid that the process has for itself, in its own namespace (proc(5),
    /// `NSpid` of `status`).
    pub fn own_pid(&self) -> u32 {
        let text = read(self.pid, "status").unwrap_or_default();
        let pids = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
        pids.and_then(|pids| pids.split_whitespace().last()?.parse().ok()).unwrap_or(self.pid)
    }

    /// A descriptor that becomes readable when the process ends; none when it
    /// has ended.
    pub fn pidfd(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Checked after opening: a recycled pid would show another start time.
        self.is_alive().then_some(pidfd)
    }
}

/// The second of the four numbers (real, effective, …) in a line of `status` (proc(5)).
fn effective(status: &str, field: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().nth(1)?.parse().ok()
}

/// Living processes of this account whose working directory is `directory`:
/// PostgreSQL's processes all stay in their data directory.
pub fn processes_in(directory: &Path) -> Vec<ProcessIdentity> {
    let own = rustix::process::geteuid().as_raw();
    let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            fs::metadata(format!("/proc/{pid}"))
                .is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == own)
        })
        .filter_map(ProcessIdentity::of)
        .filter(|process| {
            // Looked at between two looks at who it is.
            fs::read_link(format!("/proc/{}/cwd", process.pid)).is_ok_and(|cwd| cwd == directory)
                && process.is_alive()
        })
        .collect()
}

/// A process's directory in `/proc`, opened: it is that of the same process
/// whoever has its number later, and is empty when the process has ended.
#[derive(Debug)]
pub struct ProcessDirectory(OwnedFd);

impl ProcessDirectory {
    /// That of the process which has this number now.
    pub fn open(pid: u32) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, format!("/proc/{pid}"), flags, Mode::empty()).ok().map(Self)
    }

    /// What a file in it says; none when the process has ended.
    pub fn read(&self, name: &str) -> Option<String> {
        let file = openat(&self.0, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut bytes = vec![];
        fs::File::from(file).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes to a file in it.
    ///
    /// # Errors
    /// When that can't be done, also because the process has ended.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let file = openat(&self.0, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        fs::File::from(file).write_all(text.as_bytes())
    }

    /// Who started it (proc(5), `PPid` of `status`); none when it has ended.
    pub fn parent(&self) -> Option<u32> {
        let status = self.read("status")?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;
    use crate::local::process::usage;

    #[test]
    fn a_process_lives_whatever_it_is_called() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join(OsStr::from_bytes(b"\xff) Z 1"));
        symlink("/bin/sleep", &path).expect("a link");
        let mut called = Command::new(&path).arg0("sleep").arg("600").spawn().expect("sleep");
        let process = ProcessIdentity::of(called.id()).expect("it lives");
        assert!(process.is_alive() && process.pidfd().is_some() && process.account().is_some());
        assert!(usage::cpu_used(called.id()).is_some() && usage::memory(&[called.id()]).is_some());
        called.kill().and_then(|()| called.wait()).expect("it ends");
        assert!(!process.is_alive());
    }
}
