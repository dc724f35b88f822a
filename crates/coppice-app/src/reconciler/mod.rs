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

mod attempt;
mod health;
mod passwords;
mod replica_copies;
mod replica_notes;
mod replicas;
mod steps;
mod tending;
mod tries;
mod upgrade_turns;
mod upgrade_words;
mod upgrades;
mod volumes;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use coppice_core::claim::ClaimToken;
use coppice_core::limits::INSTANCES_PER_BRANCH_MAX;
use coppice_core::organization::Holder;
use coppice_core::{BranchId, HostId, InstallationId, InstanceId, VolumeId};
use coppice_engine::{SharedEngine, StopMode};
use coppice_store::Store;
use coppice_turns::Turns;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics;
use crate::secrets::MasterKey;
use crate::tasks::Tasks;
use health::Health;
use replica_notes::ReplicaNotes;
use replicas::REPLICA_LOOK;
use upgrade_turns::UpgradeTurns;

/// How often everything that has not reached its goal is looked at.
const TIMER: Duration = Duration::from_secs(5);
/// Branches worked on at the same time.
const PLACES: usize = 8;
/// Pause before the first retry; doubled with each further one.
const RETRY_FIRST: Duration = Duration::from_millis(200);

/// How long steps in progress may take to end when the loop does. How long a server takes to start or to stop is for
/// whoever owns its data to say, and others wait for the next process: what takes longer is given up wherever it
/// waits, as by a crash.
const STEP_PATIENCE: Duration = Duration::from_secs(5);

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

#[derive(Default)]
struct Work {
    nudged: BTreeSet<BranchId>,
    running: HashSet<BranchId>,
    /// Those who wait for the end of work on branches. They are told in the order in which they came: a history
    /// that is played again is the same one.
    watchers: HashMap<BranchId, Arc<Notify>>,
    watched_servers: BTreeSet<BranchId>,
    watched_replicas: BTreeSet<InstanceId>,
    replica_notes: HashMap<InstanceId, ReplicaNotes>,
    /// Of branches a replica of which is made, the ordinal of that.
    replicas_being_made: HashMap<BranchId, u32>,
    /// How often in a row the replicas of branches could not be brought up.
    replica_failures: HashMap<BranchId, u32>,
    failing_since: HashMap<BranchId, (Instant, u32)>,
    /// Rotations that could not be carried out, with the number of attempts.
    stuck_rotations: HashMap<BranchId, u32>,
    /// Since when there is something to do.
    unsettled_since: HashMap<BranchId, Instant>,
    /// On which volumes of branches that are up the system views were looked at.
    views_looked_at: HashMap<BranchId, VolumeId>,
}

impl Work {
    /// Forgets what went wrong with a branch that others work on, or nobody.
    fn forget(&mut self, branch: &BranchId) {
        self.unsettled_since.remove(branch);
        self.failing_since.remove(branch);
        self.stuck_rotations.remove(branch);
        self.replica_failures.remove(branch);
        self.views_looked_at.remove(branch);
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
    /// Of branches that are worked on, by who answers for them as far as that is known.
    places: Turns<Option<Holder>>,
    upgrades: UpgradeTurns,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Cancelled when steps in progress are not waited for any more.
    given_up: CancellationToken,
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
            places: Turns::new(PLACES, PLACES),
            upgrades: UpgradeTurns::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            given_up: CancellationToken::new(),
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
        let watchers = self.inner.lock().watchers.entry(branch.clone()).or_default().clone();
        watchers.notified_owned()
    }

    /// Compares what is on disk and running with the metastore: a volume that
    /// no row knows is set aside, a server that no row knows is stopped. Then
    /// everything is looked at once.
    ///
    /// # Errors
    /// When the metastore or the engine fails.
    pub async fn adopt(&self) -> coppice_core::Result<()> {
        let (store, engine) = (&self.inner.store, &self.inner.engine);
        let labels = engine.volumes().await?;
        let of_branches: Vec<_> = labels.into_iter().filter(|label| label.branch.is_some()).collect();
        let ids: Vec<_> = of_branches.iter().map(|label| label.volume.to_string()).collect();
        let known: HashSet<_> = store.volume_known(&ids).await?.into_iter().collect();
        let running = engine.running_instances().await?;
        let names: Vec<_> = running.iter().map(ToString::to_string).collect();
        let expected: HashSet<_> = store.instance_known(&names).await?.into_iter().collect();
        let strangers = of_branches.iter().filter(|label| !known.contains(label.volume.as_str()));
        for label in strangers {
            if let Some(branch) = &label.branch {
                // Which of the branch's it was made for is in no row, either.
                for ordinal in 1..=INSTANCES_PER_BRANCH_MAX {
                    let instance = InstanceId::new(branch, ordinal);
                    engine.stop(&instance, Some(&label.volume), StopMode::Fast).await?;
                }
            }
            tracing::warn!(volume = %label.volume, "volume {} is in no row: set aside, not deleted", label.volume);
            engine.quarantine(&label.volume).await?;
        }
        for instance in running.iter().filter(|id| !expected.contains(id.as_str())) {
            tracing::warn!(%instance, "instance {instance} is in no row: stopping it");
            engine.stop(instance, None, StopMode::Fast).await?;
        }
        for branch in store.branch_unsettled(&self.inner.control_plane.host, true).await? {
            self.nudge(branch);
        }
        Ok(())
    }

    /// Runs until [`Reconciler::stop`].
    pub async fn run(&self) {
        let inner = &self.inner;
        let mut tasks = Tasks::default();
        tasks.every("host_heartbeat", TIMER, self, |all| async move { all.heartbeat().await });
        tasks.every("unsettled_watch", TIMER, self, |all| async move { all.look_at_unsettled().await });
        tasks.every("replica_watch", REPLICA_LOOK, self, |all| async move { all.look_at_replicas().await });
        let reconciler = self.clone();
        tasks.keep("branch_changes", move || reconciler.clone().listen());
        let reconciler = self.clone();
        tasks.keep("health_watch", move || reconciler.clone().watch_health());
        loop {
            tokio::select! {
                biased;
                () = inner.stop.cancelled() => break,
                () = inner.wake.notified() => {}
            }
            for branch in inner.take_nudged() {
                inner.tasks.spawn(self.clone().work_unless_given_up(branch));
            }
        }
    }

    /// Ends the loop and waits for the steps in progress, for a while; then it gives them up. False when threads go
    /// on with them for more than `patience` from then on, so that nobody else may do the work yet. Servers keep
    /// running.
    pub async fn stop(&self, patience: Duration) -> bool {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        let has_ended = self.inner.end_work(patience).await;
        // From here on only the rows tell how far the next process is.
        self.inner.announce_all();
        has_ended
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

    async fn heartbeat(&self) -> coppice_core::Result<()> {
        Ok(self.inner.store.host_heartbeat(&self.inner.control_plane.host).await?)
    }

    async fn look_at_unsettled(&self) -> coppice_core::Result<()> {
        let branches = self.inner.store.branch_unsettled(&self.inner.control_plane.host, false).await?;
        let retrying: HashSet<_> = {
            let work = self.inner.lock();
            work.failing_since.keys().chain(work.stuck_rotations.keys()).cloned().collect()
        };
        for branch in branches.into_iter().filter(|branch| !retrying.contains(branch)) {
            self.nudge(branch);
        }
        Ok(())
    }
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

    /// Waits for the steps in progress, and gives up those that take long; false when that is not enough.
    async fn end_work(&self, patience: Duration) -> bool {
        if tokio::time::timeout(STEP_PATIENCE, self.tasks.wait()).await.is_ok() {
            return true;
        }
        let (left, waited) = (self.tasks.len(), STEP_PATIENCE.as_secs());
        tracing::info!(left, "work on branches goes on {waited} s after it was to end: it is given up");
        self.given_up.cancel();
        let has_ended = tokio::time::timeout(patience, self.tasks.wait()).await.is_ok();
        if !has_ended {
            let (left, waited) = (self.tasks.len(), patience.as_secs());
            tracing::warn!(left, "work on branches goes on {waited} s after it was given up");
        }
        has_ended
    }

    /// Lets everyone who waits for any branch look at it.
    fn announce_all(&self) {
        let watchers = std::mem::take(&mut self.lock().watchers);
        let in_order: BTreeMap<_, _> = watchers.into_iter().collect();
        in_order.into_values().for_each(|watchers| watchers.notify_waiters());
    }

    /// Lets everyone who waits for the branch look at it.
    fn announce(&self, branch: &BranchId) {
        if let Some(watchers) = self.lock().watchers.remove(branch) {
            watchers.notify_waiters();
        }
    }
}
