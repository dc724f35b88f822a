//! The page that Prometheus reads: what was counted since the start, and what
//! is true at the moment it is asked.
//!
//! Counters and histograms are kept where things happen, by every crate for
//! itself. What can be looked at instead is looked at when somebody asks, so
//! that nothing has to be kept up to date.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use coppice_api::Exposition;
use coppice_app::App;
use coppice_core::branch::BranchState;
use coppice_engine::local::LocalEngine;
use coppice_gateway::Gateway;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::exposition::Text;
use super::process;
use crate::config::Config;

/// Upper bounds of what histograms count, in seconds: reads of the metastore
/// take less than one millisecond, wakes up to a minute.
const BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// How long a part of the page may take to be found out. Prometheus waits ten
/// seconds for the whole.
const PATIENCE: Duration = Duration::from_secs(3);
/// States of branches that there can be.
const STATES: [BranchState; 9] = [
    BranchState::Creating,
    BranchState::Ready,
    BranchState::Hibernating,
    BranchState::Hibernated,
    BranchState::Waking,
    BranchState::Updating,
    BranchState::Upgrading,
    BranchState::Failed,
    BranchState::Unknown,
];

/// Begins to count. Once in a process, before anything is counted.
pub(super) fn start() -> anyhow::Result<PrometheusHandle> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
        .context("choosing the buckets of histograms")?;
    builder.install_recorder().context("beginning to count")
}

/// A look at disks, one at a time: one that hangs must take neither the page
/// with it nor another thread at every scrape.
#[derive(Default)]
struct Look {
    is_under_way: Arc<AtomicBool>,
}

/// The look ends with this.
struct UnderWay(Arc<AtomicBool>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Look {
    /// What `look` saw; none when it takes too long, or an earlier one still
    /// goes on.
    async fn take<T: Send + 'static>(
        &self,
        patience: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.is_under_way.swap(true, Ordering::AcqRel) {
            return None;
        }
        let under_way = UnderWay(self.is_under_way.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let _under_way = under_way;
            look()
        });
        tokio::time::timeout(patience, looking).await.ok()?.ok()
    }
}

/// What the page is made from.
pub(super) struct Page {
    counted: PrometheusHandle,
    app: App,
    engine: Arc<LocalEngine>,
    gateway: Arc<Gateway>,
    data_dir: PathBuf,
    host_reserve_bytes: u64,
    look: Look,
}

impl Page {
    pub(super) fn new(
        counted: PrometheusHandle,
        config: &Config,
        app: App,
        engine: Arc<LocalEngine>,
        gateway: Arc<Gateway>,
    ) -> Arc<Self> {
        Arc::new(Self {
            counted,
            app,
            engine,
            gateway,
            data_dir: config.data_dir.clone(),
            host_reserve_bytes: config.storage.host_reserve_bytes,
            look: Look::default(),
        })
    }

    async fn write(&self) -> String {
        let mut text = Text(self.counted.render());
        text.gauge("coppice_build_info", "The running version.");
        text.sample("coppice_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        self.write_gateway(&mut text);
        self.write_work(&mut text);
        self.write_metastore(&mut text).await;
        self.write_storage(&mut text).await;
        process::write(&mut text);
        text.0
    }

    fn write_gateway(&self, text: &mut Text) {
        let (occupancy, traffic) = (self.gateway.occupancy(), self.gateway.traffic());
        let sessions = self.gateway.sessions().open();
        text.gauge("coppice_gateway_connections_open", "Connections of clients, with or without a session.");
        text.sample("coppice_gateway_connections_open", &[], occupancy.taken as f64);
        text.gauge("coppice_gateway_connections_max", "Connections of clients that there may be.");
        text.sample("coppice_gateway_connections_max", &[], occupancy.places as f64);
        let name = "coppice_gateway_connections_starting";
        text.gauge(name, "Connections of clients that have not signed in yet.");
        text.sample(name, &[], occupancy.starting as f64);
        text.gauge("coppice_gateway_sessions_open", "Sessions of clients on servers of branches.");
        text.sample("coppice_gateway_sessions_open", &[], sessions as f64);
        let name = "coppice_gateway_pooled_clients_open";
        text.gauge(name, "Clients of pools, with a session at the moment or without.");
        text.sample(name, &[], self.gateway.sessions().pooled() as f64);
        if let Some(expiry) = self.gateway.certificate_expiry() {
            let name = "coppice_gateway_certificate_expiry_timestamp_seconds";
            text.gauge(name, "When the gateway's certificate ends, in Unix time.");
            text.sample(name, &[], expiry as f64);
        }
        let name = "coppice_gateway_bytes_total";
        text.counter(name, "Bytes that sessions passed on, by direction.");
        text.sample(name, &[("direction", "from_clients")], traffic.from_clients as f64);
        text.sample(name, &[("direction", "to_clients")], traffic.to_clients as f64);
    }

    fn write_work(&self, text: &mut Text) {
        let work = self.app.workload();
        text.gauge("coppice_branches_unsettled", "Branches that are not what they should be.");
        text.sample("coppice_branches_unsettled", &[], work.unsettled as f64);
        let name = "coppice_branches_unsettled_oldest_seconds";
        text.gauge(name, "For how long the branch that waits longest is not what it should be.");
        text.sample(name, &[], work.oldest.as_secs_f64());
        text.gauge("coppice_branches_failing", "Branches whose last step failed.");
        text.sample("coppice_branches_failing", &[], work.failing as f64);
        text.gauge("coppice_instances_running", "Servers of branches that run.");
        text.sample("coppice_instances_running", &[], work.servers as f64);
        let name = "coppice_store_log_lag_seconds";
        text.gauge(
            name,
            "For how long what the branch that is furthest behind wrote may not be in the store.",
        );
        text.sample(name, &[], self.app.backups.lag().as_secs_f64());
    }

    async fn write_metastore(&self, text: &mut Text) {
        let counted = tokio::time::timeout(PATIENCE, self.app.count_branches()).await;
        let counted = counted.ok().and_then(Result::ok);
        text.gauge("coppice_metastore_up", "Whether the metastore answers.");
        text.sample("coppice_metastore_up", &[], if counted.is_some() { 1.0 } else { 0.0 });
        // Better no number than a wrong one.
        if let Some(counted) = counted {
            text.gauge("coppice_branches", "Branches by state.");
            for state in STATES {
                let count = counted.iter().find(|(found, _)| *found == state).map_or(0, |(_, count)| *count);
                text.sample("coppice_branches", &[("state", state.as_str())], count as f64);
            }
        }
        let name = "coppice_metastore_connections";
        text.gauge(name, "Connections to the metastore, by pool and use.");
        for pool in self.app.metastore_connections() {
            text.sample(name, &[("pool", pool.pool), ("state", "used")], pool.used as f64);
            text.sample(name, &[("pool", pool.pool), ("state", "idle")], pool.idle as f64);
        }
    }

    async fn write_storage(&self, text: &mut Text) {
        let (storage, data_dir) = (self.engine.storage().clone(), self.data_dir.clone());
        let driver = storage.driver().to_string();
        let pool = if storage.has_pool() { "true" } else { "false" };
        text.gauge("coppice_storage_info", "How volumes are kept.");
        text.sample("coppice_storage_info", &[("driver", &driver), ("pool", pool)], 1.0);
        text.gauge("coppice_host_reserve_bytes", "What the pool leaves free on the host.");
        text.sample("coppice_host_reserve_bytes", &[], self.host_reserve_bytes as f64);
        let look = move || {
            let host = rustix::fs::statvfs(&data_dir).ok();
            let host = host.map(|stat| (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize));
            (storage.usage().ok(), host, storage.quarantined_count())
        };
        let Some((volumes, host, quarantined)) = self.look.take(PATIENCE, look).await else { return };
        let volumes = volumes.map(|usage| (usage.total_bytes, usage.free_bytes));
        for (place, what, sizes) in [
            ("volumes", "the file system of volumes", volumes),
            ("host", "the file system of the data directory", host),
        ] {
            let Some((size, free)) = sizes else { continue };
            for (name, title, value) in [("size", "Size of", size), ("free", "Free in", free)] {
                let name = format!("coppice_{place}_{name}_bytes");
                text.gauge(&name, &format!("{title} {what}."));
                text.sample(&name, &[], value as f64);
            }
        }
        text.gauge(
            "coppice_volumes_quarantined",
            "Volumes that were set aside because no record knows them.",
        );
        text.sample("coppice_volumes_quarantined", &[], quarantined as f64);
    }
}

impl Exposition for Page {
    fn text(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(self.write())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn a_look_that_hangs_is_the_only_one_until_it_ends() {
        let look = Look::default();
        let (end, hangs) = channel::<()>();
        let hung = look.take(Duration::ZERO, move || hangs.recv().is_ok()).await;
        assert_eq!(hung, None);
        assert_eq!(look.take(PATIENCE, || true).await, None, "the first is still under way");
        end.send(()).expect("it waits for this");
        let next = async {
            while look.is_under_way.load(Ordering::Acquire) {
                tokio::task::yield_now().await;
            }
            look.take(PATIENCE, || true).await
        };
        assert_eq!(tokio::time::timeout(Duration::from_secs(30), next).await, Ok(Some(true)));
    }

    #[tokio::test]
    async fn a_look_that_panics_does_not_end_looking() {
        let look = Look::default();
        assert_eq!(look.take(PATIENCE, || assert_eq!(1, 2, "as a bug would")).await, None);
        assert_eq!(look.take(PATIENCE, || true).await, Some(true));
    }
}
