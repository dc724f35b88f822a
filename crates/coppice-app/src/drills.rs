//! Drills: the newest base of each branch is restored for proof, now and then.

use std::time::{Duration, Instant};

use chrono::Utc;
use coppice_core::backup::DrillResult;
use coppice_core::{Error, HostId, Result};
use coppice_engine::{DrillPlan, SharedEngine};
use coppice_store::{DueDrill, Store};
use parking_lot::Mutex;

use crate::configuration::settings_of;
use crate::metrics;

/// Drills that nobody waits for take at most this part of the time.
const SHARE: u32 = 10;

/// Until when none is held by itself.
#[derive(Debug, Default)]
pub(crate) struct Rest(Mutex<Option<Instant>>);

/// Restores bases for proof.
#[derive(Clone)]
pub(crate) struct Drills {
    store: Store,
    engine: SharedEngine,
    /// Whose branches.
    host: HostId,
    /// How often, if ever.
    every: Option<Duration>,
}

impl Drills {
    pub(crate) fn new(store: Store, engine: SharedEngine, host: HostId, every: Option<Duration>) -> Self {
        Self { store, engine, host, every }
    }

    /// Holds a drill, if one is due. Fails as long as some branch's last one did.
    pub(crate) async fn hold(&self, rest: &Rest) -> Result<()> {
        let (host, every) = (&self.host, self.every);
        let is_resting = rest.0.lock().is_some_and(|until| until > Instant::now());
        let due = self.store.drill_due(host, every.filter(|_| !is_resting)).await?;
        if let Some(due) = due {
            let began = Instant::now();
            self.hold_one(&due).await?;
            *rest.0.lock() = Some(Instant::now() + began.elapsed() * SHARE);
        }
        match self.store.drill_failure(host).await? {
            Some((branch, why)) => {
                Err(Error::internal(format!("the backup of branch {branch} can't be relied on: {why}")))
            }
            None => Ok(()),
        }
    }

    async fn hold_one(&self, due: &DueDrill) -> Result<()> {
        let (began_at, spec) = (Utc::now(), &due.branch.spec);
        let plan = DrillPlan {
            base: due.base.clone(),
            log_stored: due.log_stored,
            version: spec.version,
            settings: settings_of(spec),
            preload_libraries: spec.preload_libraries.clone(),
            storage_bytes: u64::from(spec.storage_gib) << 30,
        };
        let report = self.engine.drill(&plan).await;
        metrics::drill_held(report.result);
        let (branch, message) = (&due.branch.id, &report.message);
        match report.result {
            DrillResult::Passed => tracing::info!(%branch, "the drill of branch {branch} passed: {message}"),
            DrillResult::Failed => tracing::error!(%branch, "the drill of branch {branch} failed: {message}"),
            DrillResult::Skipped => {
                tracing::warn!(%branch, "the drill of branch {branch} was skipped: {message}")
            }
        }
        Ok(self.store.drill_note(branch, &due.base, began_at, &report).await?)
    }
}
