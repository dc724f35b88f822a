//! One attempt to bring a branch to its goal: claim, look, do a step, look again.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coppice_core::BranchId;
use coppice_core::branch::{BranchState, Goal};
use coppice_core::claim::ClaimToken;
use coppice_core::organization::Holder;
use coppice_core::plan::{InstanceSeen, Seen, Step, plan};
use coppice_core::volume::VolumeState;
use coppice_engine::{EngineError, Errand, on_errand};
use coppice_store::{BranchWork, StoreError};
use coppice_turns::Turn;
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument as _;

use super::upgrade_words::{not_upgraded, trial_failed};
use super::{Inner, RETRY_FIRST, Reconciler};
use crate::metrics::{self, Outcome};

/// How long a claim holds without being renewed.
pub(super) const LEASE_SECONDS: u32 = 60;
/// The longest pause between retries.
const RETRY_LONGEST: Duration = Duration::from_secs(30);
/// A branch that could not be brought up for this long is shown as failed.
const FAILED_AFTER: Duration = Duration::from_secs(10);
/// A server that did not start so often with settings that are new to it may
/// start with those of before.
const UNPROVEN_TRIES: u32 = 3;
/// Work that takes longer waits for something, and gives its place to another
/// branch.
const PLACE_PATIENCE: Duration = Duration::from_secs(2);
/// What its owner is told of a server that rests.
pub(super) const ENDS_AGAIN: &str = "the server ended again and again, so its next start waits";

/// Why nothing is begun any more.
pub(super) const STOPPED: StepError = StepError::NotYet("the platform is stopped");

/// A place among the branches that are worked on.
type Place = Turn<Option<Holder>>;

/// What the engine is called for on behalf of a branch.
struct BranchErrand {
    given_up: CancellationToken,
    /// Whoever ends the loop waits for it.
    _goes_on: TaskTrackerToken,
}

impl Errand for BranchErrand {
    fn is_given_up(&self) -> bool {
        self.given_up.is_cancelled()
    }
}

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another claim took over, or the row changed: look again later.
    #[error("the branch is claimed by another process")]
    Lost,
    /// Something else has to happen first.
    #[error("{0}")]
    NotYet(&'static str),
    /// What it is to share its room with is made first; it is looked at again after this time.
    #[error("what it was a copy of is made first")]
    Behind(Duration),
    /// The server runs, but does not answer.
    #[error("{0}")]
    Unwell(String),
    /// The primary is up, and a replica is not.
    #[error("a replica is not ready: {0}")]
    ReplicaNotReady(String),
    /// The server ended again and again; it is started after this time.
    #[error("{ENDS_AGAIN}")]
    Resting(Duration),
    #[error("a step panicked; the platform's log tells where, please report it")]
    Panicked,
}

impl StepError {
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Engine(_)
            | Self::Store(_)
            | Self::Unwell(_)
            | Self::ReplicaNotReady(_)
            | Self::Panicked => Outcome::Failed,
            Self::Lost => Outcome::Lost,
            Self::NotYet(_) | Self::Behind(_) | Self::Resting(_) => Outcome::NotYet,
        }
    }

    /// One line for the log and the branch's status.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Engine(error) => error.chain(),
            Self::Store(_)
            | Self::Lost
            | Self::NotYet(_)
            | Self::Behind(_)
            | Self::Unwell(_)
            | Self::ReplicaNotReady(_)
            | Self::Resting(_)
            | Self::Panicked => self.to_string(),
        }
    }
}

impl Reconciler {
    /// Works on one branch, and leaves that where it waits when it is given up. What threads go on with then keeps
    /// [`Reconciler::stop`] waiting.
    pub(super) async fn work_unless_given_up(self, branch: BranchId) {
        let given_up = self.inner.given_up.clone();
        let errand = BranchErrand { given_up: given_up.clone(), _goes_on: self.inner.tasks.token() };
        let working = on_errand(Arc::new(errand), self.work(branch));
        tokio::select! {
            biased;
            () = given_up.cancelled() => {}
            () = working => {}
        }
    }

    /// Works on one branch until it is settled or a step fails.
    async fn work(self, branch: BranchId) {
        let inner = &self.inner;
        let outcome = match self.take_place(&branch).await {
            Some(place) => self.reconcile_with(place, &branch).await,
            None => Err(STOPPED),
        };
        let retry_after = match outcome {
            Ok(()) => {
                let mut work = inner.lock();
                work.failing_since.remove(&branch);
                work.replica_failures.remove(&branch);
                None
            }
            Err(error @ StepError::ReplicaNotReady(_)) => {
                let mut work = inner.lock();
                work.failing_since.remove(&branch);
                let attempts = work.replica_failures.entry(branch.clone()).or_default();
                *attempts += 1;
                tracing::warn!(%branch, attempts, "branch {branch}: {}", error.reason());
                Some(pause(*attempts))
            }
            Err(StepError::Lost) => {
                // The new holder of the claim counts it, or there is nothing to do.
                // If the branch comes back, the timer finds it.
                inner.lock().forget(&branch);
                None
            }
            Err(StepError::NotYet(why)) => {
                tracing::debug!(%branch, "branch {branch}: {why}");
                Some(RETRY_FIRST)
            }
            Err(StepError::Behind(pause)) => Some(pause),
            Err(StepError::Resting(rest)) => {
                tracing::debug!(%branch, ?rest, "branch {branch}: {ENDS_AGAIN}");
                Some(rest)
            }
            Err(error) => Some(self.note_failure(&branch, &error).await),
        };
        let nudged_again = inner.finish(&branch);
        if let Some(pause) = retry_after {
            self.nudge_after(branch, pause);
        } else if nudged_again {
            inner.wake.notify_one();
        }
    }

    /// Waits for a place among the branches that are worked on; none when this process is to end. Whose a branch
    /// is, the metastore is asked only where it has to wait.
    async fn take_place(&self, branch: &BranchId) -> Option<Place> {
        let Inner { places, store, stop, .. } = &*self.inner;
        if let Some(place) = places.try_take() {
            return Some(place);
        }
        let waiting = async {
            // Without an answer the work itself finds out what is wrong.
            let holder = store.branch_holder(branch).await.ok().flatten();
            places.take(&holder).await
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            place = waiting => Some(place),
        }
    }

    /// Gives the place back when it is done, or takes long.
    async fn reconcile_with(&self, place: Place, branch: &BranchId) -> Result<(), StepError> {
        let reconciling = self.reconcile(branch).instrument(tracing::debug_span!("reconcile", %branch));
        // A branch whose step panics would never be worked on again.
        let reconciling = AssertUnwindSafe(reconciling).catch_unwind();
        let reconciling = async { reconciling.await.unwrap_or(Err(StepError::Panicked)) };
        tokio::pin!(reconciling);
        let done = tokio::time::timeout(PLACE_PATIENCE, &mut reconciling).await;
        drop(place);
        match done {
            Ok(outcome) => outcome,
            Err(_) => reconciling.await,
        }
    }

    async fn note_failure(&self, branch: &BranchId, error: &StepError) -> Duration {
        let (since, attempts) = {
            let mut work = self.inner.lock();
            let entry = work.failing_since.entry(branch.clone()).or_insert_with(|| (Instant::now(), 0));
            entry.1 += 1;
            *entry
        };
        metrics::retried();
        let reason = error.reason();
        tracing::warn!(%branch, attempts, "branch {branch}: {reason}");
        let has_not_started = matches!(error, StepError::Engine(EngineError::StartFailed { .. }));
        let may_be_its_settings = has_not_started && attempts >= UNPROVEN_TRIES;
        let is_hopeless = matches!(error, StepError::Engine(EngineError::NotUpgradable(_)));
        if !may_be_its_settings && !is_hopeless && since.elapsed() < FAILED_AFTER {
            return pause(attempts);
        }
        let token = self.inner.next_token();
        let host = &self.inner.control_plane.host;
        let claimed = self.inner.store.branch_claim(branch, host, token, LEASE_SECONDS).await;
        let Ok(Some(work)) = claimed else { return pause(attempts) };
        if may_be_its_settings && work.is_unproven && self.take_back(branch, token, &reason).await {
            self.inner.lock().failing_since.remove(branch);
            return RETRY_FIRST;
        }
        if (is_hopeless || since.elapsed() >= FAILED_AFTER)
            && self.give_up_replacement(&work, token, &reason).await
        {
            self.inner.lock().failing_since.remove(branch);
            return RETRY_FIRST;
        }
        if since.elapsed() >= FAILED_AFTER && work.branch.goal != Goal::Deleted {
            let _ = self.inner.store.branch_report(branch, token, BranchState::Failed, &reason).await;
            self.inner.announce(branch);
        }
        pause(attempts)
    }

    /// Gives a branch the settings again that its server last started with; false
    /// when that can't be done.
    async fn take_back(&self, branch: &BranchId, token: ClaimToken, reason: &str) -> bool {
        let why = format!(
            "it has its settings of before again, because its server did not start with the last ones: {reason}"
        );
        let taken = self.inner.store.branch_take_back(branch, token, &why).await;
        tracing::warn!(%branch, ?taken, "branch {branch}: {why}");
        taken.unwrap_or(false)
    }

    /// Lets a branch stay what it is when the volume can't be made that was to take
    /// the place of its own; false when there is none, or that can't be done.
    async fn give_up_replacement(&self, work: &BranchWork, token: ClaimToken, reason: &str) -> bool {
        let branch = &work.branch.id;
        let Some(volume) = work.replacement.as_ref().filter(|volume| volume.state == VolumeState::Planned)
        else {
            return false;
        };
        let why = match (volume.upgraded_from(), work.replacement_is_trial) {
            (None, _) => format!("it was not reset, and has the data that it had: {reason}"),
            (Some(_), true) => trial_failed(volume.version.major, reason),
            (Some(from), false) => not_upgraded(volume.version.major, from.major, reason),
        };
        let given_up = self.inner.store.branch_give_up_replacement(branch, token, &why).await;
        tracing::warn!(%branch, ?given_up, "branch {branch}: {why}");
        given_up.unwrap_or(false)
    }

    async fn reconcile(&self, branch: &BranchId) -> Result<(), StepError> {
        let inner = &self.inner;
        inner.go_on()?;
        let token = inner.next_token();
        let claimed =
            inner.store.branch_claim(branch, &inner.control_plane.host, token, LEASE_SECONDS).await?;
        let Some(mut work) = claimed else { return Err(StepError::Lost) };
        loop {
            // The next process goes on from here.
            inner.go_on()?;
            let seen = Seen {
                goal: work.branch.goal,
                volume: work.volume.state,
                replacement: work.replacement.as_ref().map(|volume| volume.state),
                instance: self.observe_primary(&work).await?,
                replicas: self.observe_replicas(&work).await?,
            };
            let step = plan(&seen);
            tracing::debug!(%branch, ?seen, ?step, "branch {branch}: {step:?}");
            let began = Instant::now();
            let span = tracing::debug_span!("step", otel.name = metrics::step_label(step), %branch);
            let applied = self.apply(step, &mut work, token).instrument(span).await;
            metrics::step_ended(
                step,
                began,
                applied.as_ref().map_or_else(StepError::outcome, |()| Outcome::Done),
            );
            applied?;
            if step == Step::Settle {
                return self.tend_replicas(&mut work, token).await;
            }
        }
    }

    /// What runs of a branch; one whose server never answers has a broken one.
    pub(super) async fn observe_primary(&self, work: &BranchWork) -> Result<InstanceSeen, StepError> {
        match self.inner.engine.observe(&work.instance, &work.volume.id).await? {
            InstanceSeen::Running if self.inner.health.is_hopeless(&work.branch.id) => {
                Ok(InstanceSeen::Broken)
            }
            instance => Ok(instance),
        }
    }
}

impl Inner {
    /// Fails when this process is to end.
    fn go_on(&self) -> Result<(), StepError> {
        match self.stop.is_cancelled() {
            true => Err(STOPPED),
            false => Ok(()),
        }
    }
}

/// The pause after so many attempts that failed.
pub(super) fn pause(attempts: u32) -> Duration {
    RETRY_FIRST.saturating_mul(1 << attempts.min(10)).min(RETRY_LONGEST)
}
