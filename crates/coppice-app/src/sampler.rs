//! The task that looks at every running instance, and those that look after what
//! it wrote.
//!
//! A look wakes nobody and counts as no use. One that takes long delays no
//! other: each has its deadline, only so many run at once, and instances that
//! did not answer last time wait in a queue of their own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use coppice_core::statistics::ClientTraffic;
use coppice_core::{HostId, InstanceId, Result};
use coppice_engine::SharedEngine;
use coppice_store::{MeasuredInstance, Store, TakenSample};
use coppice_telemetry::metrics::{Look, Sample};
use coppice_turns::{Behalf, Busy};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::MissedTickBehavior;

use crate::configuration::instance_type;
use crate::metrics;
use crate::sleep::Clients;

/// Longest time one look may take.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);
/// Looks at a time.
const LOOKS_MAX: usize = 16;
/// Of them, at instances that did not answer the last time.
const LOOKS_AT_SILENT_MAX: usize = 4;
/// A silent instance is looked at again after at most so many rounds.
const ROUNDS_SKIPPED_MAX: u32 = 4;
/// Samples are written together that come within this time.
const GATHER: Duration = Duration::from_millis(200);
/// Samples of one statement.
const WRITTEN_AT_ONCE: usize = 256;
/// Samples that wait to be written; what comes on top is lost.
const WAITING_MAX: usize = 10_000;

/// What is known of an instance between two looks.
#[derive(Default)]
struct Known {
    before: Option<Look>,
    /// How often it did not answer in a row.
    silences: u32,
    rounds_to_skip: u32,
}

struct Sampler {
    sampling: Sampling,
    began: Instant,
    known: Mutex<HashMap<InstanceId, Known>>,
    /// Instances at which somebody looks.
    busy: Busy<InstanceId>,
    looks: Semaphore,
    looks_at_silent: Semaphore,
    samples: mpsc::Sender<TakenSample>,
}

/// Measures instances.
#[derive(Clone)]
pub struct Sampling {
    store: Store,
    engine: SharedEngine,
    clients: Arc<dyn Clients>,
    /// Whose instances.
    host: HostId,
    /// How often.
    interval: Duration,
}

impl Sampling {
    pub(crate) fn new(
        store: Store,
        engine: SharedEngine,
        clients: Arc<dyn Clients>,
        host: HostId,
        interval: Duration,
    ) -> Self {
        Self { store, engine, clients, host, interval }
    }

    /// Measures every running instance of this host again and again, for ever.
    pub async fn run(&self) {
        let (samples, taken) = mpsc::channel(WAITING_MAX);
        let sampler = Arc::new(Sampler {
            sampling: self.clone(),
            began: Instant::now(),
            known: Mutex::default(),
            busy: Busy::default(),
            looks: Semaphore::new(LOOKS_MAX),
            looks_at_silent: Semaphore::new(LOOKS_AT_SILENT_MAX),
            samples,
        });
        tokio::join!(sampler.run(self.interval), self.write(taken));
    }

    /// Merges what was measured, and forgets what belongs to deleted branches.
    pub(crate) async fn merge(&self) -> Result<()> {
        while !self.store.metric_merge(Utc::now()).await? {}
        while !self.store.metric_forget().await? {}
        Ok(())
    }

    /// Makes room for what will be measured, and drops what is too old.
    pub(crate) async fn make_room(&self) -> Result<()> {
        self.store.metric_make_room(Utc::now()).await?;
        self.store.metric_drop_old(Utc::now()).await?;
        Ok(())
    }

    /// Writes samples as they come, those of one round together.
    async fn write(&self, mut taken: mpsc::Receiver<TakenSample>) {
        let mut samples = vec![];
        let mut is_failing = false;
        while taken.recv_many(&mut samples, WRITTEN_AT_ONCE).await > 0 {
            tokio::time::sleep(GATHER).await;
            while samples.len() < WRITTEN_AT_ONCE
                && let Ok(sample) = taken.try_recv()
            {
                samples.push(sample);
            }
            let mut written = self.store.metric_add(&samples).await;
            if written.is_err() && self.store.metric_make_room(Utc::now()).await.is_ok() {
                // The clock may have leapt to where there are no partitions.
                written = self.store.metric_add(&samples).await;
            }
            // Said once, not four times a minute.
            if let Err(error) = &written
                && !is_failing
            {
                tracing::warn!("metrics are lost: {error}");
            }
            is_failing = written.is_err();
            samples.clear();
        }
    }
}

impl Sampler {
    async fn run(self: Arc<Self>, interval: Duration) {
        let mut timer = tokio::time::interval(interval);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_failing = false;
        loop {
            timer.tick().await;
            match self.sampling.store.metric_instances(&self.sampling.host).await {
                Ok(instances) => {
                    is_failing = false;
                    self.begin_looks(instances);
                    metrics::task_succeeded("metrics_sampler");
                }
                Err(error) if !is_failing => {
                    is_failing = true;
                    tracing::warn!("nothing is measured: {error}");
                }
                Err(_) => {}
            }
        }
    }

    fn begin_looks(self: &Arc<Self>, instances: Vec<MeasuredInstance>) {
        let mut known = self.known.lock();
        let running: HashSet<_> = instances.iter().map(|instance| &instance.id).collect();
        known.retain(|id, _| self.busy.has(id) || running.contains(id));
        for instance in instances {
            let Some(work) = self.busy.begin(&instance.id) else { continue };
            let entry = known.entry(instance.id.clone()).or_default();
            if entry.rounds_to_skip > 0 {
                entry.rounds_to_skip -= 1;
                continue;
            }
            let (sampler, is_silent) = (self.clone(), entry.silences > 0);
            tokio::spawn(async move {
                let _work = work;
                sampler.look(instance, is_silent).await;
            });
        }
    }

    async fn look(&self, instance: MeasuredInstance, is_silent: bool) {
        let queue = if is_silent { &self.looks_at_silent } else { &self.looks };
        let place = queue.acquire().await;
        let engine = &self.sampling.engine;
        let measuring = engine.measure(&instance.id, &instance.volume);
        let measuring = Behalf::new(instance.holder.as_str()).within(measuring);
        let found = tokio::time::timeout(LOOK_PATIENCE, measuring).await;
        drop(place);
        let look = found.ok().map(|found| Look {
            at: self.began.elapsed(),
            instance: found,
            traffic: match instance.id.is_primary() {
                true => self.sampling.clients.traffic(&instance.branch),
                // It is counted by branch.
                false => ClientTraffic::default(),
            },
        });
        let mut known = self.known.lock();
        let entry = known.entry(instance.id.clone()).or_default();
        let has_answered = look.as_ref().is_some_and(|look| look.instance.server.is_some());
        entry.silences = if has_answered { 0 } else { entry.silences.saturating_add(1) };
        entry.rounds_to_skip = entry.silences.saturating_sub(1).min(ROUNDS_SKIPPED_MAX);
        let Some(look) = look else { return };
        // Nothing is told of an instance that has no process: it sleeps, or is
        // started anew.
        if look.instance.process.is_empty() {
            entry.before = None;
            return;
        }
        let cpu_millis = instance_type(&instance.instance_type).vcpus * 1000;
        let sample = Sample::between(entry.before.as_ref(), &look, cpu_millis);
        entry.before = Some(look);
        drop(known);
        let taken = TakenSample { instance: instance.id, at: Utc::now(), sample };
        // Full when the metastore does not take them: what is lost is said there.
        let _ = self.samples.try_send(taken);
    }
}
