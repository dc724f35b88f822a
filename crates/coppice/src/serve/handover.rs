//! One process hands its work to the next, so that an upgrade refuses no
//! connection and cuts none.
//!
//! The running process listens at a *door*, a socket in the runtime directory.
//! A successor connects to it and is given the listening sockets. The old
//! process lets clients in until its work on branches is at rest; connections
//! that come from then on wait in the sockets' queues. It gives its requests a
//! moment, then the control lock back, and only serves the sessions it has
//! (`drain.rs`). The successor starts as soon as it has the lock.

use std::fs::{DirBuilder, Permissions};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use coppice_engine::local::installation::ControlLock;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tokio::net::UnixListener;

use crate::chain::chain;

/// How long an old process may take to give the control lock back.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(120);
/// How long a successor may take from then on to be ready.
const READY_PATIENCE: Duration = Duration::from_secs(300);
/// How long a successor waits for an answer at the door.
const DOOR_PATIENCE: Duration = Duration::from_secs(30);
const READY: &[u8] = b"ready";

/// What is handed over: where clients come in.
#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) api: TcpListener,
    pub(super) gateway: TcpListener,
}

impl Listeners {
    /// The same sockets once more.
    pub(super) fn try_clone(&self) -> std::io::Result<Self> {
        Ok(Self { api: self.api.try_clone()?, gateway: self.gateway.try_clone()? })
    }
}

/// Makes a directory of the runtime directory, with the ones above it.
pub(super) fn make_directory(path: &Path, mode: u32) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.with_context(|| format!("making {}", path.display()))
}

/// Opens a socket that only this account can connect to.
pub(super) fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let open = || {
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok::<_, std::io::Error>(listener)
    };
    open().with_context(|| format!("opening {}", path.display()))
}

/// Where a successor knocks.
pub(super) struct Door {
    listener: UnixListener,
    path: PathBuf,
}

impl Door {
    /// Opens the door; whoever holds the control lock may.
    pub(super) fn open(runtime_dir: &Path) -> anyhow::Result<Self> {
        // With a metastore of one's own nothing may be there yet.
        make_directory(runtime_dir, 0o711)?;
        let path = runtime_dir.join("door.sock");
        Ok(Self { listener: bind(&path)?, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for a successor.
    pub(super) async fn successor(&self) -> std::io::Result<Successor> {
        let (stream, _) = self.listener.accept().await?;
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(DOOR_PATIENCE))?;
        stream.set_read_timeout(Some(LOCK_PATIENCE + READY_PATIENCE))?;
        Ok(Successor(stream))
    }
}

/// The process that takes over, connected to the door.
pub(super) struct Successor(UnixStream);

impl Successor {
    /// Gives it the listening sockets.
    pub(super) fn give(&self, listeners: &Listeners) -> std::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sockets = [listeners.api.as_fd(), listeners.gateway.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&sockets));
        rustix::net::sendmsg(&self.0, &[IoSlice::new(b"L")], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits until it is ready; fails when it ended before that.
    pub(super) async fn ready(mut self) -> anyhow::Result<()> {
        let wait = move || {
            let mut said = [0; READY.len()];
            self.0.read_exact(&mut said).context("the successor ended before it was ready")
        };
        tokio::task::spawn_blocking(wait).await?
    }
}

/// The process whose work is taken over.
pub(super) struct Predecessor(UnixStream);

impl Predecessor {
    /// Connects to the door of the process that works on a data directory.
    pub(super) fn ask(door: &Path) -> anyhow::Result<(Self, Listeners)> {
        let stream = UnixStream::connect(door)
            .with_context(|| format!("asking the running process at {}", door.display()))?;
        stream.set_read_timeout(Some(DOOR_PATIENCE))?;
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut data = [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(&stream, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)
            .context("waiting for the sockets of the running process")?;
        let given = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let mut given: Vec<OwnedFd> = given.flatten().collect();
        let (Some(gateway), Some(api)) = (given.pop(), given.pop()) else {
            bail!("the running process did not give its sockets away; see its log");
        };
        Ok((Self(stream), Listeners { api: api.into(), gateway: gateway.into() }))
    }

    /// Waits until it gives the control lock back.
    pub(super) async fn wait_for_lock(&self, data_dir: &Path) -> anyhow::Result<ControlLock> {
        let started = Instant::now();
        loop {
            if let Some(lock) = ControlLock::try_take(data_dir).map_err(|error| chain(&error))? {
                return Ok(lock);
            }
            if started.elapsed() > LOCK_PATIENCE {
                bail!("the running process did not let go within {} s", LOCK_PATIENCE.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Tells it that its work is done.
    pub(super) fn tell_ready(mut self) {
        if let Err(error) = self.0.write_all(READY) {
            tracing::info!("the process before this one has ended: {error}");
        }
    }
}

/// Starts this program's file, which may be a newer one by now, with the same
/// arguments, as the successor of this process. It becomes a child of the
/// service manager: as one of this process, its end would go unnoticed there
/// as long as this one serves sessions.
pub(super) fn start_successor(program: &Path) -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).filter(|argument| argument != TAKE_OVER).collect();
    let mut child = tokio::process::Command::new("setsid")
        .arg("--fork")
        .arg(program)
        .args(arguments)
        .arg(TAKE_OVER)
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {} by setsid", program.display()))?;
    tokio::spawn(async move {
        match child.wait().await {
            Ok(status) if status.success() => {}
            Ok(status) => tracing::error!("the successor could not be started: {status}"),
            Err(error) => tracing::error!("the start of the successor is lost: {error}"),
        }
    });
    Ok(())
}

const TAKE_OVER: &str = "--take-over";
