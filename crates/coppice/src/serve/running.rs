//! The tasks of a running platform, and how they end.

use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use coppice_api::ConnectionLimits;
use coppice_app::App;
use coppice_app::tasks::{Tasks, kept};
use coppice_engine::EngineError;
use coppice_engine::local::LocalEngine;
use coppice_gateway::Gateway;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::boot::Platform;
use super::descriptors::Doors;
use super::drain::DrainServer;
use super::handover::{LOCK_PATIENCE, Listeners, Successor};
use super::metrics::Page;
use super::{certificate, gateway, is_inside, stop};
use crate::config::{Config, DRAIN_MAX};
use crate::traces::trace_request;

/// How often a process that only serves its last sessions writes down their use.
const NOTE: Duration = Duration::from_secs(30);
/// How long requests keep a successor waiting, and with it everybody who connects meanwhile. What takes longer, or
/// waits for its reader, ends beside it: requests write rows, which any process may, and what they ask of servers is
/// what sessions do.
const REQUESTS: Duration = Duration::from_secs(1);
/// How long threads may go on with steps that were given up: with the time that steps have, and with a moment for
/// the rest, less than the 60 seconds after which `deploy/coppice.service` has the process killed.
const THREADS: Duration = Duration::from_secs(40);
/// The same with a successor, as clients are let in meanwhile: less than it waits for the control lock.
const THREADS_OF_PREDECESSOR: Duration = LOCK_PATIENCE.saturating_sub(Duration::from_secs(15));
/// How often storage is looked after.
const STORAGE: Duration = Duration::from_secs(5);
/// How often logs are trimmed. What a server writes meanwhile comes on top of
/// the bound; that is bounded itself (`limits.rs` of the engine).
const LOGS: Duration = Duration::from_secs(2);
/// How often what histograms were told is put together; until then it takes memory.
const COUNTING: Duration = Duration::from_secs(5);

/// The tasks of a running platform.
pub(super) struct Running {
    stop: CancellationToken,
    gateway: Arc<Gateway>,
    gateway_task: JoinHandle<()>,
    api_task: JoinHandle<()>,
    reconciling: JoinHandle<()>,
    /// What goes on beside it.
    tasks: Tasks,
}

impl Running {
    pub(super) fn start(
        config: &Config,
        platform: &Platform,
        listeners: Listeners,
        doors: Doors,
        counted: PrometheusHandle,
        has_traces: bool,
    ) -> anyhow::Result<Self> {
        let to_tokio = |listener: TcpListener| {
            listener.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(listener)
        };
        let (api, gateway_listener) = (to_tokio(listeners.api)?, to_tokio(listeners.gateway)?);
        let (app, stop) = (platform.app.clone(), CancellationToken::new());
        let (predecessors, limits) = (platform.predecessors.clone(), connection_limits(config, doors));
        let (files, certificate) = certificate::open(config)?;
        let gateway = gateway::start(
            config,
            certificate,
            app.clone(),
            platform.sessions.clone(),
            predecessors.clone(),
            doors,
        )?;
        let reconciler = platform.reconciler.clone();
        let reconciling = tokio::spawn(kept("reconciler", move || {
            let reconciler = reconciler.clone();
            async move { reconciler.run().await }
        }));
        let gateway_task = tokio::spawn(gateway.clone().serve(gateway_listener, stop.clone()));
        let page = Page::new(counted.clone(), config, app.clone(), platform.engine.clone(), gateway.clone());
        let branches = coppice_api::gateway_routes(gateway.clone(), config.trusted_proxies.clone());
        let mut tasks = Tasks::default();
        let api_config = config.api.clone();
        let operations =
            coppice_api::router(&mut tasks, app.clone(), api_config, page, Some(gateway.clone()));
        let agents =
            coppice_mcp::router(&operations, app.identity.issuers().public_url(), config.api.hosts.clone());
        let platform_routes = coppice_api::beside(operations, agents, config.trusted_proxies.clone());
        let mut router = branches.fallback_service(platform_routes);
        if has_traces {
            router = router.layer(axum::middleware::from_fn(trace_request));
        }
        let served = coppice_api::serve(api, router, gateway.clone(), limits, stop.clone().cancelled_owned());
        let api_task = tokio::spawn(served);
        app.begin_tasks(&mut tasks);
        begin_tasks_of_machine(&mut tasks, config, platform);
        tasks.keep("predecessors", {
            let predecessors = platform.predecessors.clone();
            move || {
                let predecessors = predecessors.clone();
                async move { predecessors.watch().await }
            }
        });
        tasks.every("metrics_counting", COUNTING, &counted, |counted| async move {
            counted.run_upkeep();
            Ok(())
        });
        certificate::follow(&mut tasks, gateway.clone(), files);
        Ok(Self { stop, gateway, gateway_task, api_task, reconciling, tasks })
    }

    /// Lets work and requests end, gives the control lock back, and serves what sessions there are until they end.
    /// With a successor clients are let in here until the work has ended, which takes as long as servers do.
    pub(super) async fn drain(
        self,
        platform: Platform,
        config: &Config,
        successor: Option<(Successor, Listeners)>,
    ) -> anyhow::Result<()> {
        // Whoever hands over keeps its sessions as long as it may.
        let (patience, for_requests, for_threads) = match &successor {
            Some(_) => (DRAIN_MAX, REQUESTS, THREADS_OF_PREDECESSOR),
            None => (config.drain, Duration::MAX, THREADS),
        };
        let last = Instant::now() + patience;
        if successor.is_none() {
            self.stop.cancel();
        }
        let is_at_rest = platform.reconciler.stop(for_threads).await;
        drop(self.tasks);
        if let Err(error) = platform.engine.end_drill().await {
            tracing::warn!("ending a drill: {}", error.chain());
        }
        self.stop.cancel();
        let _ = self.reconciling.await;
        let (mut api_task, app) = (self.api_task, platform.app.clone());
        let are_answered = timeout(for_requests, &mut api_task).await.is_ok();
        note_uses(&app).await;
        app.audit.end_account_events().await;
        if is_inside() {
            drop(platform);
            return stop::stop_everything(&config.data_dir, None).await;
        }
        // Whoever gets the lock goes on where that ended, so it has to end first: with this process, and its sessions.
        anyhow::ensure!(is_at_rest, "work on branches did not end in time: the next start goes on with it");
        // Before the lock is given back: whoever gets it must find the sessions.
        let _drain_server = DrainServer::start(platform.host.layout().runtime_dir(), self.gateway.clone())?;
        drop(platform.lock);
        if let Some((successor, listeners)) = successor {
            let ready = successor.ready().await;
            drop(listeners);
            // Whoever supervises this process starts it again.
            ready.context("handing over; start coppice again")?;
        }
        let gateway_task = self.gateway_task;
        let mut clients = pin!(async move {
            if !are_answered {
                let _ = api_task.await;
            }
            let _ = gateway_task.await;
        });
        while timeout_at(last.min(Instant::now() + NOTE), &mut clients).await.is_err() {
            note_uses(&app).await;
            if Instant::now() >= last {
                tracing::warn!("cutting the sessions that are still open after {} s", patience.as_secs());
                break;
            }
        }
        note_uses(&app).await;
        app.audit.end_account_events().await;
        Ok(())
    }
}

/// Writes down what would be lost with this process.
async fn note_uses(app: &App) {
    app.sleep.note_uses().await;
    app.metering.note_egress().await;
    if let Err(error) = app.keys.write_uses().await {
        tracing::warn!("noting when keys were used: {error}");
    }
}

fn connection_limits(config: &Config, doors: Doors) -> ConnectionLimits {
    ConnectionLimits {
        total: doors.api,
        per_address: config.strangers.api_connections_per_address as usize,
        first_request: config.strangers.first_request,
        trusted_proxies: config.trusted_proxies.clone(),
    }
}

/// What goes on for the servers and the storage of this machine.
fn begin_tasks_of_machine(tasks: &mut Tasks, config: &Config, platform: &Platform) {
    let (host, engine) = (&platform.host, &platform.engine);
    if config.metastore_url.is_none() {
        let host = host.clone();
        tasks.keep("metastore", move || {
            let host = host.clone();
            async move { host.keep_metastore().await }
        });
    }
    let (prepared, wanted) = (engine.clone(), config.prepare.clone());
    tasks.keep("templates", move || prepare(prepared.clone(), wanted.clone()));
    let state = (host.clone(), config.log_retention.clone());
    tasks.every("log_retention", LOGS, &state, |(host, retention)| {
        blocking(move || host.trim_logs(&retention))
    });
    let state = (host.clone(), platform.engine.clone());
    tasks.every("storage_upkeep", STORAGE, &state, |(host, engine)| {
        blocking(move || {
            engine.close_idle_sessions();
            host.tend_ballast();
            host.limit_processes();
            engine.storage().maintain()
        })
    });
}

/// Removes what an earlier process left half deleted, and makes templates.
async fn prepare(engine: Arc<LocalEngine>, wanted: Option<Vec<u32>>) {
    let storage = engine.storage().clone();
    if let Err(error) = blocking(move || storage.empty_trash()).await {
        tracing::warn!("emptying the trash: {}", error.for_log());
    }
    engine.prepare_templates(wanted.as_deref()).await;
}

/// Does work of the engine on a thread that may block.
async fn blocking(
    work: impl FnOnce() -> Result<(), EngineError> + Send + 'static,
) -> coppice_core::Result<()> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(coppice_core::Error::from),
        Err(panic) => Err(coppice_core::Error::internal(panic.to_string())),
    }
}
