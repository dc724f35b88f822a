//! Copies of the primary's volume for replicas.

use coppice_core::BranchId;
use coppice_core::branch::Goal;
use coppice_core::claim::ClaimToken;
use coppice_core::volume::VolumeState;
use coppice_failpoint::failpoint;
use coppice_store::{BranchWork, ReplicaRow};
use tokio_util::sync::CancellationToken;

use super::Reconciler;
use super::attempt::StepError;

/// Why a replica is not made.
pub(super) const NO_MORE: StepError = StepError::NotYet("its branch was deleted or put to sleep");

/// Whether a branch is so that it can have replicas.
pub(super) fn is_up(work: &BranchWork) -> bool {
    work.branch.goal == Goal::Running && work.volume.state == VolumeState::Admitted
}

/// A replica whose volume is made, until this is dropped.
struct BeingMade<'a> {
    reconciler: &'a Reconciler,
    branch: BranchId,
}

impl<'a> BeingMade<'a> {
    fn note(reconciler: &'a Reconciler, branch: &BranchId, ordinal: u32) -> Self {
        reconciler.inner.lock().replicas_being_made.insert(branch.clone(), ordinal);
        Self { reconciler, branch: branch.clone() }
    }
}

impl Drop for BeingMade<'_> {
    fn drop(&mut self) {
        self.reconciler.inner.lock().replicas_being_made.remove(&self.branch);
    }
}

impl Reconciler {
    /// Copies the primary's volume. Without snapshots that takes as long as there is data, so the
    /// branch is looked after meanwhile, but for this replica.
    pub(super) async fn make_replica(
        &self,
        work: &mut BranchWork,
        replica: &ReplicaRow,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        // Before the copy, so that nothing is written in between that it misses.
        self.inner.engine.keep_for_replica(&work.instance, &replica.instance).await?;
        let (before, is_unwanted) = (work.clone(), CancellationToken::new());
        let making = async {
            tokio::select! {
                biased;
                () = is_unwanted.cancelled() => Err(NO_MORE),
                made = self.make_volume(&replica.volume, &before, token) => made,
            }
        };
        let being_made = BeingMade::note(self, &before.branch.id, replica.ordinal);
        let made = self.beside_tending(making, work, token, &is_unwanted).await;
        drop(being_made);
        // What was asked for meanwhile may not have been for whoever looked after it.
        self.nudge(before.branch.id.clone());
        made??;
        failpoint!("reconciler.replica_made");
        if !is_up(work) {
            return Err(NO_MORE);
        }
        let made = work.replicas.iter_mut().find(|one| one.volume.id == replica.volume.id);
        if let Some(made) = made {
            made.volume.state = VolumeState::Present;
        }
        Ok(())
    }
}
