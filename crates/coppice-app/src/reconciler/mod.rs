//! The loop that makes reality match the rows.
//!
//! A row says what a branch should be. Whoever changes it, or finds that
//! something happened to a server, *nudges* the branch; a nudge means only
//! "look now". For each nudged branch one task at a time runs: it claims the
//! branch, observes, lets [`coppice_core::plan::plan`] choose one step, does
//! it, and looks again until the goal is reached. A timer nudges everything
//! that has not reached its goal, so a lost nudge costs seconds and nothing
//! else.
//!
//! Locks: `Inner::work` guards the table of nudged and running branches and is
//! never held across an await.

mod health;
mod passwords;
mod steps;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use coppice_core::branch::{BranchState, Goal};
use coppice_core::claim::ClaimToken;
use coppice_core::plan::{InstanceSeen, Seen, Step, plan};
use coppice_core::{BranchId, HostId, InstallationId};
use coppice_engine::{EngineError, SharedEngine, StopMode};
use coppice_store::{Store, StoreError};
use futures_util::FutureExt as _;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::background::Tasks;
use crate::metrics::{self, Outcome};
use crate::secrets::MasterKey;
use health::Health;

/// How long a claim holds without being renewed.
const LEASE_SECONDS: u32 = 60;
/// How often everything that has not reached its goal is looked at.
const TIMER: Duration = Duration::from_secs(5);
/// The task that does this.
const UNSETTLED_WATCH: &str = "unsettled_watch";
/// Pause before the first retry; doubled with each further one.
const RETRY_FIRST: Duration = Duration::from_millis(200);
/// The longest pause between retries.
const RETRY_LONGEST: Duration = Duration::from_secs(30);
/// A branch that could not be brought up for this long is shown as failed.
const FAILED_AFTER: Duration = Duration::from_secs(10);
/// Branches worked on at the same time.
const CONCURRENCY: usize = 8;
/// One that takes longer is waiting for something, and no longer keeps others
/// from being worked on.
const SLOT_PATIENCE: Duration = Duration::from_secs(5);

/// What its owner is told of a server that rests.
const ENDS_AGAIN: &str = "the server ended again and again, so its next start waits";

/// Who this control plane is.
#[derive(Clone, Debug)]
pub struct ControlPlane {
    /// The installation.
    pub installation: InstallationId,
    /// This host.
    pub host: HostId,
    /// The epoch of this start; the upper half of its claim tokens.
    pub epoch: u32,
}

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
enum StepError {
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
    /// The server runs, but does not answer.
    #[error("{0}")]
    Unwell(String),
    /// The server ended again and again; it is started after this time.
    #[error("{ENDS_AGAIN}")]
    Resting(Duration),
    #[error("a step panicked; the platform's log tells where, please report it")]
    Panicked,
}

impl StepError {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Engine(_) | Self::Store(_) | Self::Unwell(_) | Self::Panicked => Outcome::Failed,
            Self::Lost => Outcome::Lost,
            Self::NotYet(_) | Self::Resting(_) => Outcome::NotYet,
        }
    }

    /// One line for the log and the branch's status.
    fn reason(&self) -> String {
        match self {
            Self::Engine(error) => error.chain(),
            Self::Store(_)
            | Self::Lost
            | Self::NotYet(_)
            | Self::Unwell(_)
            | Self::Resting(_)
            | Self::Panicked => self.to_string(),
        }
    }
}

#[derive(Default)]
struct Work {
    nudged: BTreeSet<BranchId>,
    running: HashSet<BranchId>,
    watchers: HashMap<BranchId, watch::Sender<()>>,
    watched_servers: BTreeSet<BranchId>,
    failing_since: HashMap<BranchId, (Instant, u32)>,
    /// Rotations that could not be carried out, with the number of attempts.
    stuck_rotations: HashMap<BranchId, u32>,
    /// Since when there is something to do.
    unsettled_since: HashMap<BranchId, Instant>,
}

impl Work {
    /// Forgets what went wrong with a branch that others work on, or nobody.
    fn forget(&mut self, branch: &BranchId) {
        self.unsettled_since.remove(branch);
        self.failing_since.remove(branch);
        self.stuck_rotations.remove(branch);
    }
}

/// What is being worked on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Branches on which there is something to do.
    pub unsettled: usize,
    /// For how long there is, of the branch that waits longest.
    pub oldest: Duration,
    /// Branches whose last step failed.
    pub failing: usize,
    /// Servers of branches that run.
    pub servers: usize,
}

struct Inner {
    store: Store,
    engine: SharedEngine,
    key: Arc<MasterKey>,
    control_plane: ControlPlane,
    claims: AtomicU32,
    work: Mutex<Work>,
    health: Health,
    wake: Notify,
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A handle on the loop.
#[derive(Clone)]
pub struct Reconciler {
    inner: Arc<Inner>,
}

impl Reconciler {
    /// Makes the loop; nothing happens before [`Reconciler::run`].
    pub fn new(store: Store, engine: SharedEngine, key: Arc<MasterKey>, control_plane: ControlPlane) -> Self {
        metrics::describe();
        let inner = Inner {
            store,
            engine,
            key,
            control_plane,
            claims: AtomicU32::new(0),
            work: Mutex::default(),
            health: Health::default(),
            wake: Notify::new(),
            slots: Arc::new(Semaphore::new(CONCURRENCY)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Asks for a look at a branch, now.
    pub fn nudge(&self, branch: BranchId) {
        self.inner.lock().nudged.insert(branch);
        self.inner.wake.notify_one();
    }

    /// As [`Reconciler::nudge`], after a pause; not when it is stopped meanwhile.
    fn nudge_after(&self, branch: BranchId, pause: Duration) {
        let (again, stop) = (self.clone(), self.inner.stop.clone());
        self.inner.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => again.nudge(branch),
            }
        });
    }

    /// Completes when work on the branch next comes to an end: it reached its
    /// goal, or failed.
    pub fn watch(&self, branch: &BranchId) -> impl Future<Output = ()> + Send + use<> {
        let mut receiver = {
            let mut work = self.inner.lock();
            work.watchers.entry(branch.clone()).or_insert_with(|| watch::channel(()).0).subscribe()
        };
        async move {
            let _ = receiver.changed().await;
        }
    }

    /// Compares what is on disk and running with the metastore: a volume that
    /// no row knows is set aside, a server that no row knows is stopped. Then
    /// everything is looked at once.
    ///
    /// # Errors
    /// When the metastore or the engine fails.
    pub async fn adopt(&self) -> coppice_core::Result<()> {
        let (store, engine) = (&self.inner.store, &self.inner.engine);
        let failed = |error: EngineError| coppice_core::Error::internal(error.chain());
        let labels = engine.volumes().await.map_err(failed)?;
        let of_branches: Vec<_> = labels.into_iter().filter(|label| label.branch.is_some()).collect();
        let ids: Vec<_> = of_branches.iter().map(|label| label.volume.to_string()).collect();
        let known: HashSet<_> = store.volume_known(&ids).await?.into_iter().collect();
        let running = engine.running_instances().await.map_err(failed)?;
        let names: Vec<_> = running.iter().map(ToString::to_string).collect();
        let expected: HashSet<_> = store.instance_known(&names).await?.into_iter().collect();
        let strangers = of_branches.iter().filter(|label| !known.contains(label.volume.as_str()));
        for label in strangers {
            if let Some(branch) = &label.branch {
                let instance = coppice_core::InstanceId::new(branch, 1);
                engine.stop(&instance, Some(&label.volume), StopMode::Fast).await.map_err(failed)?;
            }
            tracing::warn!(volume = %label.volume, "volume {} is in no row: set aside, not deleted", label.volume);
            engine.quarantine(&label.volume).await.map_err(failed)?;
        }
        for instance in running.iter().filter(|id| !expected.contains(id.as_str())) {
            tracing::warn!(%instance, "instance {instance} is in no row: stopping it");
            engine.stop(instance, None, StopMode::Fast).await.map_err(failed)?;
        }
        for branch in store.branch_unsettled(&self.inner.control_plane.host, true).await? {
            self.nudge(branch);
        }
        Ok(())
    }

    /// Runs until [`Reconciler::stop`].
    pub async fn run(&self) {
        let inner = &self.inner;
        metrics::task_begun(UNSETTLED_WATCH, TIMER);
        let mut tasks = Tasks::default();
        let reconciler = self.clone();
        tasks.keep("branch_changes", move || reconciler.clone().listen());
        let reconciler = self.clone();
        tasks.keep("health_watch", move || reconciler.clone().watch_health());
        let mut timer = tokio::time::interval(TIMER);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = inner.stop.cancelled() => break,
                _ = timer.tick() => self.look_at_unsettled().await,
                () = inner.wake.notified() => {}
            }
            for branch in inner.take_nudged() {
                inner.tasks.spawn(self.clone().work(branch));
            }
        }
    }

    /// Ends the loop and waits for the steps in progress. Servers keep running.
    pub async fn stop(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Whether [`Reconciler::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.inner.stop.is_cancelled()
    }

    /// Branches changed by another process on the same metastore.
    async fn listen(self) {
        while !self.inner.stop.is_cancelled() {
            match self.inner.store.branch_listener().await {
                Ok(mut listener) => {
                    while let Ok(branch) = listener.next().await {
                        self.nudge(branch);
                    }
                }
                Err(error) => tracing::warn!("listening for changed branches: {error}"),
            }
            tokio::time::sleep(RETRY_FIRST).await;
        }
    }

    /// What is being worked on now.
    pub fn workload(&self) -> Workload {
        let work = self.inner.lock();
        Workload {
            unsettled: work.unsettled_since.len(),
            oldest: work.unsettled_since.values().min().map(Instant::elapsed).unwrap_or_default(),
            failing: work.failing_since.len(),
            servers: work.watched_servers.len(),
        }
    }

    async fn look_at_unsettled(&self) {
        let _ = self.inner.store.host_heartbeat(&self.inner.control_plane.host).await;
        match self.inner.store.branch_unsettled(&self.inner.control_plane.host, false).await {
            Ok(branches) => {
                metrics::task_succeeded(UNSETTLED_WATCH);
                let retrying: HashSet<_> = {
                    let work = self.inner.lock();
                    work.failing_since.keys().chain(work.stuck_rotations.keys()).cloned().collect()
                };
                for branch in branches.into_iter().filter(|branch| !retrying.contains(branch)) {
                    self.nudge(branch);
                }
            }
            Err(error) => tracing::warn!("looking for unsettled branches: {error}"),
        }
        if let Err(error) = self.inner.store.branch_purge().await {
            tracing::warn!("forgetting deleted branches: {error}");
        }
    }

    /// Works on one branch until it is settled or a step fails.
    async fn work(self, branch: BranchId) {
        let inner = &self.inner;
        let Ok(slot) = inner.slots.clone().acquire_owned().await else { return };
        let outcome = self.reconcile_with(slot, &branch).await;
        let retry_after = match outcome {
            Ok(()) => {
                inner.lock().failing_since.remove(&branch);
                None
            }
            Err(StepError::Lost) => {
                // Whoever has it now counts it, or there is nothing to do. If it
                // comes back, the timer finds it.
                inner.lock().forget(&branch);
                None
            }
            Err(StepError::NotYet(why)) => {
                tracing::debug!(%branch, "branch {branch}: {why}");
                Some(RETRY_FIRST)
            }
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

    /// Gives the slot back when it is done, or takes long.
    async fn reconcile_with(&self, slot: OwnedSemaphorePermit, branch: &BranchId) -> Result<(), StepError> {
        let reconciling = self.reconcile(branch).instrument(tracing::debug_span!("reconcile", %branch));
        // A branch whose step panics would never be worked on again.
        let reconciling = AssertUnwindSafe(reconciling).catch_unwind();
        let reconciling = async { reconciling.await.unwrap_or(Err(StepError::Panicked)) };
        tokio::pin!(reconciling);
        let done = tokio::time::timeout(SLOT_PATIENCE, &mut reconciling).await;
        drop(slot);
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
        if since.elapsed() >= FAILED_AFTER {
            let token = self.inner.next_token();
            let host = &self.inner.control_plane.host;
            if let Ok(Some(work)) = self.inner.store.branch_claim(branch, host, token, LEASE_SECONDS).await
                && work.branch.goal != Goal::Deleted
            {
                let _ = self.inner.store.branch_report(branch, token, BranchState::Failed, &reason).await;
                self.inner.announce(branch);
            }
        }
        pause(attempts)
    }

    async fn reconcile(&self, branch: &BranchId) -> Result<(), StepError> {
        let inner = &self.inner;
        let token = inner.next_token();
        let claimed =
            inner.store.branch_claim(branch, &inner.control_plane.host, token, LEASE_SECONDS).await?;
        let Some(mut work) = claimed else { return Err(StepError::Lost) };
        loop {
            let instance = match inner.engine.observe(&work.instance, &work.volume.id).await? {
                InstanceSeen::Running if inner.health.is_hopeless(branch) => InstanceSeen::Broken,
                instance => instance,
            };
            let seen = Seen { goal: work.branch.goal, volume: work.volume.state, instance };
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
                return Ok(());
            }
        }
    }
}

/// The pause after so many attempts that failed.
fn pause(attempts: u32) -> Duration {
    RETRY_FIRST.saturating_mul(1 << attempts.min(10)).min(RETRY_LONGEST)
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock()
    }

    fn next_token(&self) -> ClaimToken {
        ClaimToken::new(self.control_plane.epoch, self.claims.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Nudged branches that no task works on; they count as running from here.
    fn take_nudged(&self) -> Vec<BranchId> {
        let mut work = self.lock();
        let free: Vec<_> = work.nudged.iter().filter(|id| !work.running.contains(*id)).cloned().collect();
        for id in &free {
            work.nudged.remove(id);
            work.running.insert(id.clone());
            work.unsettled_since.entry(id.clone()).or_insert_with(Instant::now);
        }
        free
    }

    /// Ends the work on a branch; true when it was nudged meanwhile.
    fn finish(&self, branch: &BranchId) -> bool {
        let mut work = self.lock();
        work.running.remove(branch);
        work.nudged.contains(branch)
    }

    /// Lets everyone who waits for the branch look at it.
    fn announce(&self, branch: &BranchId) {
        if let Some(sender) = self.lock().watchers.remove(branch) {
            let _ = sender.send(());
        }
    }
}
