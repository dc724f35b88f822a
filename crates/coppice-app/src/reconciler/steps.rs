//! The steps themselves: each idempotent, and each maybe the last one before a
//! crash.

use std::time::Duration;

use coppice_core::branch::{BranchState, Goal, Reconfigure};
use coppice_core::claim::ClaimToken;
use coppice_core::plan::Step;
use coppice_core::storage::Fullness;
use coppice_core::volume::VolumeState;
use coppice_core::{BranchId, InstanceId};
use coppice_engine::{EngineError, FirstStart, InstanceSpec, StopMode};
use coppice_failpoint::failpoint;
use coppice_store::{BranchWork, StoreError, VolumeRow};

use super::attempt::{ENDS_AGAIN, StepError};
use super::{Reconciler, Work};
use crate::configuration::{instance_type, settings_of};
use crate::logins::end_due_on;
use crate::metrics;

/// A server that takes longer to tell its statistics goes to sleep without.
const STATISTICS_PATIENCE: Duration = Duration::from_millis(500);
/// Longest that a branch waits for logins to end before it is ready.
const LOGINS_PATIENCE: Duration = Duration::from_secs(5);

impl Reconciler {
    /// Does one step.
    pub(super) async fn apply(
        &self,
        step: Step,
        work: &mut BranchWork,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let (store, engine) = (&self.inner.store, &self.inner.engine);
        let (instance, volume) = (&work.instance, &work.volume.id);
        match step {
            Step::MakeVolume => {
                self.make_volume(&work.volume, work, token).await?;
                work.volume.state = VolumeState::Present;
            }
            Step::MakeReplacement => {
                let Some(replacement) = work.replacement.clone() else { return Err(StepError::Lost) };
                match replacement.upgraded_from() {
                    Some(from) => self.upgrade_volume(&replacement, from, work, token).await?,
                    None => self.make_replacement(&replacement, work, token).await?,
                }
                work.replacement = Some(VolumeRow { state: VolumeState::Present, ..replacement });
            }
            Step::Replace => self.replace_volume(work, token).await?,
            Step::Start => {
                let is_hopeless = self.inner.health.is_hopeless(&work.branch.id);
                // A ready one has ended by itself; tries to bring it back find it on its way.
                if is_hopeless || work.branch.state == BranchState::Ready {
                    store.awake_note_crash(&work.branch.id).await?;
                }
                self.let_rest(work, token).await?;
                self.report_progress(work, token).await?;
                if is_hopeless {
                    // `start` leaves a server alone that runs.
                    engine.stop(instance, Some(volume), StopMode::Immediate).await?;
                }
                self.inner.health.starts_anew(&work.branch.id);
                engine.start(&instance_spec(work, token)).await?;
                metrics::started(work.volume.state, work.branch.state);
                failpoint!("reconciler.started");
            }
            Step::FirstStart => {
                // A server that hangs during its first start is found as any other.
                self.watch_server(work);
                let managed_role_verifier = work.managed_role_verifier.clone();
                let plan = FirstStart { spec: instance_spec(work, token), managed_role_verifier };
                let done = engine.first_start(&plan).await;
                self.or_end_holders(work, done).await?;
                self.lock_out_of_copy(work).await?;
                failpoint!("reconciler.first_start_done");
                if !store.volume_admitted(volume, token).await? {
                    return Err(StepError::Lost);
                }
                work.volume.state = VolumeState::Admitted;
            }
            Step::Stop => self.put_to_sleep(work, token).await?,
            Step::Kill => {
                engine.stop(instance, Some(volume), StopMode::Immediate).await?;
                failpoint!("reconciler.killed");
            }
            Step::StopReplicas => self.stop_replicas(work, token).await?,
            Step::RemoveReplicas => self.remove_replicas(work, token).await?,
            Step::Remove => {
                self.remove_old_volumes(&work.doomed).await?;
                self.remove_data(volume).await?;
                engine.remove_instance(instance).await?;
                failpoint!("reconciler.instance_removed");
                store.volume_removed(volume).await?;
                work.volume.state = VolumeState::Removed;
            }
            Step::Settle => self.settle(work, token).await?,
        }
        Ok(())
    }

    /// Stops the server of a branch, keeping what authenticates its clients.
    async fn put_to_sleep(&self, work: &BranchWork, token: ClaimToken) -> Result<(), StepError> {
        let inner = &self.inner;
        let branch = &work.branch.id;
        inner.store.branch_report(branch, token, BranchState::Hibernating, "").await?;
        let kept = match work.volume.state {
            VolumeState::Admitted => {
                self.remember_statistics(work).await;
                inner.engine.sleep(&work.instance, &work.volume.id).await?
            }
            // It still has the passwords of what it is a copy of.
            _ => {
                inner.engine.stop(&work.instance, Some(&work.volume.id), StopMode::Fast).await?;
                None
            }
        };
        failpoint!("reconciler.asleep");
        if kept.is_none() {
            tracing::info!(%branch, "branch {branch} changed while it was put to sleep: it will be woken to authenticate");
        }
        self.keep_roles(branch, token, kept).await?;
        metrics::put_to_sleep();
        Ok(())
    }

    /// Recommendations are given for sleeping branches too. What can't be
    /// learned in time is not worth waiting for.
    async fn remember_statistics(&self, work: &BranchWork) {
        let (inner, branch) = (&self.inner, &work.branch.id);
        let asked = inner.engine.statistics(&work.instance, work.volume.version);
        let Ok(Ok(seen)) = tokio::time::timeout(STATISTICS_PATIENCE, asked).await else { return };
        let remembered = async {
            let seen = seen.after(inner.store.branch_observed(branch).await?.as_ref());
            inner.store.branch_note_observed(branch, &seen, true).await
        };
        if let Err(error) = remembered.await {
            tracing::warn!(%branch, "remembering what branch {branch} counted: {error}");
        }
    }

    /// Shows that a branch that was up once is on its way back.
    async fn report_progress(&self, work: &BranchWork, token: ClaimToken) -> Result<(), StoreError> {
        let is_told = [BranchState::Waking, BranchState::Updating, BranchState::Upgrading];
        let is_back = work.volume.state == VolumeState::Admitted && !is_told.contains(&work.branch.state);
        if is_back {
            self.inner.store.branch_report(&work.branch.id, token, BranchState::Waking, "").await?;
        }
        Ok(())
    }

    /// Whoever runs code of their own in a server can have it end as soon as it
    /// was started, and the start is the machine's work.
    async fn let_rest(&self, work: &BranchWork, token: ClaimToken) -> Result<(), StepError> {
        let branch = &work.branch.id;
        let rest = self.inner.health.rest(branch);
        if rest.is_zero() {
            return Ok(());
        }
        if work.volume.state == VolumeState::Admitted {
            self.inner.store.branch_report(branch, token, BranchState::Waking, ENDS_AGAIN).await?;
        }
        Err(StepError::Resting(rest))
    }

    async fn settle(&self, work: &mut BranchWork, token: ClaimToken) -> Result<(), StepError> {
        let id = &work.branch.id.clone();
        let state = match work.branch.goal {
            Goal::Running => {
                self.check_health(work, token).await?;
                self.close_system_views(work).await;
                self.reconfigure(work, token).await?;
                self.tell_pending_password(work, token).await?;
                self.end_logins(work).await;
                if work.is_unproven {
                    self.inner.store.branch_spec_proven(id, token, work.branch.generation).await?;
                }
                BranchState::Ready
            }
            Goal::Hibernated | Goal::Trashed => {
                self.finish_rotation_asleep(work, token).await?;
                if work.reconfigure.is_some() {
                    // Its next start takes everything.
                    self.inner.store.branch_configured(id, token, work.branch.generation).await?;
                }
                BranchState::Hibernated
            }
            Goal::Deleted => BranchState::Deleted,
        };
        let message = match (state, work.branch.fullness.message()) {
            (BranchState::Ready, "") | (BranchState::Hibernated, _) => &work.taken_back,
            (BranchState::Ready, message) => message,
            _ => "",
        };
        self.inner.store.branch_report(id, token, state, message).await?;
        {
            let mut inner = self.inner.lock();
            inner.unsettled_since.remove(id);
            if state != BranchState::Ready {
                self.inner.health.forget(id);
                // The password that the server was to be told is in the row by now.
                inner.stuck_rotations.remove(id);
                inner.views_looked_at.remove(id);
            }
        }
        if state == BranchState::Ready {
            self.rotate_password(work, token).await;
        }
        self.inner.announce(id);
        if state == BranchState::Ready {
            self.watch_server(work);
        }
        // Nobody waits for that; whoever looks after versions asks again.
        match self.let_go_of_old_volumes(work, token).await {
            Err(error) if !matches!(error, StepError::Lost) => {
                tracing::info!(branch = %id, "a former volume of branch {id} is still there: {}", error.reason());
                Ok(())
            }
            done => done,
        }
    }

    /// What was made before that was done for every cluster has it done here, once for each time that it is up.
    async fn close_system_views(&self, work: &BranchWork) {
        let (branch, volume) = (&work.branch.id, &work.volume.id);
        let looked_at = self.inner.lock().views_looked_at.insert(branch.clone(), volume.clone());
        if looked_at.as_ref() == Some(volume) {
            return;
        }
        if let Err(error) = self.inner.engine.close_system_views(&work.instance, volume).await {
            tracing::warn!(
                %branch,
                "somebody who may write everything on branch {branch} could become a superuser there: {}",
                error.chain()
            );
        }
    }

    /// What ended logins left would do what they might for whoever is let in first. A server on which that takes long
    /// is tried again while it is up.
    async fn end_logins(&self, work: &BranchWork) {
        if work.branch.state == BranchState::Ready {
            return;
        }
        let (inner, branch) = (&self.inner, &work.branch.id);
        let ending = async {
            while end_due_on(&inner.store, &inner.engine, branch, None).await?.count > 0 {}
            Ok::<_, coppice_core::Error>(())
        };
        match tokio::time::timeout(LOGINS_PATIENCE, ending).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%branch, "ending logins on branch {branch}: {}", error.for_log());
            }
            Err(_) => tracing::debug!(%branch, "logins on branch {branch} are ended when it is up"),
        }
    }

    /// A server that does not answer is not ready, whatever its files say.
    async fn check_health(&self, work: &BranchWork, token: ClaimToken) -> Result<(), StepError> {
        let branch = &work.branch.id;
        let Some(reason) = self.inner.health.complaint(branch) else { return Ok(()) };
        if work.branch.state == BranchState::Ready {
            self.inner.store.branch_report(branch, token, BranchState::Waking, &reason).await?;
        }
        Err(StepError::Unwell(reason))
    }

    /// Gives a server the parameters that its branch has by now. Over again
    /// after a crash; another restart is all that costs.
    async fn reconfigure(&self, work: &mut BranchWork, token: ClaimToken) -> Result<(), StepError> {
        let inner = &self.inner;
        let spec = instance_spec(work, token);
        match work.reconfigure {
            None => return Ok(()),
            Some(Reconfigure::Reload) => {
                // A server that hangs is no failure of its branch; the timer tries again.
                if let Err(error) = self.reload(work, &spec).await {
                    let branch = &work.branch.id;
                    tracing::warn!(%branch, "branch {branch} can't be given its parameters: {}", error.chain());
                    return Ok(());
                }
                self.configure_replicas(work, token).await;
            }
            Some(Reconfigure::Restart) => {
                self.stop_replicas(work, token).await?;
                inner.engine.stop(&work.instance, Some(&work.volume.id), StopMode::Fast).await?;
                failpoint!("configuration.stopped");
                inner.engine.start(&spec).await?;
                metrics::started(work.volume.state, BranchState::Updating);
            }
        }
        failpoint!("configuration.taken");
        inner.store.branch_configured(&work.branch.id, token, work.branch.generation).await?;
        Ok(())
    }

    /// Gives a server its settings, and those of a full one to sessions that it
    /// has: what they began goes on writing, and its owner's repairs begin later.
    async fn reload(&self, work: &BranchWork, spec: &InstanceSpec) -> Result<(), EngineError> {
        let engine = &self.inner.engine;
        engine.configure(spec).await?;
        match work.branch.fullness {
            Fullness::Full => engine.end_sessions(&work.instance, true).await,
            // A shut one was started anew.
            _ => Ok(()),
        }
    }

    /// Nudges the branch as soon as its server ends.
    fn watch_server(&self, work: &BranchWork) {
        let (branch, instance) = (work.branch.id.clone(), work.instance.clone());
        if !self.inner.lock().watched_servers.insert(branch.clone()) {
            return;
        }
        let ended = branch.clone();
        self.nudge_at_exit(branch, instance, move |work| _ = work.watched_servers.remove(&ended));
    }

    /// Nudges a branch when a server of it ends, of which `note` tells that nobody watches it any more.
    pub(super) fn nudge_at_exit(
        &self,
        branch: BranchId,
        instance: InstanceId,
        note: impl FnOnce(&mut Work) + Send + 'static,
    ) {
        let again = self.clone();
        self.inner.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = again.inner.stop.cancelled() => {}
                () = again.inner.engine.wait_exit(&instance) => {
                    note(&mut again.inner.lock());
                    again.nudge(branch);
                }
            }
        });
    }
}

pub(super) fn instance_spec(work: &BranchWork, token: ClaimToken) -> InstanceSpec {
    let kind = instance_type(&work.branch.spec.instance_type);
    InstanceSpec {
        instance: work.instance.clone(),
        branch: work.branch.id.clone(),
        volume: work.volume.id.clone(),
        follows: None,
        claim: token,
        version: work.branch.spec.version,
        account: work.volume.account,
        cpu_millis: kind.vcpus * 1000,
        cpu_weight: kind.cpu_weight,
        memory_bytes: u64::from(kind.ram_gib) << 30,
        fullness: work.branch.fullness,
        storage_bytes: u64::from(work.branch.spec.storage_gib) << 30,
        settings: settings_of(&work.branch.spec),
        preload_libraries: work.branch.spec.preload_libraries.clone(),
    }
}
