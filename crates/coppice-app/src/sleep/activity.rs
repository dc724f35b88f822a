//! Why a branch is awake, and why it was.

use std::time::Duration;

use chrono::{DateTime, Utc};
use coppice_core::Result;
use coppice_core::awake::{AwakePeriod, ClientSession};
use coppice_core::branch::{Branch, BranchState};
use coppice_core::target::InBranch;

use super::Sleep;
use crate::Access;
use crate::rows::find_branch;

/// What keeps a branch awake.
#[derive(Clone, Debug)]
pub struct Activity {
    /// Open sessions of clients, oldest first.
    pub sessions: Vec<ClientSession>,
    /// When it goes to sleep if nobody connects; none while it has sessions,
    /// sleeps, or may not sleep.
    pub sleeps_at: Option<DateTime<Utc>>,
    /// Whether it would be asleep if nobody received its WAL by a replication
    /// slot.
    pub is_replicated: bool,
    /// The newest times in which it was awake, newest first.
    pub periods: Vec<AwakePeriod>,
    /// The newest times at which its server had ended by itself, newest first;
    /// none where nobody asked for them.
    pub crashes: Vec<DateTime<Utc>>,
    /// When this was so.
    pub now: DateTime<Utc>,
    /// How long it may be idle before it sleeps; none when it stays awake.
    pub inactivity: Option<Duration>,
}

impl Activity {
    /// The time in which it is awake now.
    pub fn current(&self) -> Option<&AwakePeriod> {
        self.periods.first().filter(|period| period.ended.is_none())
    }

    /// Applications that keep it awake by connecting again and again.
    pub fn polling(&self) -> Vec<(&str, Duration)> {
        match (self.current(), self.inactivity) {
            (Some(period), Some(inactivity)) => period.polling(self.now, inactivity),
            _ => vec![],
        }
    }
}

impl Sleep {
    /// Who used a branch, and when it was awake; at most `count` times.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`
    pub async fn activity_of(&self, access: &Access<InBranch>, count: u32) -> Result<Activity> {
        let branch = find_branch(&self.store, access).await?;
        self.note_uses().await;
        let crashes = self.store.awake_crashes(&branch.id, count).await?;
        Ok(Activity { crashes, ..self.activity(&branch, count).await? })
    }

    /// Writes nothing: what branches are asked for once a second is read here.
    pub(crate) async fn activity(&self, branch: &Branch, count: u32) -> Result<Activity> {
        let periods = self.store.awake_list(&branch.id, count).await?;
        let known = self.known_activity(branch, periods).await;
        // Only the moment of falling asleep asks the server; so does this.
        let is_due = known.sleeps_at.is_some_and(|at| at <= known.now);
        let is_replicated = is_due && self.has_active_slot(&branch.id).await.unwrap_or(false);
        let sleeps_at = known.sleeps_at.filter(|_| !is_replicated);
        Ok(Activity { is_replicated, sleeps_at, ..known })
    }

    /// As far as it is known without asking a server.
    pub(crate) async fn known_activity(&self, branch: &Branch, periods: Vec<AwakePeriod>) -> Activity {
        let sessions = match branch.state {
            BranchState::Hibernated => vec![],
            _ => self.clients.sessions(&branch.id).await,
        };
        let setting = branch.scale_to_zero;
        let inactivity = Duration::from_secs(u64::from(setting.inactivity_period_minutes) * 60);
        let inactivity = setting.enabled.then_some(inactivity);
        let may_sleep = branch.state == BranchState::Ready && sessions.is_empty();
        let sleeps_at = inactivity
            .filter(|_| may_sleep)
            .map(|inactivity| Utc::now() + inactivity - self.idle_for(&branch.id, branch.idle_since));
        let (now, crashes, is_replicated) = (Utc::now(), vec![], false);
        Activity { sessions, sleeps_at, is_replicated, periods, crashes, now, inactivity }
    }
}
