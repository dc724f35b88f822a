//! Branches that sleep when nobody uses them, and wake when somebody does.

use std::time::Duration;

use chrono::{DateTime, Utc};
use coppice_core::{BranchId, Result};
use coppice_store::IdleCandidate;

use crate::App;

/// How often the idle watch looks.
const LOOK: Duration = Duration::from_secs(5);

/// Who knows the clients of branches.
pub trait Clients: Send + Sync + 'static {
    /// When the last client of a branch left, as far as is known; none while
    /// it has clients.
    fn idle_since(&self, branch: &BranchId) -> Option<Option<DateTime<Utc>>>;

    /// Keeps new clients of a branch waiting, if it has none now, until the
    /// returned value is dropped; none when it has clients.
    fn hold(&self, branch: &BranchId) -> Option<Box<dyn Send>>;
}

impl App {
    /// Wakes a branch for a client that proved who it is. Returns whether it
    /// may be woken by a connection: its scale-to-zero is on and its
    /// organization enabled.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn wake_for_client(&self, branch: &BranchId, by: &str) -> Result<bool> {
        let is_waking = self.store.branch_wake_for_client(branch, by).await?;
        if is_waking {
            self.reconciler.nudge(branch.clone());
        }
        Ok(is_waking)
    }

    /// Puts branches to sleep that nobody has used for as long as their
    /// scale-to-zero says, for ever.
    pub async fn watch_idle(&self, clients: &dyn Clients) {
        let started = Utc::now();
        let mut timer = tokio::time::interval(LOOK);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            timer.tick().await;
            if let Err(error) = self.look_for_idle(clients, started).await {
                tracing::warn!("looking for idle branches: {error}");
            }
        }
    }

    async fn look_for_idle(&self, clients: &dyn Clients, started: DateTime<Utc>) -> Result<()> {
        let now = Utc::now();
        for candidate in self.store.branch_idle_candidates(&self.config.host).await? {
            let Some(last_left) = clients.idle_since(&candidate.id) else { continue };
            // Clients of an earlier process are not known to this one.
            let idle_since =
                [Some(candidate.idle_since), Some(started), last_left].into_iter().flatten().max();
            let idle_for = now - idle_since.unwrap_or(now);
            if idle_for >= chrono::Duration::minutes(i64::from(candidate.inactivity_minutes)) {
                self.put_to_sleep_if_idle(clients, &candidate).await?;
            }
        }
        Ok(())
    }

    /// Decides in one place: while clients are held, either the branch has none
    /// and its goal becomes to sleep, or it stays awake.
    async fn put_to_sleep_if_idle(&self, clients: &dyn Clients, candidate: &IdleCandidate) -> Result<()> {
        let Some(_held) = clients.hold(&candidate.id) else { return Ok(()) };
        if self.store.branch_hibernate_idle(candidate).await? {
            tracing::info!(branch = %candidate.id, "branch {} is idle: it goes to sleep", candidate.id);
            self.reconciler.nudge(candidate.id.clone());
        }
        Ok(())
    }
}
