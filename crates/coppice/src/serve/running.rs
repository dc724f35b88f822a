//! The tasks of a running platform, and how they end.

use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use coppice_api::ConnectionLimits;
use coppice_app::{App, task_succeeded};
use coppice_engine::local::{HostEngine, LocalEngine};
use coppice_gateway::Gateway;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::boot::Platform;
use super::descriptors::Doors;
use super::drain::Teller;
use super::handover::{Knock, Listeners};
use super::metrics::Page;
use super::{certificate, gateway, is_inside, log_retention, stop};
use crate::config::{Config, DRAIN_MAX};
use crate::traces::trace_request;

/// How often a process that only serves its last sessions writes down their use.
const NOTE: Duration = Duration::from_secs(30);
/// How often storage and sessions are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// How often old records are looked for. The alert on tasks that are stuck
/// knows it.
const TIDYING: Duration = Duration::from_secs(600);
/// How often sessions and signing keys are looked after.
const IDENTITY: Duration = Duration::from_secs(60);
/// Names of the three among the tasks whose last success is told.
/// Pause before a task that panicked is begun again.
const AFTER_PANIC: Duration = Duration::from_secs(5);
const HOUSEKEEPING_TASK: &str = "housekeeping";
const TIDYING_TASK: &str = "tidying";
const IDENTITY_TASK: &str = "identity";

/// The tasks of a running platform.
pub(super) struct Running {
    stop: CancellationToken,
    gateway: Arc<Gateway>,
    gateway_task: JoinHandle<()>,
    api_task: JoinHandle<()>,
    looping: JoinHandle<()>,
    /// Ended without ceremony.
    watches: Vec<JoinHandle<()>>,
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
            doors.gateway,
        )?;
        let looping = tokio::spawn({
            let reconciler = platform.reconciler.clone();
            async move { reconciler.run().await }
        });
        let gateway_task = tokio::spawn(gateway.clone().serve(gateway_listener, stop.clone()));
        let page = Page::new(counted, config, app.clone(), platform.engine.clone(), gateway.clone());
        let mut router = coppice_api::router(app.clone(), config.api.clone(), page);
        if has_traces {
            router = router.layer(axum::middleware::from_fn(trace_request));
        }
        let api_task = tokio::spawn(coppice_api::serve(api, router, limits, stop.clone().cancelled_owned()));
        let (host, engine) = (platform.host.clone(), platform.engine.clone());
        let (retention, is_embedded) = (config.log_retention.clone(), config.metastore_url.is_none());
        let of_app = |name, task: fn(App) -> BoxFuture<'static, ()>| {
            let app = app.clone();
            keep(name, move || task(app.clone()))
        };
        let watches = vec![
            of_app("idle watch", |app| Box::pin(async move { app.watch_idle().await })),
            of_app("identity", |app| Box::pin(tend_identity(app))),
            of_app("samples", |app| Box::pin(async move { app.sample_instances().await })),
            of_app("history", |app| Box::pin(async move { app.keep_history().await })),
            of_app("storage watch", |app| Box::pin(async move { app.watch_storage().await })),
            of_app("tidying", |app| Box::pin(tidying(app))),
            of_app("mails", |app| Box::pin(async move { app.send_mails().await })),
            tokio::spawn(async move { predecessors.watch().await }),
            keep("certificate", {
                let gateway = gateway.clone();
                move || certificate::follow(gateway.clone(), files.clone())
            }),
            tokio::spawn({
                let host = host.clone();
                async move {
                    if is_embedded {
                        host.keep_metastore().await;
                    }
                }
            }),
            keep("logs", {
                let host = host.clone();
                move || log_retention::enforce(host.clone(), retention.clone())
            }),
            keep("housekeeping", {
                let app = app.clone();
                move || housekeeping(app.clone(), host.clone(), engine.clone())
            }),
        ];
        Ok(Self { stop, gateway, gateway_task, api_task, looping, watches })
    }

    /// Lets requests end, gives the control lock back, and serves what sessions
    /// there are until they end.
    pub(super) async fn drain(
        self,
        platform: Platform,
        config: &Config,
        successor: Option<(Knock, Listeners)>,
    ) -> anyhow::Result<()> {
        // Whoever hands over keeps its sessions as long as it may.
        let patience = if successor.is_some() { DRAIN_MAX } else { config.drain };
        let last = Instant::now() + patience;
        self.watches.iter().for_each(JoinHandle::abort);
        self.stop.cancel();
        platform.reconciler.stop().await;
        let _ = tokio::join!(self.api_task, self.looping);
        let app = platform.app.clone();
        app.end_account_events().await;
        app.note_uses().await;
        if let Err(error) = app.write_key_uses().await {
            tracing::warn!("noting when keys were used: {error}");
        }
        if is_inside() {
            drop(platform);
            return stop::stop_everything(&config.data_dir, None).await;
        }
        // Before the lock is given back: whoever gets it must find the sessions.
        let _teller = Teller::start(platform.host.layout().runtime_dir(), self.gateway.clone())?;
        drop(platform.lock);
        if let Some((knock, listeners)) = successor {
            let ready = knock.ready().await;
            drop(listeners);
            // Whoever supervises this process starts it again.
            ready.context("handing over; start coppice again")?;
        }
        let mut gateway_task = self.gateway_task;
        while timeout_at(last.min(Instant::now() + NOTE), &mut gateway_task).await.is_err() {
            app.note_uses().await;
            if Instant::now() >= last {
                tracing::warn!("cutting the sessions that are still open after {} s", patience.as_secs());
                break;
            }
        }
        app.note_uses().await;
        Ok(())
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

/// A task that goes on for ever. One that panics is begun again: nobody else
/// does its work.
fn keep<F>(name: &'static str, task: impl Fn() -> F + Send + 'static) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(async move {
        while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
            tracing::error!("the task {name} panicked: it is begun again");
            tokio::time::sleep(AFTER_PANIC).await;
        }
    })
}

/// Finishes what was asked for, and forgets what is not needed any more.
async fn tidying(app: App) {
    let mut timer = tokio::time::interval(TIDYING);
    loop {
        timer.tick().await;
        if app.tidy().await {
            task_succeeded(TIDYING_TASK);
        }
    }
}

/// Keys that tokens are signed with, first of all; and what is left of signing in.
async fn tend_identity(app: App) {
    let mut timer = tokio::time::interval(IDENTITY);
    loop {
        timer.tick().await;
        if app.tend_identity().await {
            task_succeeded(IDENTITY_TASK);
        }
    }
}

/// Templates, then what has to be done now and then.
async fn housekeeping(app: App, host: Arc<HostEngine>, engine: Arc<LocalEngine>) {
    let storage = engine.storage().clone();
    let emptied = tokio::task::spawn_blocking(move || storage.empty_trash()).await;
    if let Ok(Err(error)) = emptied {
        tracing::warn!("emptying the trash: {}", error.chain());
    }
    engine.prepare_templates().await;
    let mut timer = tokio::time::interval(HOUSEKEEPING);
    loop {
        timer.tick().await;
        engine.close_idle_sessions();
        host.tend_ballast();
        if let Err(error) = app.write_key_uses().await {
            tracing::warn!("noting when keys were used: {error}");
        }
        let (storage, host) = (engine.storage().clone(), host.clone());
        let maintain = move || {
            host.limit_processes();
            storage.maintain()
        };
        match tokio::task::spawn_blocking(maintain).await {
            Ok(Ok(())) => task_succeeded(HOUSEKEEPING_TASK),
            Ok(Err(error)) => tracing::warn!("looking after storage: {}", error.chain()),
            Err(_) => {}
        }
    }
}
