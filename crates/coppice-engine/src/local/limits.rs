//! Limits that are put on processes which live already.
//!
//! A server is born in its cgroup of the unified hierarchy. Everything else is
//! done a moment after its start, when its first client is served, and again
//! now and then, because PostgreSQL replaces processes of its own that ended.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use coppice_core::InstanceId;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::HostEngine;
use super::metastore::METASTORE;
use super::process::usage;
use super::server::Servers;

/// Moving processes into cgroups of version 1 stops forks on the whole machine
/// for up to 20 ms; a server's first client should not wait for that.
const DELAY: Duration = Duration::from_millis(200);
/// A log file can't grow beyond this; what would be written there is lost. The
/// collector begins the next one at 10 MB, but at most one in a second, because
/// names have no smaller unit: so this is also how much a server logs in one.
pub(super) const LOG_FILE_MAX: u64 = 16 << 20;
/// How PostgreSQL calls the process that writes its log.
const COLLECTOR: &str = "postgres: logger";
/// When the machine has no memory left, a process of a branch has to go, and
/// neither the platform nor its metastore (proc(5), `oom_score_adj`).
const FIRST_TO_GO: &str = "500";

impl Servers {
    /// Puts a server under limits that it was not born under. Blocks.
    fn limit_living(&self, instance: &InstanceId) {
        let Some(server) = self.living(instance) else { return };
        bound_logs(server.pid);
        if instance.as_str() != METASTORE {
            offer_to_the_oom_killer(server.pid);
        }
        if let Some(leaf) = self.leaf(instance) {
            leaf.limit_members();
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
/// can't grow: PostgreSQL ignores `SIGXFSZ`.
fn bound_logs(postmaster: u32) {
    let is_collector = |pid: &u32| {
        let title = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&title).trim_end_matches(['\0', ' ']) == COLLECTOR
    };
    let collector = usage::children(postmaster).into_iter().find(is_collector);
    if let Some(pid) = collector.and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        let limit = Rlimit { current: Some(LOG_FILE_MAX), maximum: Some(LOG_FILE_MAX) };
        // One that has just ended writes nothing.
        let _ = prlimit(Some(pid), Resource::Fsize, limit);
    }
}

fn offer_to_the_oom_killer(postmaster: u32) {
    let file = |pid: u32| format!("/proc/{pid}/oom_score_adj");
    let is_done = fs::read_to_string(file(postmaster)).is_ok_and(|text| text.trim() == FIRST_TO_GO);
    if is_done {
        return;
    }
    for pid in usage::children(postmaster).into_iter().chain([postmaster]) {
        let _ = fs::write(file(pid), FIRST_TO_GO);
    }
}
