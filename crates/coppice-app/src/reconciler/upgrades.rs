//! Upgrades: tried on a copy while the branch serves, then done while its clients wait.

use std::time::Instant;

use coppice_core::branch::BranchState;
use coppice_core::claim::ClaimToken;
use coppice_core::image::PostgresVersion;
use coppice_core::plan::InstanceSeen;
use coppice_core::volume::VolumeState;
use coppice_engine::{EngineError, StopMode, UpgradePlan, Upgraded};
use coppice_failpoint::failpoint;
use coppice_store::{BranchWork, VolumeRow};

use super::Reconciler;
use super::attempt::StepError;
use super::steps::instance_spec;
use super::upgrade_words::{goes_without, trial_passed};
use crate::configuration::settings_of;

impl Reconciler {
    /// Makes the data of a volume of another major version. A server that is up goes on
    /// while it is tried, and is stopped only when that went well.
    pub(super) async fn upgrade_volume(
        &self,
        volume: &VolumeRow,
        from: PostgresVersion,
        work: &mut BranchWork,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let (engine, branch) = (&self.inner.engine, &work.branch.id.clone());
        let holder = self.inner.store.organization_holder(&work.branch.organization).await?;
        let waits = "the upgrade waits for others; clients are served meanwhile";
        self.tell_owner(work, token, waits).await?;
        let turn = self.inner.upgrades.wait(&holder);
        let turn = self.while_wanted(turn, &volume.id, work, token, true).await?;
        let Some(_alone) = turn else { return Err(StepError::NotYet("the upgrade was given up")) };
        let serves = self.serves(work).await?;
        if work.replacement_is_trial || serves {
            let meanwhile = "the upgrade is tried on a copy; clients are served meanwhile";
            self.tell_owner(work, token, meanwhile).await?;
            let began = Instant::now();
            let trial = UpgradePlan { is_trial: true, ..self.upgrade_plan(volume, from, work, token) };
            let tried = self.upgrade_while_wanted(work, token, trial, true).await?;
            let seconds = began.elapsed().as_secs_f64();
            failpoint!("reconciler.upgrade_tried");
            if work.replacement_is_trial {
                let passed = trial_passed(volume.version.major, seconds, &tried.left_out);
                self.inner.store.branch_give_up_replacement(branch, token, &passed).await?;
                return Err(StepError::NotYet("the trial is over"));
            }
            let now = format!("the trial took {seconds:.1} s; clients wait for about as long");
            self.tell_owner(work, token, &now).await?;
            self.stop_replicas(work, token).await?;
            engine.fence(&work.volume.id, token).await?;
            engine.stop(&work.instance, Some(&work.volume.id), StopMode::Fast).await?;
            failpoint!("reconciler.stopped_to_upgrade");
        }
        let plan = self.upgrade_plan(volume, from, work, token);
        let made = self.upgrade_while_wanted(work, token, plan, false).await?;
        failpoint!("reconciler.upgraded");
        let facts = made.facts.ok_or_else(|| EngineError::Other("an upgrade made nothing".to_owned()))?;
        if let Some(said) = goes_without(volume.version.major, &made.left_out) {
            self.inner.store.branch_say(branch, token, &said).await?;
            work.taken_back = said;
        }
        self.note_present(volume, &facts, token).await
    }

    /// Whether clients are served.
    async fn serves(&self, work: &BranchWork) -> Result<bool, StepError> {
        let seen = self.inner.engine.observe(&work.instance, &work.volume.id).await?;
        Ok(work.volume.state == VolumeState::Admitted && seen == InstanceSeen::Running)
    }

    async fn tell_owner(&self, work: &BranchWork, token: ClaimToken, message: &str) -> Result<(), StepError> {
        self.inner.store.branch_report(&work.branch.id, token, BranchState::Upgrading, message).await?;
        Ok(())
    }

    fn upgrade_plan(
        &self,
        volume: &VolumeRow,
        from: PostgresVersion,
        work: &BranchWork,
        token: ClaimToken,
    ) -> UpgradePlan {
        let mut later = work.branch.spec.clone();
        later.version = volume.version;
        let mut spec = instance_spec(work, token);
        spec.volume = volume.id.clone();
        spec.version = volume.version;
        spec.account = volume.account;
        spec.settings = settings_of(&later);
        // The release that it has now, which may be a later one than it was made for.
        let from = if from.major == work.branch.spec.version.major { work.branch.spec.version } else { from };
        UpgradePlan {
            label: self.label_of(volume, work, token),
            source: work.volume.id.clone(),
            source_instance: Some(work.instance.clone()),
            from,
            spec,
            is_trial: false,
        }
    }

    /// Gives it up when the branch is deleted meanwhile, or this process is to end.
    async fn upgrade_while_wanted(
        &self,
        work: &mut BranchWork,
        token: ClaimToken,
        plan: UpgradePlan,
        serves: bool,
    ) -> Result<Upgraded, StepError> {
        let engine = &self.inner.engine;
        let volume = plan.label.volume.clone();
        let made = self.while_wanted(engine.upgrade(&plan), &volume, work, token, serves).await;
        match made {
            Ok(Some(Err(EngineError::SourceUnsettled(_)))) => {
                Err(StepError::NotYet("the server that is upgraded starts or stops"))
            }
            Ok(Some(made)) => Ok(made?),
            Ok(None) => {
                engine.end_upgrade(&plan).await?;
                Err(StepError::NotYet("the upgrade was given up"))
            }
            // Whoever claimed it ends what is there, and may have begun anew.
            Err(StepError::Lost) => Err(StepError::Lost),
            Err(error) => {
                engine.end_upgrade(&plan).await?;
                Err(error)
            }
        }
    }
}
