//! Limits that are put on processes which live already.
//!
//! A server is born with limits on what it can hold: memory and processes.
//! Everything else is done a moment after its start, when its first client is
//! served, and again now and then, because PostgreSQL replaces processes of its
//! own that ended.

use std::sync::Arc;
use std::thread::{Builder, scope};
use std::time::Duration;

use coppice_core::InstanceId;
use rustix::io::Errno;
use rustix::process::{Gid, Pid, Resource, Rlimit, Uid, prlimit};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use super::HostEngine;
use super::metastore::METASTORE;
use super::process::identity::{ProcessDirectory, ProcessIdentity};
use super::process::{oom, usage};
use super::server::Servers;

/// Moving processes into cgroups of version 1 stops forks on the whole machine
/// for up to 20 ms; a server's first client should not wait for that. What is
/// moved then is limited in what it uses, not in what it holds: see
/// [`limit_members`](super::process::cgroup::Leaf::limit_members).
const DELAY: Duration = Duration::from_millis(200);
/// A log file can't grow beyond this; what would be written there is lost. The
/// collector begins the next one at 10 MB, but at most one in a second, because
/// names have no smaller unit: so this is also how much a server logs in one.
pub(super) const LOG_FILE_MAX: u64 = 16 << 20;
/// How PostgreSQL calls the process that writes its log.
const COLLECTOR: &str = "postgres: logger";

impl Servers {
    /// Puts a server, or another program of an instance, under limits that it was
    /// not born under. Blocks.
    fn limit_living(&self, instance: &InstanceId) {
        let server = self.living(instance);
        if let Some(server) = &server
            && let Some(account) = server.account()
        {
            bound_logs(server.pid, account);
        }
        if instance.as_str() != METASTORE {
            self.send_first(instance, server.as_ref());
        }
        if let Some(leaf) = self.leaf(instance) {
            leaf.limit_members();
        }
    }

    /// Has processes of an instance go before the platform when the machine has no
    /// memory left. They are born so; but servers outlive the release that started
    /// them, which may have seen to it later.
    fn send_first(&self, instance: &InstanceId, server: Option<&ProcessIdentity>) {
        let leaf = self.leaf(instance);
        let pids = match (&leaf, server) {
            (Some(leaf), _) => leaf.processes(),
            (None, Some(server)) => self.processes(instance, server.pid),
            (None, None) => vec![],
        };
        // Asked of what was opened: a number may have become another process's before.
        let is_own = |pid: u32, process: &ProcessDirectory| match &leaf {
            Some(leaf) => leaf.is_home_of(process),
            None => server.is_some_and(|server| match pid == server.pid {
                true => server.is_alive(),
                false => process.parent() == Some(server.pid),
            }),
        };
        for pid in pids {
            let Some(process) = ProcessDirectory::open(pid) else { continue };
            if !oom::goes_first(&process) && is_own(pid, &process) {
                oom::send_first(&process);
            }
        }
    }
}

impl HostEngine {
    /// To be called now and then: puts processes under limits that they could
    /// not be born under. Blocks.
    pub fn limit_processes(&self) {
        self.servers.running().iter().for_each(|instance| self.servers.limit_living(instance));
    }
}

/// As [`HostEngine::limit_processes`] for one server that was just started, in
/// the background.
pub(super) fn limit_soon(host: &Arc<HostEngine>, instance: &InstanceId) {
    let (host, instance) = (host.clone(), instance.clone());
    tokio::spawn(async move {
        tokio::time::sleep(DELAY).await;
        // Not done is done a few seconds later.
        let _ = tokio::task::spawn_blocking(move || host.servers.limit_living(&instance)).await;
    });
}

/// Bounds the files that a server's collector writes. It goes on when a file
/// can't grow: PostgreSQL ignores `SIGXFSZ`. Code inside a server may call its
/// process the same, and has then bounded itself.
fn bound_logs(postmaster: u32, account: (u32, u32)) {
    let is_unbounded = |(_, child): &(u32, ProcessDirectory)| {
        let title = child.read("cmdline").unwrap_or_default();
        title.trim_end_matches(['\0', ' ']) == COLLECTOR && !is_bounded(child)
    };
    for (pid, collector) in children(postmaster).filter(is_unbounded) {
        let Some(number) = Pid::from_raw(pid.cast_signed()) else { continue };
        let limit = Rlimit { current: Some(LOG_FILE_MAX), maximum: Some(LOG_FILE_MAX) };
        match in_the_name_of(account, || prlimit(Some(number), Resource::Fsize, limit)) {
            // It ended in between, and this may be somebody else already.
            Ok(before) if collector.parent().is_none() => {
                let _ = prlimit(Some(number), Resource::Fsize, before);
            }
            // One that has just ended writes nothing.
            Ok(_) | Err(Errno::SRCH) => {}
            Err(error) => tracing::warn!("the logs of process {postmaster} are not bounded: {error}"),
        }
    }
}

/// Whether both limits of its files are what they have to be (proc(5), `limits`).
fn is_bounded(process: &ProcessDirectory) -> bool {
    let limits = process.read("limits").unwrap_or_default();
    let found = limits.lines().find_map(|line| line.strip_prefix("Max file size"));
    let bound = LOG_FILE_MAX.to_string();
    found.is_some_and(|line| line.split_whitespace().take(2).eq([&*bound, &*bound]))
}

/// Does it on a thread whose real uid and gid are these: of them the kernel asks
/// whose limits may be lowered. Of others' it takes the right to exceed every
/// limit (`CAP_SYS_RESOURCE`, capabilities(7)), and services and containers have
/// none. What the thread may do otherwise stays.
fn in_the_name_of<T: Send>(
    (uid, gid): (u32, u32),
    work: impl FnOnce() -> rustix::io::Result<T> + Send,
) -> rustix::io::Result<T> {
    let changed = || {
        set_thread_res_gid(Gid::from_raw(gid), None, None)?;
        set_thread_res_uid(Uid::from_raw(uid), None, None)?;
        work()
    };
    scope(|threads| Builder::new().spawn_scoped(threads, changed).ok()?.join().ok())
        .unwrap_or(Err(Errno::AGAIN))
}

/// Processes that a server started itself.
fn children(postmaster: u32) -> impl Iterator<Item = (u32, ProcessDirectory)> {
    let opened = usage::children(postmaster)
        .into_iter()
        .filter_map(|pid| ProcessDirectory::open(pid).map(|directory| (pid, directory)));
    // Asked of what was opened: a number may have become another process's before.
    opened.filter(move |(_, directory)| directory.parent() == Some(postmaster))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    #[test]
    fn whoever_takes_the_name_of_the_collector_does_not_take_its_limit_away() {
        let named = format!("exec 3<&0; for i in 1 2; do (exec -a '{COLLECTOR}' cat <&3) & done; wait");
        // A server's account is no other process's.
        let account = match rustix::process::getuid().is_root() {
            true => (12_345, 12_346),
            false => (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
        };
        let mut server = Command::new("bash")
            .args(["-c", &named])
            .current_dir("/")
            .stdin(Stdio::piped())
            .uid(account.0)
            .gid(account.1)
            .spawn()
            .expect("bash");
        let is_limited = |(_, child): &(u32, ProcessDirectory)| is_bounded(child);
        let deadline = Instant::now() + Duration::from_secs(60);
        while children(server.id()).filter(is_limited).count() < 2 {
            assert!(Instant::now() < deadline, "both are limited");
            bound_logs(server.id(), account);
        }
        // One that differs in anything is bounded anew.
        let pid = children(server.id()).next().and_then(|(pid, _)| Pid::from_raw(pid.cast_signed()));
        let pid = Some(pid.expect("it has children"));
        let lower = Rlimit { current: Some(LOG_FILE_MAX - 1), maximum: Some(LOG_FILE_MAX) };
        in_the_name_of(account, || prlimit(pid, Resource::Fsize, lower)).expect("it may be lowered");
        assert_eq!(children(server.id()).filter(is_limited).count(), 1);
        bound_logs(server.id(), account);
        assert_eq!(children(server.id()).filter(is_limited).count(), 2);
        drop(server.stdin.take());
        server.wait().expect("it ends with its children");
    }
}
