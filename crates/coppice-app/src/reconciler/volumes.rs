//! Steps on volumes: making one, letting one take the place of another, removing
//! what tombstones name.

use std::time::Duration;

use coppice_core::VolumeId;
use coppice_core::branch::Goal;
use coppice_core::claim::ClaimToken;
use coppice_core::volume::{VolumeLabel, VolumeSource, VolumeState};
use coppice_engine::{EngineError, StopMode, VolumeFacts, VolumePlan};
use coppice_failpoint::failpoint;
use coppice_store::{BranchWork, VolumeRow};
use tokio_util::sync::CancellationToken;

use super::Reconciler;
use super::attempt::{STOPPED, StepError};

/// How often is looked whether a volume is there that others share their room with.
const BEHIND: Duration = Duration::from_secs(2);

impl Reconciler {
    /// Makes the data of a volume.
    pub(super) async fn make_volume(
        &self,
        volume: &VolumeRow,
        work: &BranchWork,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let plan = self.volume_plan(volume, work, token);
        if let (VolumeSource::Base(..), Some(parent)) = (&plan.source, &plan.similar)
            && let Some(branch) = self.inner.store.volume_to_come(parent).await?
            && !self.inner.lock().failing_since.contains_key(&branch)
        {
            return Err(StepError::Behind(BEHIND));
        }
        let making = self.inner.engine.create_volume(&plan);
        let made = match plan.source {
            // For as long as the store takes; anything else holds what it copies until it is made.
            VolumeSource::Base(..) => {
                let is_wanted = || self.inner.store.volume_is_wanted(&volume.id);
                let made = self.unless_unwanted(making, is_wanted).await;
                made.ok_or_else(|| match self.inner.stop.is_cancelled() {
                    true => STOPPED,
                    false => StepError::NotYet("its volume is not wanted any more"),
                })?
            }
            _ => making.await,
        };
        let facts = match made {
            Err(EngineError::SourceUnsettled(_)) => {
                return Err(StepError::NotYet("the server of its source starts or stops"));
            }
            made => made?,
        };
        failpoint!("reconciler.volume_made");
        self.note_present(volume, &facts, token).await
    }

    /// Makes the data of a volume that is to take the place of a branch's, which serves
    /// meanwhile: from a store, that takes as long as there is data.
    pub(super) async fn make_replacement(
        &self,
        volume: &VolumeRow,
        work: &mut BranchWork,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let before = work.clone();
        let making = self.make_volume(volume, &before, token);
        match work.volume.state {
            VolumeState::Admitted => {
                self.while_tended(making, work, token, &CancellationToken::new()).await?
            }
            _ => making.await,
        }
    }

    /// Records that the data of a volume is there.
    pub(super) async fn note_present(
        &self,
        volume: &VolumeRow,
        facts: &VolumeFacts,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let (id, lsn) = (&facts.system_identifier, &facts.fork_lsn);
        match self.inner.store.volume_present(&volume.id, token, id, facts.timeline, lsn).await? {
            true => Ok(()),
            false => Err(StepError::Lost),
        }
    }

    pub(super) fn label_of(&self, volume: &VolumeRow, work: &BranchWork, token: ClaimToken) -> VolumeLabel {
        VolumeLabel {
            installation: self.inner.control_plane.installation.clone(),
            host: self.inner.control_plane.host.clone(),
            volume: volume.id.clone(),
            branch: Some(work.branch.id.clone()),
            claim: token,
            version: volume.version,
        }
    }

    fn volume_plan(&self, volume: &VolumeRow, work: &BranchWork, token: ClaimToken) -> VolumePlan {
        let label = self.label_of(volume, work, token);
        let VolumeRow { parent, moment, base, base_until, .. } = volume.clone();
        let source = match (base, parent, moment) {
            (Some(base), ..) => VolumeSource::Base(base, base_until),
            (None, None, _) => VolumeSource::Template,
            (None, Some(parent), None) => VolumeSource::Volume(parent),
            (None, Some(parent), Some(moment)) => VolumeSource::Moment(parent, moment),
        };
        let (source_instance, similar) = (volume.parent_instance.clone(), volume.parent.clone());
        let storage_bytes = u64::from(work.branch.spec.storage_gib) << 30;
        VolumePlan { label, source, source_instance, similar, storage_bytes }
    }

    /// Keeps older claims from a volume, if it is there: or a process that gave up waiting for a
    /// start would have a server on it.
    pub(super) async fn fence(&self, volume: &VolumeId, token: ClaimToken) -> Result<(), EngineError> {
        match self.inner.engine.fence(volume, token).await {
            Err(EngineError::NoVolume(_)) => Ok(()),
            fenced => fenced,
        }
    }

    /// Stops the server, and lets the other volume take the place of the branch's
    /// own. Killed before the one, the server goes on or is started again; killed
    /// after it, this is done over.
    pub(super) async fn replace_volume(
        &self,
        work: &mut BranchWork,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let inner = &self.inner;
        let Some(replacement) = work.replacement.take() else { return Err(StepError::Lost) };
        let (branch, old) = (&work.branch.id, &work.volume.id);
        self.fence(old, token).await?;
        inner.engine.stop(&work.instance, Some(old), StopMode::Fast).await?;
        failpoint!("reconciler.stopped_to_replace");
        if !inner.store.branch_replace(branch, token, old, &replacement.id).await? {
            return Err(StepError::Lost);
        }
        failpoint!("reconciler.replaced");
        inner.health.forget(branch);
        work.branch.volume = replacement.id.clone();
        if replacement.version.major != work.volume.version.major {
            work.branch.spec.version = replacement.version;
        }
        work.volume = replacement;
        Ok(())
    }

    /// Removes what the branch had before and nobody can go back to any more. Without
    /// snapshots that takes as long as there are files; one that is up is looked after
    /// meanwhile.
    pub(super) async fn let_go_of_old_volumes(
        &self,
        work: &mut BranchWork,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        let doomed = std::mem::take(&mut work.doomed);
        if doomed.is_empty() {
            return Ok(());
        }
        let removing = self.remove_old_volumes(&doomed);
        match work.branch.goal {
            Goal::Running => self.while_tended(removing, work, token, &CancellationToken::new()).await?,
            _ => removing.await,
        }
    }

    /// Removes volumes that a branch had before.
    pub(super) async fn remove_old_volumes(&self, doomed: &[VolumeId]) -> Result<(), StepError> {
        for volume in doomed {
            self.remove_data(volume).await?;
            self.inner.store.volume_removed(volume).await?;
        }
        Ok(())
    }

    /// Removes the data of a volume that a tombstone names.
    pub(super) async fn remove_data(&self, volume: &VolumeId) -> Result<(), StepError> {
        let store = &self.inner.store;
        if store.volume_has_promised_copies(volume).await? {
            return Err(StepError::NotYet("a copy of its volume is still being made"));
        }
        if store.tombstone_find(volume).await?.is_none() {
            return Err(StepError::NotYet("no tombstone names its volume"));
        }
        self.inner.engine.remove_volume(volume).await?;
        tracing::info!(%volume, "volume {volume} is removed");
        failpoint!("reconciler.volume_removed");
        Ok(())
    }
}
