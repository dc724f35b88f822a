//! Replicas of a branch: made, started and removed once its primary is up.
//!
//! What goes wrong with them is nobody's reason to call the branch failed: it is
//! ready as soon as its primary is, and *degraded* until its replicas are.

use std::time::Duration;

use coppice_core::branch::{BranchState, Goal};
use coppice_core::claim::ClaimToken;
use coppice_core::limits::INSTANCES_PER_BRANCH_MAX;
use coppice_core::plan::{InstanceSeen, ReplicaSeen, ReplicaStep, ReplicasSeen, plan_replica};
use coppice_core::volume::VolumeState;
use coppice_core::{InstanceId, VolumeId};
use coppice_engine::{Answer, EngineError, InstanceSpec, ReplicaSlot, SlotState, StopMode};
use coppice_failpoint::failpoint;
use coppice_store::{BranchWork, NewReplica, ReplicaRow};

use super::Reconciler;
use super::attempt::StepError;
use super::health::HELD;
use super::replica_copies::{NO_MORE, is_up};
use super::replica_notes::ReplicaNotes;
use super::steps::instance_spec;
use crate::metrics;

/// How often replicas are looked at that nobody complains about.
pub(super) const REPLICA_LOOK: Duration = Duration::from_secs(20);
/// A replica that runs and received nothing for so long is made anew. One that has
/// much of its own log to read first needs some of it.
const RECEIVES_NOTHING: Duration = Duration::from_secs(300);

/// One that takes far more room than its branch may for so long, also without sessions,
/// is made anew: it has received more log than it reads.
const LARGE_PATIENCE: Duration = Duration::from_secs(10);

/// One that does not answer for so long is started anew.
const SILENCE_PATIENCE: Duration = Duration::from_secs(60);

/// What its owner is told of one that rests before it is made anew.
const LOST_AGAIN: &str = "it could not follow again and again, so it waits until it is made anew";

impl Reconciler {
    /// What is there of a branch's replicas.
    pub(super) async fn observe_replicas(&self, work: &BranchWork) -> Result<ReplicasSeen, StepError> {
        let mut seen = ReplicasSeen::None;
        for replica in &work.replicas {
            match self.inner.engine.observe(&replica.instance, &replica.volume.id).await? {
                InstanceSeen::Stopped => seen = ReplicasSeen::Stopped,
                InstanceSeen::Running | InstanceSeen::Broken => return Ok(ReplicasSeen::Running),
            }
        }
        Ok(seen)
    }

    /// Stops the replicas before their primary's server ends or begins.
    pub(super) async fn stop_replicas(
        &self,
        work: &mut BranchWork,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let mode = if work.branch.goal == Goal::Deleted { StopMode::Immediate } else { StopMode::Fast };
        for at in 0..work.replicas.len() {
            let replica = work.replicas[at].clone();
            self.stop_replica(work, &replica, mode, token).await?;
            work.replicas[at].is_ready = false;
        }
        failpoint!("reconciler.replicas_stopped");
        Ok(())
    }

    /// Removes the replicas of a branch that nobody has any more.
    pub(super) async fn remove_replicas(
        &self,
        work: &mut BranchWork,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        while let Some(replica) = work.replicas.last().cloned() {
            self.remove_replica(work, &replica, token).await?;
            work.replicas.pop();
        }
        Ok(())
    }

    /// Gives replicas that run the settings that their primary has.
    pub(super) async fn configure_replicas(&self, work: &BranchWork, token: ClaimToken) {
        for replica in work.replicas.iter().filter(|replica| replica.is_ready) {
            if let Err(error) = self.inner.engine.configure(&replica_spec(work, replica, token)).await {
                let instance = &replica.instance;
                tracing::warn!(%instance, "{instance} can't be given its parameters: {}", error.chain());
            }
        }
    }

    /// Brings the replicas of a branch that is up to where they are to be. Each by
    /// itself: what is wrong with one keeps no other from serving.
    pub(super) async fn tend_replicas(
        &self,
        work: &mut BranchWork,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        if !is_up(work) || (work.branch.spec.replicas == 0 && work.replicas.is_empty()) {
            return Ok(());
        }
        let unsettled = |error: EngineError| StepError::ReplicaNotReady(error.chain());
        let asked = self.inner.engine.replica_slots(&work.instance).await.map_err(unsettled);
        let (slots, unanswered) = match asked {
            Ok(slots) => (slots, None),
            Err(error) => (vec![], Some(error)),
        };
        let mut problem = None;
        for ordinal in 2..=INSTANCES_PER_BRANCH_MAX {
            // What nobody wants any more goes, whatever the primary says.
            if unanswered.is_some() && ordinal <= work.branch.spec.replicas + 1 {
                continue;
            }
            match self.tend_replica(work, ordinal, &slots, token).await {
                Ok(()) => {}
                Err(StepError::Lost) => return Err(StepError::Lost),
                Err(error) => {
                    let instance = InstanceId::new(&work.branch.id, ordinal);
                    problem = Some(StepError::ReplicaNotReady(format!("{instance}: {}", error.reason())));
                }
            }
            // It was looked after while a replica was made.
            if !is_up(work) {
                return problem.map_or(Ok(()), |_| Err(NO_MORE));
            }
        }
        if let Some(unanswered) = unanswered {
            return Err(unanswered);
        }
        self.inner.announce(&work.branch.id);
        let Some(problem) = problem else { return Ok(()) };
        let is_silent = work.branch.fullness.message().is_empty() && work.taken_back.is_empty();
        if is_silent {
            let (branch, state) = (&work.branch.id, BranchState::Ready);
            self.inner.store.branch_report(branch, token, state, &problem.reason()).await?;
        }
        Err(problem)
    }

    async fn tend_replica(
        &self,
        work: &mut BranchWork,
        ordinal: u32,
        slots: &[ReplicaSlot],
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let being_made = self.inner.lock().replicas_being_made.get(&work.branch.id).copied();
        if being_made == Some(ordinal) {
            return Ok(());
        }
        let slot = slots.iter().find(|slot| slot.ordinal == ordinal).map(|slot| slot.state);
        let mut is_renewed = false;
        loop {
            let replica = work.replicas.iter().find(|replica| replica.ordinal == ordinal).cloned();
            let instance = match &replica {
                None => InstanceSeen::Stopped,
                Some(replica) => self.inner.engine.observe(&replica.instance, &replica.volume.id).await?,
            };
            let is_running = instance == InstanceSeen::Running;
            let can_follow = |replica: &ReplicaRow| {
                let is_made = replica.volume.state != VolumeState::Planned;
                let is_kept_for =
                    is_renewed || !is_made || matches!(slot, Some(SlotState::Active | SlotState::Idle));
                replica.volume.parent.as_ref() == Some(&work.volume.id)
                    && is_kept_for
                    && (is_renewed || !self.receives_nothing(&replica.instance, is_running, slot))
                    && (is_renewed || !self.is_large(&replica.instance))
            };
            let seen = ReplicaSeen {
                is_wanted: ordinal <= work.branch.spec.replicas + 1,
                volume: replica.as_ref().map(|replica| replica.volume.state),
                can_follow: replica.as_ref().is_none_or(can_follow),
                instance,
            };
            let step = plan_replica(&seen);
            tracing::debug!(branch = %work.branch.id, ordinal, ?seen, ?step, "replica {ordinal}: {step:?}");
            match (step, replica) {
                (ReplicaStep::Add, _) => self.add_replica(work, ordinal, token).await?,
                (ReplicaStep::Renew, Some(replica)) => {
                    is_renewed = true;
                    self.renew_replica(work, &replica, token).await?;
                }
                // One after the other.
                (ReplicaStep::MakeVolume, Some(_)) if being_made.is_some() => return Ok(()),
                (ReplicaStep::MakeVolume, Some(replica)) => {
                    is_renewed = true;
                    self.make_replica(work, &replica, token).await?;
                }
                (ReplicaStep::Start, Some(replica)) => self.start_replica(work, &replica, token).await?,
                (ReplicaStep::Remove, Some(replica)) => self.end_replica(work, &replica, token).await?,
                (ReplicaStep::Settle, Some(replica)) => {
                    return self.settle_replica(work, &replica, token).await;
                }
                (_, None) => return Ok(()),
            }
        }
    }

    fn new_replica<'a>(work: &'a BranchWork, ordinal: u32, volume: &'a VolumeId) -> NewReplica<'a> {
        NewReplica {
            branch: &work.branch.id,
            ordinal,
            volume,
            source: &work.volume.id,
            host: &work.volume.host,
            version: work.volume.version,
        }
    }

    async fn add_replica(
        &self,
        work: &mut BranchWork,
        ordinal: u32,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let volume = VolumeId::generate(chrono::Utc::now());
        let new = Self::new_replica(work, ordinal, &volume);
        if !self.inner.store.replica_add(&new, token).await? {
            return Err(StepError::Lost);
        }
        failpoint!("reconciler.replica_added");
        self.read_replicas(work).await
    }

    /// Removes a replica that is not wanted any more. Its data goes whatever the primary says; its row stays
    /// until that has forgotten it.
    async fn end_replica(
        &self,
        work: &mut BranchWork,
        replica: &ReplicaRow,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        self.stop_replica(work, replica, StopMode::Immediate, token).await?;
        if let Err(error) = self.inner.engine.forget_replica(&work.instance, &replica.instance).await {
            if replica.volume.state != VolumeState::Planned {
                self.let_go_of_volume(work, replica, token).await?;
            }
            return Err(error.into());
        }
        self.remove_replica(work, replica, token).await?;
        work.replicas.retain(|one| one.ordinal != replica.ordinal);
        Ok(())
    }

    /// Gives a replica another volume, that is to be made, and lets go of the one
    /// that it had, whatever the primary says to that.
    async fn renew_replica(
        &self,
        work: &mut BranchWork,
        replica: &ReplicaRow,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let instance = &replica.instance;
        // Whoever owns it can drop its slot as often as they like.
        if !self.inner.health.rest_of_replica(instance).is_zero() {
            return Err(StepError::NotYet(LOST_AGAIN));
        }
        tracing::info!(%instance, "replica {instance} can't follow its primary from where it is: it is made anew");
        self.stop_replica(work, replica, StopMode::Immediate, token).await?;
        let forgotten = self.inner.engine.forget_replica(&work.instance, instance).await;
        self.let_go_of_volume(work, replica, token).await?;
        Ok(forgotten?)
    }

    /// Gives a replica that is stopped a volume that is not made, and removes the one that it had.
    async fn let_go_of_volume(
        &self,
        work: &mut BranchWork,
        replica: &ReplicaRow,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let volume = VolumeId::generate(chrono::Utc::now());
        let new = Self::new_replica(work, replica.ordinal, &volume);
        if !self.inner.store.replica_renew(&new, token).await? {
            return Err(StepError::Lost);
        }
        failpoint!("reconciler.replica_renewed");
        self.forget_notes_of(&replica.instance);
        self.remove_doomed(&replica.volume.id).await?;
        self.read_replicas(work).await
    }

    async fn start_replica(
        &self,
        work: &mut BranchWork,
        replica: &ReplicaRow,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        self.report_replica(work, replica, false, token).await?;
        let rest = self.inner.health.rest_of_replica(&replica.instance);
        if !rest.is_zero() {
            return Err(StepError::Resting(rest));
        }
        self.inner.health.replica_starts(&replica.instance);
        self.inner.engine.start(&replica_spec(work, replica, token)).await?;
        metrics::started(replica.volume.state, work.branch.state);
        failpoint!("reconciler.replica_started");
        Ok(())
    }

    /// A replica is ready when its server answers; one that does not for long is
    /// stopped, and so started anew by the next look.
    async fn settle_replica(
        &self,
        work: &BranchWork,
        replica: &ReplicaRow,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let (engine, instance) = (&self.inner.engine, &replica.instance);
        self.watch_replica(work, replica);
        let answer = match engine.has_answered(instance) {
            true => Answer::Answers,
            false => engine.ask_whether_it_answers(instance).await,
        };
        let reason = match answer {
            Answer::Answers => {
                self.note_of(instance, |notes| notes.silent.note(false));
                return self.report_replica(work, replica, true, token).await;
            }
            Answer::Refuses(reason) => reason,
            Answer::IsHeld => HELD.to_owned(),
            Answer::IsBusy => "the server is too busy to answer".to_owned(),
            Answer::Hangs => "the server does not answer".to_owned(),
        };
        self.report_replica(work, replica, false, token).await?;
        if self.note_of(instance, |notes| notes.silent.note(true)) > SILENCE_PATIENCE {
            self.stop_replica(work, replica, StopMode::Immediate, token).await?;
        }
        Err(StepError::Unwell(reason))
    }

    async fn stop_replica(
        &self,
        work: &BranchWork,
        replica: &ReplicaRow,
        mode: StopMode,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let engine = &self.inner.engine;
        match self.fence(&replica.volume.id, token).await {
            // That needs room, which only the end of what nobody has any more makes.
            Err(EngineError::NoSpace(_)) if work.branch.goal == Goal::Deleted => {}
            fenced => fenced?,
        }
        self.report_replica(work, replica, false, token).await?;
        engine.stop(&replica.instance, Some(&replica.volume.id), mode).await?;
        self.note_of(&replica.instance, ReplicaNotes::stopped);
        Ok(())
    }

    /// Removes a replica that is stopped, with its files and its data.
    async fn remove_replica(
        &self,
        work: &BranchWork,
        replica: &ReplicaRow,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let inner = &self.inner;
        inner.engine.remove_instance(&replica.instance).await?;
        failpoint!("reconciler.replica_forgotten");
        if !inner.store.replica_give_up(&work.branch.id, &replica.instance, token).await? {
            return Err(StepError::Lost);
        }
        self.forget_notes_of(&replica.instance);
        self.remove_doomed(&replica.volume.id).await
    }

    async fn remove_doomed(&self, volume: &VolumeId) -> Result<(), StepError> {
        self.remove_data(volume).await?;
        self.inner.store.volume_removed(volume).await?;
        Ok(())
    }

    async fn report_replica(
        &self,
        work: &BranchWork,
        replica: &ReplicaRow,
        is_ready: bool,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let (branch, instance) = (&work.branch.id, &replica.instance);
        Ok(self.inner.store.instance_report(branch, instance, token, is_ready).await?)
    }

    async fn read_replicas(&self, work: &mut BranchWork) -> Result<(), StepError> {
        work.replicas = self.inner.store.replicas_of_branch(&work.branch.id).await?;
        Ok(())
    }

    /// Whether a replica runs and has received nothing for too long.
    fn receives_nothing(&self, replica: &InstanceId, is_running: bool, slot: Option<SlotState>) -> bool {
        let is_idle = is_running && slot != Some(SlotState::Active);
        self.note_of(replica, |notes| notes.idle.note(is_idle)) > RECEIVES_NOTHING
    }

    /// Notes whether a replica takes far more room than its branch may, and returns that.
    pub(crate) fn note_size_of_replica(&self, replica: &InstanceId, is_too_large: bool) -> bool {
        self.note_of(replica, |notes| notes.large.note(is_too_large));
        is_too_large
    }

    fn is_large(&self, replica: &InstanceId) -> bool {
        self.note_of(replica, |notes| notes.large.lasts()) > LARGE_PATIENCE
    }

    fn note_of<T>(&self, replica: &InstanceId, note: impl FnOnce(&mut ReplicaNotes) -> T) -> T {
        note(self.inner.lock().replica_notes.entry(replica.clone()).or_default())
    }

    /// Forgets what was noticed of a replica that has another volume, or none.
    fn forget_notes_of(&self, replica: &InstanceId) {
        self.inner.lock().replica_notes.remove(replica);
    }

    /// Nudges the branch as soon as a replica's server ends.
    fn watch_replica(&self, work: &BranchWork, replica: &ReplicaRow) {
        let (branch, instance) = (work.branch.id.clone(), replica.instance.clone());
        if !self.inner.lock().watched_replicas.insert(instance.clone()) {
            return;
        }
        let ended = instance.clone();
        self.nudge_at_exit(branch, instance, move |work| _ = work.watched_replicas.remove(&ended));
    }

    /// Looks whether replicas still follow.
    pub(super) async fn look_at_replicas(&self) -> coppice_core::Result<()> {
        let branches = self.inner.store.replica_branches(&self.inner.control_plane.host).await?;
        branches.into_iter().for_each(|branch| self.nudge(branch));
        Ok(())
    }
}

fn replica_spec(work: &BranchWork, replica: &ReplicaRow, token: ClaimToken) -> InstanceSpec {
    InstanceSpec {
        instance: replica.instance.clone(),
        volume: replica.volume.id.clone(),
        follows: Some(work.instance.clone()),
        account: replica.volume.account,
        ..instance_spec(work, token)
    }
}
