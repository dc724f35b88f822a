//! Branches that change their place in the tree; their data stays what it is.

use coppice_core::branch::Branch;
use coppice_core::limits::{BRANCH_CHILDREN_MAX, BRANCH_DEPTH_MAX};
use coppice_core::target::InBranch;
use coppice_core::{BranchId, Error, ErrorCode, Result};
use coppice_store::Tx;

use super::Branches;
use super::create::{too_deep, too_many_children};
use crate::Access;
use crate::idempotency::{branch_of_call, note_effect_in_tx};
use crate::rows::{find_branch, lock_in_tx, lock_project_in_tx};

impl Branches {
    /// Makes a branch a base branch. One that is stays as it is.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`, `organization_disabled`
    pub async fn detach(&self, access: &Access<InBranch>) -> Result<Branch> {
        let (mut tx, branch) = self.begin_with(access).await?;
        if self.store.branch_detach_in_tx(&mut tx, &branch.id).await? {
            tx.commit().await?;
        }
        find_branch(&self.store, access).await
    }

    /// Puts a branch in the place of its parent, which becomes its child. All the
    /// other children stay whose they are.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`, `invalid_field`, `restricted_key`,
    /// `branch_depth_exceeded`, `branch_children_exceeded`, `organization_disabled`
    pub async fn promote(&self, access: &Access<InBranch>) -> Result<Branch> {
        if access.caller.grant.own_branches {
            let reason = "a key for what it makes moves no other branch";
            return Err(Error::access_denied(ErrorCode::RestrictedKey, reason));
        }
        if branch_of_call().is_some() {
            return find_branch(&self.store, access).await;
        }
        let (mut tx, branch) = self.begin_with(access).await?;
        let parent = branch.parent.as_ref().ok_or_else(|| {
            let public = format!("branch {} has no parent whose place it could take", branch.name);
            Error::invalid(ErrorCode::InvalidField, public)
        })?;
        self.check_promotion(&mut tx, &branch.id, parent).await?;
        self.store.branch_promote_in_tx(&mut tx, &branch.id, parent).await?;
        note_effect_in_tx(&self.store, &mut tx, &branch.id).await?;
        tx.commit().await?;
        find_branch(&self.store, access).await
    }

    async fn begin_with(&self, access: &Access<InBranch>) -> Result<(Tx, Branch)> {
        let InBranch { within, branch: id } = &access.target;
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let project = lock_project_in_tx(&self.store, &mut tx, within).await?;
        let found = self.store.branch_find_in_tx(&mut tx, &project.organization, &project.id, id).await?;
        Ok((tx, found.ok_or_else(|| Error::branch_not_found(id))?))
    }

    /// Whether a branch that was put between its parent and its children lies where it may.
    ///
    /// # Errors
    /// `branch_depth_exceeded`, `branch_children_exceeded`
    pub(super) async fn check_place(
        &self,
        tx: &mut Tx,
        id: &BranchId,
        parent: Option<&BranchId>,
    ) -> Result<()> {
        let (depth, _) = self.store.branch_place_in_tx(tx, id).await?;
        // Its height counts it, too.
        if depth + self.store.branch_height_in_tx(tx, id, id).await? > BRANCH_DEPTH_MAX + 1 {
            return Err(too_deep());
        }
        for one in std::iter::once(id).chain(parent) {
            let (depth, children) = self.store.branch_place_in_tx(tx, one).await?;
            if depth > 1 && children > BRANCH_CHILDREN_MAX {
                return Err(too_many_children());
            }
        }
        Ok(())
    }

    /// What is below the parent comes to be one level deeper.
    async fn check_promotion(&self, tx: &mut Tx, id: &BranchId, parent: &BranchId) -> Result<()> {
        let (depth, _) = self.store.branch_place_in_tx(tx, parent).await?;
        let (_, children) = self.store.branch_place_in_tx(tx, id).await?;
        let height = self.store.branch_height_in_tx(tx, parent, id).await?;
        if depth + height > BRANCH_DEPTH_MAX {
            return Err(too_deep());
        }
        // Base branches may have any number.
        if depth > 1 && children >= BRANCH_CHILDREN_MAX {
            return Err(too_many_children());
        }
        Ok(())
    }
}
