//! Branches that sleep when nobody uses them, and wake when somebody does.

mod activity;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use coppice_core::awake::{ClientSession, NewUse};
use coppice_core::statistics::ClientTraffic;
use coppice_core::{BranchId, Error, HostId, InstanceId, Result};
use coppice_engine::SharedEngine;
use coppice_store::{IdleCandidate, Store};

use crate::reconciler::Reconciler;

pub use activity::Activity;

/// For how long the ledger is kept.
const LEDGER_DAYS: u32 = 90;

/// Who knows the clients of branches.
#[async_trait]
pub trait Clients: Send + Sync + 'static {
    /// Open sessions of a branch, oldest first; also those that an earlier
    /// process still serves, as far as it answers.
    async fn sessions(&self, branch: &BranchId) -> Vec<ClientSession>;

    /// When the last client of a branch left, as far as is known.
    fn last_left(&self, branch: &BranchId) -> Option<Instant>;

    /// Keeps new clients of a branch waiting, if it has none now, until the
    /// returned value is dropped; none when it has clients, or may have some.
    async fn hold(&self, branch: &BranchId) -> Option<Box<dyn Send + Sync>>;

    /// How branches were used since this was last asked.
    fn take_uses(&self) -> Vec<NewUse>;

    /// Bytes that clients of a branch moved since this process began, also
    /// through an earlier process that still serves them. Grows only.
    fn traffic(&self, branch: &BranchId) -> ClientTraffic;

    /// Bytes that clients of each branch were sent through this process alone since
    /// it began. They only grow.
    fn sent(&self) -> BTreeMap<BranchId, u64>;
}

/// When branches fall asleep and wake.
#[derive(Clone)]
pub struct Sleep {
    store: Store,
    engine: SharedEngine,
    reconciler: Reconciler,
    clients: Arc<dyn Clients>,
    /// Whose branches are put to sleep.
    host: HostId,
    /// When this process began to know clients.
    started: Instant,
}

impl Sleep {
    pub(crate) fn new(
        store: Store,
        engine: SharedEngine,
        reconciler: Reconciler,
        clients: Arc<dyn Clients>,
        host: HostId,
    ) -> Self {
        Self { store, engine, reconciler, clients, host, started: Instant::now() }
    }

    /// Wakes a branch for a client that proved who it is. Returns whether it
    /// may be woken by a connection: its scale-to-zero is on and its
    /// organization enabled.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn wake_for_client(&self, branch: &BranchId, by: &str) -> Result<bool> {
        let is_waking = self.store.branch_wake_for_client(branch, by).await?;
        if is_waking {
            self.reconciler.nudge(branch.clone());
        }
        Ok(is_waking)
    }

    /// Writes down who used which branch since the last time. What can't be
    /// written is lost: the ledger is for people, and memory is for clients.
    pub async fn note_uses(&self) {
        if let Err(error) = self.write_uses().await {
            tracing::warn!("noting who used which branch: {}", error.for_log());
        }
    }

    pub(crate) async fn write_uses(&self) -> Result<()> {
        let uses = self.clients.take_uses();
        if !uses.is_empty() {
            self.store.awake_note_uses(&uses).await?;
        }
        Ok(())
    }

    /// Shortens the awake ledger.
    pub(crate) async fn purge(&self) -> Result<()> {
        self.store.awake_purge(LEDGER_DAYS).await?;
        Ok(())
    }

    /// Puts branches to sleep that nobody has used for as long as their
    /// scale-to-zero says.
    pub async fn look_for_idle(&self) -> Result<()> {
        for candidate in self.store.branch_idle_candidates(&self.host).await? {
            let inactivity = Duration::from_secs(u64::from(candidate.inactivity_minutes) * 60);
            if self.idle_for(&candidate.id, candidate.idle_since) < inactivity {
                continue;
            }
            // One that can't be asked keeps no other awake.
            if let Err(error) = self.put_to_sleep_if_idle(&candidate).await {
                tracing::warn!(branch = %candidate.id, "putting branch {} to sleep: {error}", candidate.id);
            }
        }
        Ok(())
    }

    /// For how long a branch without clients has been idle. What this process
    /// saw counts by a clock that nobody sets.
    pub(crate) fn idle_for(&self, branch: &BranchId, recorded_since: DateTime<Utc>) -> Duration {
        let recorded = (Utc::now() - recorded_since).to_std().unwrap_or_default();
        // Clients of an earlier process left it at an unknown time.
        let last_left = self.clients.last_left(branch).unwrap_or(self.started);
        recorded.min(self.started.elapsed()).min(last_left.elapsed())
    }

    /// Whether somebody receives the WAL of a branch that runs.
    pub(crate) async fn has_active_slot(&self, branch: &BranchId) -> Result<bool> {
        let asked = self.engine.has_active_slot(&InstanceId::primary(branch)).await;
        asked.map_err(|error| Error::unavailable(error.chain()))
    }

    /// Decides in one place: while clients are held, either the branch has none
    /// and its goal becomes to sleep, or it stays awake.
    async fn put_to_sleep_if_idle(&self, candidate: &IdleCandidate) -> Result<()> {
        let Some(_held) = self.clients.hold(&candidate.id).await else { return Ok(()) };
        if self.has_active_slot(&candidate.id).await? {
            return Ok(());
        }
        self.note_uses().await;
        if self.store.branch_hibernate_idle(candidate).await? {
            tracing::info!(branch = %candidate.id, "branch {} is idle: it goes to sleep", candidate.id);
            self.reconciler.nudge(candidate.id.clone());
        }
        Ok(())
    }
}
