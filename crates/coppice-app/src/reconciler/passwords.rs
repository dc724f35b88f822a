//! Telling servers the passwords of their managed roles.
//!
//! A rotation is noted in the row first. On a branch that is up: note what the
//! password is going to be, tell the server, take it over. On one that is not:
//! replace it at once, and tell the server before the branch becomes ready.
//! Where another rotation was noted while the server was told, the password of
//! that one is told next: it is to keep out who may have read the other already.
//! Each part can be repeated, so it does not matter where it was interrupted;
//! whoever asks for the password meanwhile is given the one that the server
//! has (`rotation.rs` of this crate).

use coppice_core::BranchId;
use coppice_core::branch::MANAGED_ROLE;
use coppice_core::claim::ClaimToken;
use coppice_engine::{EngineError, SleepingRoles, StopMode};
use coppice_failpoint::failpoint;
use coppice_store::{BranchWork, KeptPassword};

use super::Reconciler;
use super::attempt::{StepError, pause};
use crate::kept_roles::seal_roles;
use crate::kept_roles::seal_verifier;

impl Reconciler {
    /// Tells the server of a branch that nobody was let into yet the password
    /// that was chosen while it could not be told.
    pub(super) async fn tell_pending_password(
        &self,
        work: &BranchWork,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        if !work.role_pending {
            return Ok(());
        }
        let verifier = &work.managed_role_verifier;
        self.tell(work, verifier).await?;
        failpoint!("rotation.pending_told");
        // Not so when it was replaced again; then the branch does not become
        // ready, and whoever replaced it nudged.
        self.inner.store.managed_role_told(&work.branch.id, token, verifier).await?;
        failpoint!("rotation.pending_done");
        Ok(())
    }

    /// Carries out a rotation on a branch that is up. A server that can't be
    /// told now is told later; its clients keep their password until then.
    pub(super) async fn rotate_password(&self, work: &BranchWork, token: ClaimToken) {
        let branch = &work.branch.id;
        let Some(next) = &work.next else {
            self.inner.lock().stuck_rotations.remove(branch);
            return;
        };
        match self.tell_and_finish(work, token, next).await {
            Ok(()) => {
                self.inner.lock().stuck_rotations.remove(branch);
                tracing::info!(%branch, "branch {branch} has a new password");
            }
            Err(error) => {
                let attempts = {
                    let mut inner = self.inner.lock();
                    let attempts = inner.stuck_rotations.entry(branch.clone()).or_default();
                    *attempts += 1;
                    *attempts
                };
                tracing::warn!(%branch, attempts, "branch {branch} can't be given its new password: {}", error.reason());
                self.nudge_after(branch.clone(), pause(attempts));
            }
        }
    }

    async fn tell(&self, work: &BranchWork, verifier: &str) -> Result<(), StepError> {
        let done = self.inner.engine.set_managed_verifier(&work.instance, verifier).await;
        self.or_end_holders(work, done).await?;
        if !work.hands_over {
            return Ok(());
        }
        self.lock_out(work).await?;
        // Who was still there may have put another role in its place.
        let done = self.inner.engine.set_managed_verifier(&work.instance, verifier).await;
        self.or_end_holders(work, done).await
    }

    /// Keeps out of a server whoever had it before.
    async fn lock_out(&self, work: &BranchWork) -> Result<(), StepError> {
        let engine = &self.inner.engine;
        let done = engine.lock_out(&work.instance).await;
        self.or_end_holders(work, done).await?;
        // Also of those that do not answer. They are started as ones that ended by themselves.
        for replica in &work.replicas {
            engine.stop(&replica.instance, Some(&replica.volume.id), StopMode::Immediate).await?;
        }
        failpoint!("rotation.locked_out");
        Ok(())
    }

    /// What a volume that is about to be used for the first time was made of may be
    /// older than the time when its branch got to somebody else.
    pub(super) async fn lock_out_of_copy(&self, work: &BranchWork) -> Result<(), StepError> {
        // Not a fact of the claim: within one, a branch gets another volume.
        let knows_former = self.inner.store.volume_knows_former(&work.volume.id).await?;
        if knows_former { self.lock_out(work).await } else { Ok(()) }
    }

    /// Stops a server on which something can't be ended while it runs; it is
    /// started as one that ended by itself, and then the same is tried again.
    pub(super) async fn or_end_holders(
        &self,
        work: &BranchWork,
        done: Result<(), EngineError>,
    ) -> Result<(), StepError> {
        let Err(EngineError::Held { transactions, .. }) = done else { return Ok(done?) };
        let branch = &work.branch.id;
        tracing::warn!(
            %branch,
            "branch {branch} is restarted to end what can't be ended otherwise: {} prepared transactions, or a session",
            transactions.len()
        );
        self.inner.engine.end_holders(&work.instance, &work.volume.id, &transactions).await?;
        // It did not end by itself.
        self.inner.health.forget(branch);
        failpoint!("reconciler.holders_ended");
        Err(StepError::NotYet("its server is restarted"))
    }

    async fn tell_and_finish(
        &self,
        work: &BranchWork,
        token: ClaimToken,
        next: &KeptPassword,
    ) -> Result<(), StepError> {
        self.tell(work, &next.verifier).await?;
        failpoint!("rotation.told");
        if !self.inner.store.rotation_finish(&work.branch.id, token, next).await? {
            return Err(StepError::Lost);
        }
        // Whoever began another one meanwhile nudged.
        failpoint!("rotation.done");
        Ok(())
    }

    /// Keeps what authenticates the clients of a branch that was just stopped.
    /// What its owner asked for since the roles were read counts.
    pub(super) async fn keep_roles(
        &self,
        branch: &BranchId,
        token: ClaimToken,
        kept: Option<(SleepingRoles, String)>,
    ) -> Result<(), StepError> {
        let inner = &self.inner;
        let mut tx = inner.store.begin().await?;
        let Some(role) = inner.store.managed_role_lock_in_tx(&mut tx, branch).await? else {
            // Deleted meanwhile: nothing has to be kept.
            return Ok(());
        };
        // Nothing is kept of what no server has so much of; the branch is woken to be asked then.
        let kept = kept.filter(|(roles, _)| roles.is_within_bounds());
        let kept = kept.map(|(mut roles, checkpoint)| {
            if role.is_pending {
                roles.verifiers.insert(MANAGED_ROLE.to_owned(), role.password.verifier.clone());
            }
            (seal_roles(&inner.key, branch, roles), checkpoint)
        });
        let kept = kept.as_ref().map(|(roles, checkpoint)| (roles.as_slice(), checkpoint.as_str()));
        if !inner.store.branch_keep_verifiers_in_tx(&mut tx, branch, token, kept).await? {
            return Err(StepError::Lost);
        }
        tx.commit().await?;
        Ok(())
    }

    /// Ends a rotation on a branch that sleeps: its clients have to prove the
    /// new password, and its server is told when it wakes.
    pub(super) async fn finish_rotation_asleep(
        &self,
        work: &BranchWork,
        token: ClaimToken,
    ) -> Result<(), StepError> {
        if work.next.is_none() {
            return Ok(());
        }
        let (inner, branch) = (&self.inner, &work.branch.id);
        let mut tx = inner.store.begin().await?;
        let Some(role) = inner.store.managed_role_lock_in_tx(&mut tx, branch).await? else { return Ok(()) };
        let Some(next) = role.next else { return Ok(()) };
        let kept = seal_verifier(&inner.key, branch, MANAGED_ROLE, &next.verifier);
        if !inner.store.rotation_store_in_tx(&mut tx, branch, Some(token), &next, &kept).await? {
            return Err(StepError::Lost);
        }
        failpoint!("rotation.asleep");
        tx.commit().await?;
        Ok(())
    }
}
