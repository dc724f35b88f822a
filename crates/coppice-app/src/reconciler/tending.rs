//! Looking after a branch while something is done for it that takes long.
//!
//! One task at a time works on a branch, so whatever waits for what its owner's data or
//! code decides would keep its server from being started when it ended, from being told
//! of a password or another configuration, and from being made read-only when it is full.

use std::time::Duration;

use coppice_core::VolumeId;
use coppice_core::branch::Goal;
use coppice_core::claim::ClaimToken;
use coppice_core::plan::{InstanceSeen, Seen, Step, plan};
use coppice_core::volume::VolumeState;

use coppice_store::BranchWork;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::Reconciler;
use super::attempt::{LEASE_SECONDS, StepError};

/// How often is looked whether there is something to do, or it is not wanted any more.
const LOOK: Duration = Duration::from_secs(1);

impl Reconciler {
    /// Does what takes long for a replacement: none when the branch does not want that any
    /// more, or this process is to end. The branch is looked after meanwhile, if it `serves`.
    pub(super) async fn while_wanted<T>(
        &self,
        doing: impl Future<Output = T>,
        replacement: &VolumeId,
        work: &mut BranchWork,
        token: ClaimToken,
        serves: bool,
    ) -> Result<Option<T>, StepError> {
        let (branch, is_given_up) = (work.branch.id.clone(), CancellationToken::new());
        let is_wanted = || self.inner.store.branch_wants_replacement(&branch, replacement);
        let doing = async {
            tokio::select! {
                biased;
                done = self.unless_unwanted(doing, is_wanted) => done,
                () = is_given_up.cancelled() => None,
            }
        };
        match serves {
            true => self.while_tended(doing, work, token, &is_given_up).await,
            false => Ok(doing.await),
        }
    }

    /// Does what takes long: none when that is not wanted any more, or this process is to end.
    pub(super) async fn unless_unwanted<T, W: Future<Output = coppice_store::Result<bool>>>(
        &self,
        doing: impl Future<Output = T>,
        is_wanted: impl Fn() -> W,
    ) -> Option<T> {
        let is_unwanted = async {
            loop {
                tokio::time::sleep(LOOK).await;
                if let Ok(false) = is_wanted().await {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = self.inner.stop.cancelled() => None,
            done = doing => Some(done),
            () = is_unwanted => None,
        }
    }

    /// Does what takes long, and looks after the branch meanwhile; `work` is what it is by
    /// then. Says so when another claim takes over, which is an error at the end, or the
    /// branch is deleted.
    pub(super) async fn while_tended<T>(
        &self,
        doing: impl Future<Output = T>,
        work: &mut BranchWork,
        token: ClaimToken,
        is_unwanted: &CancellationToken,
    ) -> Result<T, StepError> {
        self.let_clients_in(work, token).await?;
        let done = self.beside_tending(doing, work, token, is_unwanted).await;
        // What comes next may stop its server.
        self.report_primary(work, token, false).await?;
        done
    }

    /// The same for what no server is stopped for.
    pub(super) async fn beside_tending<T>(
        &self,
        doing: impl Future<Output = T>,
        work: &mut BranchWork,
        token: ClaimToken,
        is_unwanted: &CancellationToken,
    ) -> Result<T, StepError> {
        let is_over = CancellationToken::new();
        let done = async {
            let done = doing.await;
            is_over.cancel();
            done
        };
        // To the end of what was begun: a step is not left in the middle.
        let tended = async {
            loop {
                tokio::select! {
                    biased;
                    () = is_over.cancelled() => return Ok(()),
                    () = tokio::time::sleep(LOOK) => {}
                }
                match self.tend(work, token).await {
                    Ok(()) if matches!(work.branch.goal, Goal::Trashed | Goal::Deleted) => {
                        is_unwanted.cancel()
                    }
                    Ok(()) => {}
                    Err(StepError::Lost) => {
                        is_unwanted.cancel();
                        return Err(StepError::Lost);
                    }
                    Err(error) => {
                        let branch = &work.branch.id;
                        tracing::warn!(%branch, "branch {branch} meanwhile: {}", error.reason());
                    }
                }
            }
        };
        let (done, tended) = tokio::join!(done, tended);
        tended.map(|()| done)
    }

    /// Clients get in although their branch is not said to be ready, if its server answers.
    async fn let_clients_in(&self, work: &BranchWork, token: ClaimToken) -> Result<(), StepError> {
        let serves = work.branch.goal == Goal::Running
            && work.volume.state == VolumeState::Admitted
            && self.observe_primary(work).await? == InstanceSeen::Running;
        self.report_primary(work, token, serves).await?;
        self.inner.announce(&work.branch.id);
        Ok(())
    }

    async fn report_primary(
        &self,
        work: &BranchWork,
        token: ClaimToken,
        serves: bool,
    ) -> Result<(), StepError> {
        Ok(self.inner.store.instance_report(&work.branch.id, &work.instance, token, serves).await?)
    }

    /// Does what there is to do for a branch but for its replacement, if it was nudged.
    fn tend<'a>(
        &'a self,
        work: &'a mut BranchWork,
        token: ClaimToken,
    ) -> BoxFuture<'a, Result<(), StepError>> {
        async move {
            let (inner, branch) = (&self.inner, work.branch.id.clone());
            if !inner.lock().nudged.remove(&branch) {
                return Ok(());
            }
            let host = &inner.control_plane.host;
            let claimed = inner.store.branch_claim(&branch, host, token, LEASE_SECONDS).await?;
            *work = claimed.ok_or(StepError::Lost)?;
            // Whoever removes them may be waited for here.
            work.doomed.clear();
            loop {
                let seen = Seen {
                    goal: work.branch.goal,
                    volume: work.volume.state,
                    replacement: None,
                    instance: self.observe_primary(work).await?,
                    replicas: self.observe_replicas(work).await?,
                };
                let is_whole = seen.volume == VolumeState::Admitted
                    && matches!(seen.goal, Goal::Running | Goal::Hibernated);
                if !is_whole {
                    return Ok(());
                }
                let step = plan(&seen);
                tracing::debug!(%branch, ?seen, ?step, "branch {branch} meanwhile: {step:?}");
                if step != Step::Settle {
                    self.report_primary(work, token, false).await?;
                }
                self.apply(step, work, token).await?;
                if step == Step::Settle {
                    self.let_clients_in(work, token).await?;
                    return self.tend_replicas(work, token).await;
                }
            }
        }
        .boxed()
    }
}
