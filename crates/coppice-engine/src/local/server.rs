//! One PostgreSQL server: from its files on disk to a process that answers.
//!
//! States of a server, as seen from outside:
//!
//! ```text
//! stopped ── start ──▶ launching ── postmaster.pid says ready ──▶ running
//!    ▲                     │                                        │
//!    └──── killed, proven empty ◀── broken ◀── postmaster dies ─────┘
//! ```
//!
//! *Running* is a postmaster with the recorded identity whose `postmaster.pid`
//! says ready. *Stopped* is an empty cgroup (without cgroups: no process in
//! the data directory). Everything else is *broken*, and is killed before a
//! start. `postmaster.pid` is removed there and nowhere else, after nothing is
//! left that it could speak of.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coppice_core::InstanceId;
use coppice_core::plan::InstanceSeen;
use coppice_core::storage::Fullness;
use coppice_failpoint::failpoint;
use rustix::process::{Signal, pidfd_send_signal};

use super::blocking::blocking;
use super::durable::write_durably;
use super::following::Following;
use super::images::InstalledImage;
use super::installation::Installation;
use super::layout::Layout;
use super::log_pipe::LogPipe;
use super::logs;
use super::process::cgroup::{Cgroups, Leaf};
use super::process::controllers::Limits;
use super::process::identity::{ProcessIdentity, processes_in};
use super::process::launch::spawn;
use super::process::{usage, watch_exit};
use super::taken::Taken;
use super::untrusted::{self, UntrustedPath};
use crate::{EngineError, Result, StopMode};

/// A start that replays much WAL takes minutes; longer than this it is stuck.
const START_PATIENCE: Duration = Duration::from_secs(600);
/// After that a fast stop becomes an immediate one.
const FAST_STOP_PATIENCE: Duration = Duration::from_secs(30);
/// When one that did not end is asked once more.
const INTERRUPT_AGAIN: Duration = Duration::from_millis(500);
/// How often a starting server is looked at.
const READY_POLL: Duration = Duration::from_millis(1);

/// In its data directory; the server says there who it is and how far.
const LOCK_FILE: &CStr = c"postmaster.pid";
/// Most bytes read of it; it has eight short lines.
const LOCK_FILE_LENGTH_MAX: u64 = 4096;

/// How servers are run on this machine.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) layout: Layout,
    pub(super) installation: Installation,
    pub(super) key: String,
    /// The program with the hidden launch subcommand.
    pub(super) launcher: PathBuf,
    pub(super) cgroups: Option<Cgroups>,
    /// Whether servers get accounts and namespaces of their own.
    pub(super) is_root: bool,
}

/// One server to be started.
#[derive(Debug)]
pub(super) struct ServerPlan<'a> {
    pub(super) instance: &'a InstanceId,
    pub(super) image: &'a InstalledImage,
    pub(super) data: &'a UntrustedPath,
    /// Number of its account.
    pub(super) account: u32,
    pub(super) limits: Limits,
    /// Most that its data may take, where that is limited.
    pub(super) storage_bytes: Option<u64>,
    /// How full that is.
    pub(super) fullness: Fullness,
    pub(super) settings: &'a [(String, String)],
    pub(super) preload_libraries: &'a [String],
    pub(super) is_first_start: bool,
    /// The server that it follows, if it is a replica's.
    pub(super) follows: Option<&'a Following>,
}

impl Servers {
    pub(super) fn leaf(&self, instance: &InstanceId) -> Option<Leaf> {
        self.cgroups.as_ref().map(|cgroups| cgroups.leaf(&self.key, instance.as_str()))
    }

    fn record_path(&self, instance: &InstanceId) -> PathBuf {
        self.layout.instance_runtime(instance).join("server.json")
    }

    fn record(&self, instance: &InstanceId) -> Option<ProcessIdentity> {
        serde_json::from_slice(&fs::read(self.record_path(instance)).ok()?).ok()
    }

    /// The server's identity, while it lives.
    pub(super) fn living(&self, instance: &InstanceId) -> Option<ProcessIdentity> {
        self.record(instance).filter(ProcessIdentity::is_alive)
    }

    /// CPU time used and memory held by a server that lives.
    pub(super) fn usage(&self, instance: &InstanceId, postmaster: u32) -> (Option<Duration>, Option<u64>) {
        let leaf = self.leaf(instance);
        let used = leaf.as_ref().and_then(Leaf::cpu_used).or_else(|| usage::cpu_used(postmaster));
        let held = leaf.as_ref().and_then(Leaf::memory_bytes);
        (used, held.or_else(|| usage::memory(&self.processes(instance, postmaster))))
    }

    /// The processes of a server.
    pub(super) fn processes(&self, instance: &InstanceId, postmaster: u32) -> Vec<u32> {
        let leaf = self.leaf(instance);
        let mut processes = leaf.map_or_else(|| usage::children(postmaster), |leaf| leaf.processes());
        processes.push(postmaster);
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    /// Tells sessions of a server to end, by the pids that they have for themselves.
    pub(super) fn tell_to_end(&self, instance: &InstanceId, sessions: &BTreeSet<i32>) {
        let Some(server) = self.living(instance) else { return };
        for process in usage::children(server.pid).into_iter().filter_map(ProcessIdentity::of) {
            let is_meant = sessions.contains(&process.own_pid().cast_signed());
            if is_meant
                && let Some(pidfd) = process.pidfd()
                // Looked at again: its number may have become another process's before.
                && usage::children(server.pid).contains(&process.pid)
            {
                // One that has just ended needs no signal.
                let _ = pidfd_send_signal(pidfd, Signal::TERM);
            }
        }
    }

    /// What a server with this data takes of the disk.
    pub(super) fn taken(&self, instance: &InstanceId, data: UntrustedPath) -> Taken {
        let living = self.living(instance);
        let processes = living.map(|server| self.processes(instance, server.pid)).unwrap_or_default();
        Taken::new(data, self.layout.instance_logs(instance), processes)
    }

    /// Looks at a server without changing anything.
    pub(super) async fn observe(&self, instance: &InstanceId, data: &UntrustedPath) -> InstanceSeen {
        match self.living(instance) {
            Some(server) if is_ready(data, server.own_pid()).await => InstanceSeen::Running,
            Some(_) => InstanceSeen::Broken,
            None if self.is_empty(instance, data) => InstanceSeen::Stopped,
            None => InstanceSeen::Broken,
        }
    }

    fn is_empty(&self, instance: &InstanceId, data: &UntrustedPath) -> bool {
        match self.leaf(instance) {
            Some(leaf) => !leaf.is_populated(),
            None => processes_in(data.host_path()).is_empty(),
        }
    }

    /// Starts a server and returns when it is ready. One that runs is left alone.
    pub(super) async fn start(&self, plan: &ServerPlan<'_>) -> Result<()> {
        if self.observe(plan.instance, plan.data).await == InstanceSeen::Running {
            return Ok(());
        }
        self.kill(plan.instance, Some(plan.data)).await?;
        failpoint!("server.killed");
        let surroundings = self.prepare(plan).await?;
        failpoint!("server.prepared");
        let (data, logs) = (plan.data.clone(), self.layout.instance_logs(plan.instance));
        let written_before = blocking(move || {
            data.require()
                .and_then(|data| data.remove(LOCK_FILE))
                .map_err(EngineError::io("removing a stale postmaster.pid"))?;
            Ok(logs::end(&logs))
        })
        .await?;
        failpoint!("server.lock_file_removed");
        let log = self.start_log(plan.instance)?;
        let spec = self.launch_spec(plan, &surroundings).await?;
        let failed = |reason: String| EngineError::StartFailed { instance: plan.instance.clone(), reason };
        let last_words =
            async |pipe: Option<LogPipe>| self.last_words(plan.instance, written_before.clone(), pipe).await;
        let Some(launched) = spawn(&self.launcher, &spec, &log).await? else {
            return Err(failed(last_words(None).await));
        };
        let pid = launched.pid;
        failpoint!("server.spawned");
        // Waited for as long as this process lives; afterwards its new parent does.
        tokio::spawn(launched.wait());
        let Some(server) = ProcessIdentity::of(pid) else {
            return Err(failed(last_words(None).await));
        };
        self.show_socket(plan.instance, &server)?;
        let record = serde_json::to_vec(&server).map_err(|error| EngineError::Other(error.to_string()))?;
        write_durably(&self.record_path(plan.instance), &record, 0o600)?;
        failpoint!("server.recorded");

        let started = Instant::now();
        let own_pid = server.own_pid();
        let mut pipe = None;
        while !is_ready(plan.data, own_pid).await {
            pipe = pipe.or_else(|| LogPipe::of(&server));
            if !server.is_alive() {
                return Err(failed(last_words(pipe).await));
            }
            if started.elapsed() > START_PATIENCE {
                return Err(failed(format!("not ready after {} s", START_PATIENCE.as_secs())));
            }
            tokio::time::sleep(READY_POLL).await;
        }
        Ok(())
    }

    /// Runs a program of an image on a data directory until it ends.
    pub(super) async fn run_to_end(
        &self,
        plan: &ServerPlan<'_>,
        program: &str,
        arguments: &[String],
        input: Option<&str>,
    ) -> Result<()> {
        self.kill(plan.instance, Some(plan.data)).await?;
        let surroundings = self.prepare(plan).await?;
        let mut spec = self.launch_spec(plan, &surroundings).await?;
        spec.program = plan.image.program(&surroundings.image, program);
        let data = surroundings.data.display().to_string();
        spec.arguments = arguments.iter().map(|argument| argument.replace("{data}", &data)).collect();
        if program == "initdb" {
            Self::let_start_programs(&mut spec, &surroundings);
        }
        let input_path = self.layout.instance_runtime(plan.instance).join("input");
        if let Some(text) = input {
            write_durably(&input_path, text.as_bytes(), 0o600)?;
            spec.input = Some(input_path.clone());
        }
        let log = self.start_log(plan.instance)?;
        let status = match spawn(&self.launcher, &spec, &log).await? {
            Some(launched) => {
                launched.wait().await.map_err(EngineError::io(format!("waiting for {program}")))?
            }
            None => None,
        };
        let _ = fs::remove_file(&input_path);
        self.kill(plan.instance, Some(plan.data)).await?;
        let words = logs::tail(&self.start_log_path(plan.instance));
        let complaint =
            words.lines().find(|line| ["ERROR:", "FATAL:", "PANIC:"].iter().any(|w| line.contains(w)));
        match complaint {
            None if status == Some(0) => Ok(()),
            _ => {
                let reason = complaint.or_else(|| words.lines().last()).unwrap_or_default();
                Err(EngineError::Other(format!("{program} failed: {reason}")))
            }
        }
    }

    /// Stops a server and proves that nothing of it runs.
    pub(super) async fn stop(
        &self,
        instance: &InstanceId,
        data: Option<&UntrustedPath>,
        mode: StopMode,
    ) -> Result<()> {
        let server = self.living(instance);
        let pipe = server.as_ref().and_then(LogPipe::of);
        if mode == StopMode::Fast
            && let Some(pidfd) = server.and_then(|server| server.pidfd())
            && tokio::time::timeout(FAST_STOP_PATIENCE, interrupt(pidfd)).await.is_err()
        {
            tracing::warn!(%instance, "instance {instance} did not stop in time: killing it");
        }
        self.kill(instance, data).await?;
        if let Some(pipe) = pipe {
            let logs = self.layout.instance_logs(instance);
            blocking(move || {
                logs::complete(&logs, pipe);
                Ok(())
            })
            .await?;
        }
        failpoint!("server.stopped");
        if let Some(leaf) = self.leaf(instance) {
            leaf.clear();
        }
        Ok(())
    }

    /// Returns when the server has ended.
    pub(super) async fn wait_exit(&self, instance: &InstanceId) {
        if let Some(pidfd) = self.living(instance).and_then(|server| server.pidfd()) {
            wait_readable(pidfd).await;
        }
    }

    /// Ends every process of an instance and proves that none is left.
    async fn kill(&self, instance: &InstanceId, data: Option<&UntrustedPath>) -> Result<()> {
        if let Some(leaf) = self.leaf(instance) {
            return leaf.kill().await;
        }
        let started = Instant::now();
        loop {
            let mut left = data.map(|data| processes_in(data.host_path())).unwrap_or_default();
            left.extend(self.living(instance));
            if left.is_empty() {
                return Ok(());
            }
            for pidfd in left.iter().filter_map(ProcessIdentity::pidfd) {
                let _ = pidfd_send_signal(pidfd, Signal::KILL);
            }
            if started.elapsed() > FAST_STOP_PATIENCE {
                return Err(EngineError::Other(format!("processes of instance {instance} do not end")));
            }
            tokio::time::sleep(READY_POLL).await;
        }
    }

    /// Removes what an instance keeps outside its data. Blocks.
    pub(super) fn remove(&self, instance: &InstanceId) -> Result<()> {
        for directory in [self.layout.instance_runtime(instance), self.layout.instance(instance)] {
            untrusted::delete_tree(&directory)
                .map_err(EngineError::io(format!("removing {}", directory.display())))?;
        }
        if let Some(leaf) = self.leaf(instance) {
            leaf.remove();
        }
        Ok(())
    }

    /// Instances of which something runs.
    pub(super) fn running(&self) -> Vec<InstanceId> {
        let names = match &self.cgroups {
            Some(cgroups) => cgroups.populated(&self.key),
            None => {
                let Ok(entries) = fs::read_dir(self.layout.runtime_dir()) else { return vec![] };
                let names =
                    entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok());
                names.filter(|name| self.living(&InstanceId::from_trusted(name.as_str())).is_some()).collect()
            }
        };
        names.into_iter().map(InstanceId::from_trusted).collect()
    }
}

/// Whether `postmaster.pid` is of the process that has this pid for itself, and
/// says ready (its eighth line).
async fn is_ready(data: &UntrustedPath, pid: u32) -> bool {
    let data = data.clone();
    let read = blocking(move || {
        let read = data.require().and_then(|data| data.read(LOCK_FILE, LOCK_FILE_LENGTH_MAX));
        read.map_err(EngineError::io("reading postmaster.pid"))
    });
    let Ok(Some(bytes)) = read.await else { return false };
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let is_of_process = lines.next().is_some_and(|line| line.trim() == pid.to_string());
    is_of_process && lines.nth(6).is_some_and(|line| line.trim() == "ready")
}

/// Asks a server to end, and returns when it has. The first process of a pid
/// namespace hears no signal before it listens, so it is asked again.
async fn interrupt(pidfd: std::os::fd::OwnedFd) {
    let Ok(pidfd) = watch_exit(pidfd) else { return };
    loop {
        // One that has just ended needs no signal.
        let _ = pidfd_send_signal(pidfd.get_ref(), Signal::INT);
        if tokio::time::timeout(INTERRUPT_AGAIN, pidfd.readable()).await.is_ok() {
            return;
        }
    }
}

async fn wait_readable(pidfd: std::os::fd::OwnedFd) {
    if let Ok(pidfd) = watch_exit(pidfd) {
        let _ = pidfd.readable().await;
    }
}

/// Makes a directory unless it is there, with exactly this mode.
pub(super) fn make_directory(path: &Path, mode: u32) -> Result<()> {
    let action = || format!("making {}", path.display());
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(EngineError::io(action())(error))
        }
        _ => fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(EngineError::io(action())),
    }
}
