//! The description of a confined program, handed to the launcher.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::watch_exit;
use crate::local::blocking::to_its_end;
use crate::{EngineError, Result};

/// A program and its confinement. Holds no secret: it is passed as text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// The program to become.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// A file for its standard input; none means empty.
    pub input: Option<PathBuf>,
    /// Directory of its cgroup in the unified hierarchy.
    pub cgroup: Option<PathBuf>,
    /// Directories of version 1, where nothing is born: it joins them before it is
    /// the program. An earlier release names none.
    #[serde(default)]
    pub joined: Vec<PathBuf>,
    /// Whether it goes before the platform when the machine has no memory left. An
    /// earlier release says nothing, and sees to it later.
    #[serde(default)]
    pub goes_first: bool,
    /// Namespaces, mounts and account; none when not started by root.
    pub isolation: Option<Isolation>,
    /// What Landlock lets it use.
    pub access: FileAccess,
    /// Whether it may start programs, as `initdb` does.
    pub starts_programs: bool,
}

/// What only root can set up: namespaces, and a root directory that holds the
/// system's libraries and these mounts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Isolation {
    /// The uid and gid to run under.
    pub account: u32,
    /// Directories to mount, in order.
    pub mounts: Vec<BindMount>,
    /// Where it has a directory in memory, of its own, with room for a socket
    /// and little else.
    pub socket: Option<PathBuf>,
    /// The server that it talks to, if there is one.
    pub neighbour: Option<Neighbour>,
}

/// Another program of the same branch, whose socket's directory the program sees,
/// too, and may use.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its pid.
    pub pid: u32,
    /// The group that may use its socket.
    pub group: u32,
    /// The directory in its root directory.
    pub from: PathBuf,
    /// The same in the program's own.
    pub to: PathBuf,
}

/// A directory of the host that the program sees in another place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BindMount {
    /// On the host.
    pub from: PathBuf,
    /// In the program's own root directory.
    pub to: PathBuf,
    /// Owner on disk that is to appear as the program's account.
    pub owner_on_disk: Option<u32>,
    /// What it is for.
    pub usage: MountUse,
}

/// What a mount is for. None has devices or programs of other accounts, and
/// what can be written is never run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountUse {
    /// Programs and libraries, read-only.
    Code,
    /// Files, read-only.
    Read,
    /// Files.
    Write,
}

/// Directories and files a program may use; everything else is denied.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FileAccess {
    /// Read and run as a program.
    pub execute: Vec<PathBuf>,
    /// Read.
    pub read: Vec<PathBuf>,
    /// Read, write, create and remove files and directories.
    pub write: Vec<PathBuf>,
    /// The same for files alone: no directory is made there.
    pub write_files: Vec<PathBuf>,
}

/// A program that was started, as a child of this process.
#[derive(Debug)]
pub struct Launched {
    /// Its pid.
    pub pid: u32,
    waiter: Waiter,
}

/// How its end is waited for.
#[derive(Debug)]
enum Waiter {
    /// It is the launcher itself.
    Launcher(Child),
    /// It was born in its cgroup, and the launcher has ended.
    Pidfd(OwnedFd),
}

impl Launched {
    /// Waits for its end, and tells its exit code; none when a signal ended it.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub async fn wait(self) -> io::Result<Option<i32>> {
        match self.waiter {
            Waiter::Launcher(mut child) => Ok(child.wait().await?.code()),
            Waiter::Pidfd(pidfd) => {
                let pidfd = watch_exit(pidfd)?;
                let _ = pidfd.readable().await?;
                let status = waitid(WaitId::PidFd(pidfd.get_ref().as_fd()), WaitIdOptions::EXITED)?;
                Ok(status.and_then(|status| status.exit_status()))
            }
        }
    }
}

impl Launched {
    /// Kills it, and waits until it has ended.
    async fn end(mut self) {
        // One that has just ended needs no signal.
        let _ = match &mut self.waiter {
            Waiter::Launcher(child) => child.start_kill(),
            Waiter::Pidfd(pidfd) => pidfd_send_signal(pidfd, Signal::KILL).map_err(io::Error::from),
        };
        let _ = self.wait().await;
    }
}

/// Two ends of a conversation, of which the second one is read by a program
/// that expects to wait.
fn pair() -> io::Result<(UnixStream, std::os::unix::net::UnixStream)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs))
}

/// Starts the launcher, which becomes the program. What it writes to standard
/// error goes to `log`; `input` decides standard input once the description
/// was read from it. None when the launcher ended before it had joined its
/// cgroup; the log tells why.
///
/// # Errors
/// When the launcher can't be started or does not take the description.
pub async fn spawn(launcher: &Path, spec: &LaunchSpec, log: &File) -> Result<Option<Launched>> {
    let action = format!("starting {}", spec.program.display());
    let clone = || log.try_clone().map_err(EngineError::io(action.as_str()));
    let outputs = [clone()?, clone()?];
    let text = serde_json::to_vec(spec).map_err(|error| EngineError::Other(error.to_string()))?;
    let launching = begin(launcher.to_owned(), text, outputs, action);
    // Left in the middle, it would join its cgroup when that was already found empty.
    let undo = |launched: Option<Launched>| async move {
        if let Some(launched) = launched {
            launched.end().await;
        }
    };
    to_its_end(launching, undo).await
}

async fn begin(
    launcher: PathBuf,
    text: Vec<u8>,
    [output, errors]: [File; 2],
    action: String,
) -> Result<Option<Launched>> {
    let action = || action.as_str();
    // Takes the description there, and the pid back.
    let (mut ours, theirs) = pair().map_err(EngineError::io(action()))?;
    let mut child = Command::new(launcher)
        .arg0("coppice")
        .arg("launch")
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(output)
        .stderr(errors)
        .current_dir("/")
        .spawn()
        .map_err(EngineError::io(action()))?;
    let mut pid = [0; 4];
    let exchanged = async {
        ours.write_all(&text).await?;
        ours.shutdown().await?;
        ours.read_exact(&mut pid).await
    };
    let pid = match exchanged.await {
        Ok(_) => u32::from_le_bytes(pid),
        Err(_) => {
            child.wait().await.map_err(EngineError::io(action()))?;
            return Ok(None);
        }
    };
    if child.id() == Some(pid) {
        return Ok(Some(Launched { pid, waiter: Waiter::Launcher(child) }));
    }
    // A child of ours: its pid stays its own until it is waited for.
    let pidfd = Pid::from_raw(pid.cast_signed()).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let launched = match pidfd {
        Some(Ok(pidfd)) => Some(Launched { pid, waiter: Waiter::Pidfd(pidfd) }),
        Some(Err(_)) | None => None,
    };
    child.wait().await.map_err(EngineError::io(action()))?;
    Ok(launched)
}
