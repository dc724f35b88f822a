//! `coppice stop`: ends the control plane, and with `--all` every server of
//! the data directory too.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use coppice_engine::local::installation::ControlLock;
use coppice_engine::local::volumes::{PoolMode, StorageOptions, Volumes};
use coppice_engine::local::{HostEngine, LocalEngine};
use coppice_engine::{Engine, StopMode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{DYING_PATIENCE, LAUNCHER, ServeRecord, drain};
use crate::chain::chain;
use crate::config::DataDir;

/// How long a control plane may take to let its requests end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long its process may take to end when no server is left.
const LAST_PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked at meanwhile.
const POLL: Duration = Duration::from_millis(10);

/// Flags of `coppice stop`.
#[derive(Args, Clone, Debug)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    data_dir: DataDir,
    /// Also stop every branch and the metastore, and detach the pool
    #[arg(long)]
    all: bool,
}

/// Ends the control plane and, if asked, everything else.
pub(crate) async fn stop(args: StopArgs) -> anyhow::Result<()> {
    let data_dir = std::path::absolute(args.data_dir.path()?)?;
    if !data_dir.join("installation.json").exists() {
        bail!("there is no coppice in {}: name its --data-dir", data_dir.display());
    }
    let pid = ServeRecord::of(&data_dir).map(|record| record.pid);
    let (lock, control_plane) = take_lock(&data_dir, pid, args.all, PATIENCE).await?;
    drop(lock);
    if args.all {
        stop_everything(&data_dir, control_plane).await?;
    }
    Ok(())
}

/// Ends the control plane with the pid, if one works on the data directory, for
/// its lock. One that takes too long is killed where that `kills`: what it was
/// doing is finished or cleaned away by the next start.
async fn take_lock(
    data_dir: &Path,
    pid: Option<u32>,
    kills: bool,
    patience: Duration,
) -> anyhow::Result<(ControlLock, Option<Process>)> {
    let (started, mut is_killed) = (Instant::now(), false);
    let mut asked: Option<Process> = None;
    loop {
        if let Some(lock) = ControlLock::try_take(data_dir).map_err(|error| chain(&error))? {
            return Ok((lock, asked));
        }
        // The lock is held, so the recorded process is that one.
        if let (None, Some(pid)) = (&asked, pid) {
            say!("stopping the control plane (pid {pid})");
            let process = Process::find(pid).context("finding the control plane")?;
            process.signal(Signal::TERM).context("stopping the control plane")?;
            asked = Some(process);
        }
        let late = started.elapsed().saturating_sub(patience);
        match &asked {
            Some(process) if kills && !is_killed && !late.is_zero() => {
                process.kill_after(patience).await?;
                is_killed = true;
            }
            _ if late > if is_killed { DYING_PATIENCE } else { Duration::ZERO } => {
                let which = match &asked {
                    Some(process) => format!("end it with `kill -KILL {}`", process.pid),
                    None => format!("`fuser {}/control.lock` says which process it is", data_dir.display()),
                };
                bail!(
                    "the control plane did not end within {} s: {which}; branches keep running",
                    patience.as_secs()
                );
            }
            _ => tokio::time::sleep(POLL).await,
        }
    }
}

/// A process, and no other that gets its pid later.
pub(super) struct Process {
    pid: u32,
    handle: OwnedFd,
}

impl Process {
    fn find(pid: u32) -> std::io::Result<Self> {
        let found = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(std::io::ErrorKind::InvalidData)?;
        Ok(Self { pid, handle: pidfd_open(found, PidfdFlags::empty())? })
    }

    fn signal(&self, signal: Signal) -> std::io::Result<()> {
        match pidfd_send_signal(&self.handle, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    fn has_ended(&self) -> std::io::Result<bool> {
        Ok(poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&Timespec::default()))? > 0)
    }

    /// Whether it ends in time.
    async fn ends_within(&self, patience: Duration) -> anyhow::Result<bool> {
        let asked = Instant::now();
        while !self.has_ended()? {
            if asked.elapsed() >= patience {
                return Ok(false);
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(true)
    }

    /// Waits for its end, and kills it when it takes too long.
    async fn end_within(&self, patience: Duration) -> anyhow::Result<()> {
        match self.ends_within(patience).await? {
            true => Ok(()),
            false => self.kill_after(patience).await,
        }
    }

    async fn kill_after(&self, waited: Duration) -> anyhow::Result<()> {
        say!("process {} did not end within {} s: killing it", self.pid, waited.as_secs());
        self.signal(Signal::KILL).context("killing the control plane")?;
        let has_ended = self.ends_within(LAST_PATIENCE).await?;
        anyhow::ensure!(has_ended, "process {} was killed and does not end: the kernel holds it", self.pid);
        Ok(())
    }
}

/// Stops all servers of a data directory, waits for the processes that served
/// their sessions, and for `control_plane`, and detaches its pool.
pub(super) async fn stop_everything(data_dir: &Path, control_plane: Option<Process>) -> anyhow::Result<()> {
    let Some(_lock) = ControlLock::try_take(data_dir).map_err(|error| chain(&error))? else {
        bail!("another coppice works on {}", data_dir.display());
    };
    let host = Arc::new(HostEngine::open(data_dir, LAUNCHER.into(), &[]).map_err(|error| chain(&error))?);
    // A pool that is not there is not made to be detached.
    let pool = if host.layout().pool_image().exists() { PoolMode::Auto } else { PoolMode::Off };
    let options = StorageOptions { pool, ..StorageOptions::default() };
    let volumes =
        Volumes::open(host.layout(), host.installation(), &options).map_err(|error| chain(&error))?;
    let engine = LocalEngine::new(host.clone(), volumes);
    let running = engine.running_instances().await.map_err(|error| chain(&error))?;
    say!("branches to stop: {}", running.len());
    let labels = engine.volumes().await.map_err(|error| chain(&error))?;
    let stops = running.iter().map(|instance| {
        let branch = instance.as_str().rsplit_once('-').map_or(instance.as_str(), |(branch, _)| branch);
        let label = labels.iter().find(|label| label.branch.as_ref().is_some_and(|id| id.as_str() == branch));
        engine.stop(instance, label.map(|label| &label.volume), StopMode::Fast)
    });
    for stopped in futures_util::future::join_all(stops).await {
        stopped.map_err(|error| chain(&error))?;
    }
    engine.stop_templates().await.map_err(|error| chain(&error))?;
    host.stop_metastore().await.map_err(|error| chain(&error))?;
    let drained = drain::processes(host.layout().runtime_dir()).into_iter().map(Process::find);
    let last: Vec<_> = drained.filter_map(Result::ok).chain(control_plane).collect();
    let ends = last.iter().map(|process| process.end_within(LAST_PATIENCE));
    futures_util::future::try_join_all(ends).await?;
    engine.storage().detach().map_err(|error| chain(&error))?;
    host.forget_runtime();
    say!("everything is stopped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn a_process_that_does_not_end_in_time_is_killed() {
        let mut child = Command::new("sleep").arg("600").spawn().expect("a process");
        let process = Process::find(child.id()).expect("its handle");
        assert!(!process.has_ended().expect("a look"));
        process.end_within(Duration::from_millis(20)).await.expect("killed");
        assert!(process.has_ended().expect("a look"));
        let status = child.wait().expect("its status");
        assert!(!status.success(), "{status}");
        // A process that has the same pid by now gets no signal.
        process.signal(Signal::KILL).expect("nothing to do");
        process.end_within(Duration::ZERO).await.expect("it has ended");
    }

    #[tokio::test]
    async fn a_control_plane_that_does_not_let_go_is_killed_where_all_is_stopped() {
        let data = tempfile::tempdir().expect("a directory");
        // Does not hear of SIGTERM.
        let script = r#"trap "" TERM; exec flock --no-fork "$0" sleep 600"#;
        let path = data.path().join("control.lock");
        let mut child = Command::new("sh").args(["-c", script]).arg(&path).spawn().expect("a process");
        let begun = Instant::now();
        while ControlLock::try_take(data.path()).expect("a look").is_some() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the lock is not taken");
            tokio::time::sleep(POLL).await;
        }
        let (pid, patience) = (Some(child.id()), Duration::from_millis(20));
        let error = take_lock(data.path(), pid, false, patience).await.err().expect("it is patient");
        assert!(error.to_string().contains("`kill -KILL "), "{error}");
        let (_lock, killed) = take_lock(data.path(), pid, true, patience).await.expect("the lock");
        assert!(killed.expect("the process").has_ended().expect("a look"));
        child.wait().expect("its status");
    }

    #[tokio::test]
    async fn a_process_that_ends_in_time_is_left_to_it() {
        let mut child = Command::new("true").spawn().expect("a process");
        let process = Process::find(child.id()).expect("its handle");
        process.end_within(Duration::from_secs(60)).await.expect("it ends");
        assert!(child.wait().expect("its status").success());
    }
}
