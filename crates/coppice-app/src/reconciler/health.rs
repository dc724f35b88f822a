//! Watches whether servers that should answer do.
//!
//! A process that lives and once said that it is ready may refuse everybody
//! for ever, as after a full disk, or hang. So *ready* means more: a platform
//! session is answered. The sampler's sessions tell that all the time; a look
//! is taken only where one of them was cut or not answered. A server that does
//! not answer is shown as what it is, and one that goes on like that is ended
//! and started anew by the same steps as one that died.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use coppice_core::limits::INSTANCES_PER_BRANCH_MAX;
use coppice_core::{BranchId, InstanceId};
use coppice_engine::Answer;
use coppice_turns::{Busy, Work};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;

use super::Reconciler;
use super::tries::{RECOVERY, Tries};

/// How often it is seen to that every server has answered.
const LOOK: Duration = Duration::from_secs(2);
/// Servers that are asked at a time.
const LOOKS_MAX: usize = 16;
/// The same of those that did not answer last time: each takes its whole
/// patience, and there may be many of one owner's.
const LOOKS_AT_ILL_MAX: usize = 4;
/// After one of its processes crashed a server refuses sessions for a moment.
const REFUSAL_NORMAL: Duration = Duration::from_secs(3);
/// A server that is busy may take so long to let somebody in.
const SILENCE_NORMAL: Duration = Duration::from_secs(20);
/// A server that refuses clients for longer is started anew, …
const REFUSAL_PATIENCE: Duration = Duration::from_secs(20);
/// … and so is one that says and does nothing. Each start in vain doubles it.
const SILENCE_PATIENCE: Duration = Duration::from_secs(60);
/// What a server is shown as that is held.
pub(super) const HELD: &str = "a transaction keeps others from what belongs to PostgreSQL itself";
/// Longest patience: what a start itself may take.
const PATIENCE_MAX: Duration = Duration::from_secs(600);

/// What follows from how a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// It may come back by itself in a moment.
    Wait,
    /// It is not ready, for this reason.
    Unwell(String),
    /// Only a start helps.
    Hopeless(String),
}

/// A server that does not answer.
#[derive(Debug)]
struct Complaint {
    since: Instant,
    verdict: Verdict,
}

#[derive(Debug, Default)]
struct Patient {
    complaint: Option<Complaint>,
    /// How often it was started anew, and when last.
    starts: u32,
    last_start: Option<Instant>,
    /// Starts since it was put to sleep last, or was well for long.
    tries: Tries,
}

/// What is known of servers that did not answer some time.
#[derive(Debug)]
pub(super) struct Health {
    patients: Mutex<HashMap<BranchId, Patient>>,
    /// Starts of replicas, also of those that were made anew.
    replicas: Mutex<HashMap<InstanceId, Tries>>,
    /// Branches whose server is being asked.
    asked: Busy<BranchId>,
    looks: Semaphore,
    looks_at_ill: Semaphore,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            patients: Mutex::default(),
            replicas: Mutex::default(),
            asked: Busy::default(),
            looks: Semaphore::new(LOOKS_MAX),
            looks_at_ill: Semaphore::new(LOOKS_AT_ILL_MAX),
        }
    }
}

/// What to think of a server that has not answered for `lasting`, after it was
/// started anew in vain `starts` times.
fn verdict(answer: &Answer, lasting: Duration, starts: u32) -> Verdict {
    let (reason, normal, patience) = match answer {
        Answer::Answers => return Verdict::Wait,
        // It is no better later, and a start is never in vain.
        Answer::IsHeld => return Verdict::Hopeless(HELD.to_owned()),
        Answer::Refuses(reason) => (reason.clone(), REFUSAL_NORMAL, Some(REFUSAL_PATIENCE)),
        Answer::Hangs => ("the server does not answer".to_owned(), SILENCE_NORMAL, Some(SILENCE_PATIENCE)),
        // A start would only take from its sessions what they are about to get.
        Answer::IsBusy => ("the server is too busy to answer".to_owned(), SILENCE_NORMAL, None),
    };
    let patience = patience.map(|first| first.saturating_mul(1 << starts.min(10)).min(PATIENCE_MAX));
    match patience {
        Some(patience) if lasting >= patience => Verdict::Hopeless(reason),
        _ if lasting >= normal => Verdict::Unwell(reason),
        _ => Verdict::Wait,
    }
}

impl Health {
    /// Why a server that runs is not ready all the same; none when it is.
    pub(super) fn complaint(&self, branch: &BranchId) -> Option<String> {
        match &self.patients.lock().get(branch)?.complaint.as_ref()?.verdict {
            Verdict::Wait => None,
            Verdict::Unwell(reason) | Verdict::Hopeless(reason) => Some(reason.clone()),
        }
    }

    /// Whether a server that runs has to be started anew.
    pub(super) fn is_hopeless(&self, branch: &BranchId) -> bool {
        let patients = self.patients.lock();
        let complaint = patients.get(branch).and_then(|patient| patient.complaint.as_ref());
        complaint.is_some_and(|complaint| matches!(complaint.verdict, Verdict::Hopeless(_)))
    }

    /// How long its server has to stay down before it is started once more:
    /// longer each time that it ended again.
    pub(super) fn rest(&self, branch: &BranchId) -> Duration {
        let patients = self.patients.lock();
        patients.get(branch).map_or(Duration::ZERO, |patient| patient.tries.rest())
    }

    /// The same of a replica, before it is started or made anew.
    pub(super) fn rest_of_replica(&self, replica: &InstanceId) -> Duration {
        self.replicas.lock().get(replica).map_or(Duration::ZERO, Tries::rest)
    }

    /// A replica's server is started.
    pub(super) fn replica_starts(&self, replica: &InstanceId) {
        self.replicas.lock().entry(replica.clone()).or_default().note();
    }

    /// A new process takes the place of one that ended, or did not answer.
    pub(super) fn starts_anew(&self, branch: &BranchId) {
        let mut patients = self.patients.lock();
        let patient = patients.entry(branch.clone()).or_default();
        patient.tries.note();
        if patient.complaint.take().is_some_and(|complaint| matches!(complaint.verdict, Verdict::Hopeless(_)))
        {
            patient.starts += 1;
            patient.last_start = Some(Instant::now());
        }
    }

    /// Forgets a branch whose server is not expected to answer.
    pub(super) fn forget(&self, branch: &BranchId) {
        self.patients.lock().remove(branch);
        let mut replicas = self.replicas.lock();
        for ordinal in 2..=INSTANCES_PER_BRANCH_MAX {
            replicas.remove(&InstanceId::new(branch, ordinal));
        }
    }

    /// Whether the branch's server did not answer when it was last asked.
    fn is_ill(&self, branch: &BranchId) -> bool {
        self.patients.lock().get(branch).is_some_and(|patient| patient.complaint.is_some())
    }

    /// The queue in which the branch's server waits to be asked.
    fn queue(&self, branch: &BranchId) -> &Semaphore {
        if self.is_ill(branch) { &self.looks_at_ill } else { &self.looks }
    }

    /// Something to hold while the branch is asked; none when it is being asked already.
    fn begin(&self, branch: &BranchId) -> Option<Work<BranchId>> {
        let work = self.asked.begin(branch)?;
        self.patients.lock().entry(branch.clone()).or_default();
        Some(work)
    }

    /// Takes an answer down; true when the reconciler has to know.
    fn note(&self, branch: &BranchId, answer: &Answer) -> bool {
        let mut patients = self.patients.lock();
        let Some(patient) = patients.get_mut(branch) else { return false };
        if *answer == Answer::Answers {
            return patient.complaint.take().is_some_and(|complaint| complaint.verdict != Verdict::Wait);
        }
        let since = patient.complaint.as_ref().map_or_else(Instant::now, |complaint| complaint.since);
        let verdict = verdict(answer, since.elapsed(), patient.starts);
        let before = patient.complaint.replace(Complaint { since, verdict: verdict.clone() });
        before.map_or(Verdict::Wait, |complaint| complaint.verdict) != verdict
    }

    /// Forgets servers that were well for long enough.
    fn discharge(&self) {
        self.patients.lock().retain(|branch, patient| {
            let is_well = patient.complaint.is_none() && !self.asked.has(branch);
            let is_recent = |start: Option<Instant>| start.is_some_and(|start| start.elapsed() < RECOVERY);
            !is_well || is_recent(patient.last_start) || patient.tries.are_recent()
        });
        self.replicas.lock().retain(|_, tries| tries.are_recent());
    }
}

impl Reconciler {
    /// Looks at servers that may not answer, again and again.
    pub(super) async fn watch_health(self) {
        let mut timer = tokio::time::interval(LOOK);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            timer.tick().await;
            for branch in self.servers_in_doubt() {
                if let Some(work) = self.inner.health.begin(&branch) {
                    self.inner.tasks.spawn(self.clone().ask_server(branch, work));
                }
            }
            self.inner.health.discharge();
        }
    }

    /// Branches whose server should answer, and that nobody works on. One that
    /// did not answer here is asked here again, even if it has answered others.
    fn servers_in_doubt(&self) -> Vec<BranchId> {
        let (work, inner) = (self.inner.lock(), &self.inner);
        let settled = work.watched_servers.iter().filter(|branch| !work.running.contains(*branch));
        let is_in_doubt = |branch: &&BranchId| {
            inner.health.is_ill(branch) || !inner.engine.has_answered(&InstanceId::primary(branch))
        };
        settled.filter(is_in_doubt).cloned().collect()
    }

    async fn ask_server(self, branch: BranchId, _work: Work<BranchId>) {
        let health = &self.inner.health;
        let Ok(_place) = health.queue(&branch).acquire().await else { return };
        let instance = InstanceId::primary(&branch);
        let answer = tokio::select! {
            biased;
            () = self.inner.stop.cancelled() => return,
            answer = self.inner.engine.ask_whether_it_answers(&instance) => answer,
        };
        if health.note(&branch, &answer) {
            if let Some(reason) = health.complaint(&branch) {
                tracing::warn!(%branch, "the server of branch {branch} is not ready: {reason}");
            }
            self.nudge(branch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn refuses() -> Answer {
        Answer::Refuses("in recovery".to_owned())
    }

    #[test]
    fn a_moment_of_recovery_is_no_illness_and_a_minute_is() {
        let reason = || "in recovery".to_owned();
        assert_eq!(verdict(&refuses(), SECOND, 0), Verdict::Wait);
        assert_eq!(verdict(&refuses(), REFUSAL_NORMAL, 0), Verdict::Unwell(reason()));
        assert_eq!(verdict(&refuses(), REFUSAL_PATIENCE, 0), Verdict::Hopeless(reason()));
    }

    #[test]
    fn each_start_in_vain_doubles_the_patience_up_to_that_of_a_start() {
        let is_hopeless =
            |lasting, starts| matches!(verdict(&refuses(), lasting, starts), Verdict::Hopeless(_));
        assert!(!is_hopeless(REFUSAL_PATIENCE, 1));
        assert!(is_hopeless(REFUSAL_PATIENCE * 2, 1));
        assert!(!is_hopeless(PATIENCE_MAX - SECOND, 40));
        assert!(is_hopeless(PATIENCE_MAX, 40));
    }

    #[test]
    fn a_busy_server_is_never_started_anew_and_a_hanging_one_is() {
        assert!(matches!(verdict(&Answer::IsBusy, PATIENCE_MAX * 10, 0), Verdict::Unwell(_)));
        assert!(matches!(verdict(&Answer::Hangs, SILENCE_NORMAL, 0), Verdict::Unwell(_)));
        assert!(matches!(verdict(&Answer::Hangs, SILENCE_PATIENCE, 0), Verdict::Hopeless(_)));
    }

    #[test]
    fn a_server_that_is_held_is_started_anew_at_once_however_often_it_was() {
        for starts in [0, 40] {
            assert_eq!(verdict(&Answer::IsHeld, Duration::ZERO, starts), Verdict::Hopeless(HELD.to_owned()));
        }
    }

    #[test]
    fn servers_that_end_again_and_again_rest_until_their_branch_is_put_to_sleep() {
        let (health, branch) = (Health::default(), BranchId::from_trusted("br_1"));
        let (replica, other) = (InstanceId::new(&branch, 2), InstanceId::new(&branch, 3));
        for _ in 0..10 {
            health.starts_anew(&branch);
            health.replica_starts(&replica);
        }
        health.discharge();
        assert!(!health.rest(&branch).is_zero() && !health.rest_of_replica(&replica).is_zero());
        assert!(health.rest_of_replica(&other).is_zero(), "each for itself");
        health.forget(&branch);
        assert!(health.rest(&branch).is_zero() && health.rest_of_replica(&replica).is_zero());
    }

    #[test]
    fn servers_that_hang_keep_no_other_from_being_looked_at() {
        let (health, ill, new) =
            (Health::default(), BranchId::from_trusted("br_1"), BranchId::from_trusted("br_2"));
        assert!(health.begin(&ill).is_some() && health.begin(&new).is_some());
        health.note(&ill, &Answer::Hangs);
        let _all = health.queue(&ill).try_acquire_many(LOOKS_AT_ILL_MAX as u32).expect("every place");
        assert!(health.queue(&ill).try_acquire().is_err());
        assert!(health.queue(&new).try_acquire().is_ok());
        assert!(health.begin(&ill).is_some());
        health.note(&ill, &Answer::Answers);
        assert!(health.queue(&ill).try_acquire().is_ok(), "who answers again waits with the others");
    }

    #[test]
    fn who_answers_again_is_well_and_the_reconciler_knows() {
        let (health, branch) = (Health::default(), BranchId::from_trusted("br_1"));
        let work = health.begin(&branch);
        assert!(work.is_some() && health.begin(&branch).is_none(), "one look at a time");
        drop(work);
        assert!(!health.note(&branch, &refuses()), "that may be over in a moment");
        assert_eq!(health.complaint(&branch), None);
        health.patients.lock().get_mut(&branch).expect("known").complaint.as_mut().expect("ill").since -=
            REFUSAL_PATIENCE;
        assert!(health.begin(&branch).is_some() && health.note(&branch, &refuses()));
        assert!(health.is_hopeless(&branch));
        assert!(health.begin(&branch).is_some() && !health.note(&branch, &refuses()), "nothing new");
        assert!(health.begin(&branch).is_some() && health.note(&branch, &Answer::Answers));
        assert_eq!((health.complaint(&branch), health.is_hopeless(&branch)), (None, false));
        health.discharge();
        assert!(health.patients.lock().is_empty());
    }
}
