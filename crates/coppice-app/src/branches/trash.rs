//! Branches that were deleted and can be brought back.

use std::collections::BTreeMap;

use chrono::Utc;
use coppice_core::access::check_fresh;
use coppice_core::branch::{Branch, TrashedBranch};
use coppice_core::organization::Holder;
use coppice_core::storage::VolumeBytes;
use coppice_core::target::{InBranch, InProject, InTrash};
use coppice_core::{BranchId, Error, Result, VolumeId};
use coppice_store::{Doomed, StoreError};

use super::{Branches, name_taken};
use crate::Access;
use crate::idempotency::{branch_of_call, note_effect_in_tx};
use crate::metering::known_bytes;
use crate::projects::protected;
use crate::rows::{find_in_project, find_project, lock_in_tx, lock_organization_in_tx, lock_project_in_tx};

/// What woke a branch that was brought back.
const BROUGHT_BACK: &str = "a request to the API, from the trash";

impl Branches {
    /// Deletes a branch: it is gone for everybody at once, and waits in the
    /// trash. With `purge`, and when its data was never there, what there is of it is
    /// removed in the background.
    ///
    /// # Errors
    /// `fresh_sign_in_required` where it can't be brought back; `project_not_found`,
    /// `branch_not_found`, `branch_protected`
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn delete(&self, access: &Access<InBranch>, purge: bool) -> Result<()> {
        if purge || self.trash_keep.is_zero() {
            check_fresh(&access.caller)?;
        }
        let id = &access.target.branch;
        let is_allowed = |branch: &Branch| match branch.is_protected {
            true => Err(protected(&format!("branch {}", branch.name), "it")),
            false => Ok(true),
        };
        if !self.put_away(&access.target, Some(access), purge, is_allowed).await? {
            return Err(Error::branch_not_found(id));
        }
        Ok(())
    }

    /// Puts a branch into the trash, or past it, if it is there and `is_due`;
    /// false otherwise. `by` is whoever asks for it, if anybody does.
    pub(crate) async fn put_away(
        &self,
        place: &InBranch,
        by: Option<&Access<InBranch>>,
        purge: bool,
        is_due: impl FnOnce(&Branch) -> Result<bool> + Send,
    ) -> Result<bool> {
        let InBranch { within, branch: id } = place;
        let (organization, keep) = (&within.organization, self.trash_keep);
        // What was used until now belongs to the time that ends now.
        self.sleep.note_uses().await;
        let mut tx = self.store.begin().await?;
        match by {
            Some(access) => drop(lock_in_tx(&self.store, &mut tx, access).await?),
            None => drop(lock_organization_in_tx(&self.store, &mut tx, organization).await?),
        }
        let project = lock_project_in_tx(&self.store, &mut tx, within).await?;
        let Some(branch) = self.store.branch_find_in_tx(&mut tx, organization, &project.id, id).await? else {
            return Ok(false);
        };
        if !is_due(&branch)? {
            return Ok(false);
        }
        let is_kept = !purge
            && !keep.is_zero()
            && self.store.branch_trash_in_tx(&mut tx, &project.id, id, keep).await?;
        let mut changed = if is_kept {
            self.store.trash_trim_in_tx(&mut tx, organization, self.limits.branches_max).await?
        } else {
            let doomed = Doomed::Branch(id);
            let reason = if purge || keep.is_zero() { "branch deleted" } else { "its data was never there" };
            self.store.branch_delete_in_tx(&mut tx, &project.id, doomed, reason).await?;
            vec![]
        };
        tx.commit().await?;
        for early in &changed {
            tracing::info!(branch = %early, "the trash of {organization} is full: branch {early} leaves it for good");
        }
        changed.push(id.clone());
        changed.into_iter().for_each(|branch| self.reconciler.nudge(branch));
        Ok(true)
    }

    /// Deletes branches whose time is over.
    async fn put_expired_away(&self) -> Result<()> {
        for (organization, project, branch) in self.store.branch_expired().await? {
            let place = InBranch { within: InProject { organization, project }, branch };
            // Somebody may have given it more time.
            let is_due = |branch: &Branch| Ok(branch.expires_at.is_some_and(|end| end <= Utc::now()));
            if self.put_away(&place, None, false, is_due).await? {
                tracing::info!(branch = %place.branch, "branch {} has expired: it is deleted", place.branch);
            }
        }
        Ok(())
    }

    /// What is in the trash of a project, what was deleted last first.
    ///
    /// # Errors
    /// `project_not_found`
    pub async fn list_trash(&self, access: &Access<InProject>) -> Result<Vec<TrashedBranch>> {
        let found = self.store.trash_list(&access.organization.id, &access.target.project).await?;
        if found.is_empty() {
            find_project(&self.store, &access.target).await?;
        }
        Ok(found)
    }

    /// Brings a branch back from the trash: awake, and under another name if one
    /// is given.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`, `branch_name_taken`,
    /// `branch_limit_reached`, `branch_depth_exceeded`, `branch_children_exceeded`,
    /// `organization_disabled`, `budget_reached`
    pub async fn undelete(&self, access: &Access<InTrash>, name: Option<&str>) -> Result<Branch> {
        let InTrash { within, branch: id } = &access.target;
        if branch_of_call().is_some() {
            return find_in_project(&self.store, within, id).await;
        }
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let project = lock_project_in_tx(&self.store, &mut tx, within).await?;
        let counted = self.store.branch_quotas_in_tx(&mut tx, &access.organization.id, &project.id).await?;
        self.check_branch_limits(&counted)?;
        let used_up = self.store.budget_of_branch_in_tx(&mut tx, id).await?;
        used_up.map_or(Ok(()), |used_up| Err(used_up.error()))?;
        let taken = |error: StoreError| match name {
            Some(name) => name_taken(error, name),
            None => old_name_taken(error, id),
        };
        let undelete = self.store.branch_undelete_in_tx(&mut tx, &project.id, id, name, BROUGHT_BACK);
        if !undelete.await.map_err(taken)? {
            return Err(Error::branch_not_found(id));
        }
        let back = self.store.branch_find_in_tx(&mut tx, &project.organization, &project.id, id).await?;
        let parent = back.and_then(|back| back.parent);
        self.check_place(&mut tx, id, parent.as_ref()).await?;
        self.check_branches_of_key(&mut tx, access.caller.credential.key()).await?;
        note_effect_in_tx(&self.store, &mut tx, id).await?;
        tx.commit().await?;
        self.reconciler.nudge(id.clone());
        find_in_project(&self.store, within, id).await
    }

    /// Removes everything in the trash of a project for good.
    ///
    /// # Errors
    /// `project_not_found`
    pub async fn empty_trash(&self, access: &Access<InProject>) -> Result<()> {
        self.purge_doomed(access, &access.target, Doomed::Trash).await.map(drop)
    }

    /// Removes one branch in the trash for good.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`
    pub async fn purge(&self, access: &Access<InTrash>) -> Result<()> {
        let InTrash { within, branch: id } = &access.target;
        match self.purge_doomed(access, within, Doomed::Trashed(id)).await?.is_empty() {
            true => Err(Error::branch_not_found(id)),
            false => Ok(()),
        }
    }

    async fn purge_doomed<T: Clone + Sync>(
        &self,
        access: &Access<T>,
        place: &InProject,
        doomed: Doomed<'_>,
    ) -> Result<Vec<BranchId>> {
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let project = lock_project_in_tx(&self.store, &mut tx, place).await?;
        let purged = self.store.branch_delete_in_tx(&mut tx, &project.id, doomed, "purged").await?;
        tx.commit().await?;
        purged.iter().for_each(|branch| self.reconciler.nudge(branch.clone()));
        Ok(purged)
    }

    /// Tells of branches whose time is over soon, and deletes those whose time is.
    /// Removes for good what was in the trash for long enough, and versions
    /// likewise; while there is little room for volumes, also what was there
    /// longest of the organization that keeps most, one at a time: nobody pushes out
    /// what is their neighbours'.
    pub async fn look_at_trash(&self) -> Result<()> {
        self.store.branch_tell_expiring().await?;
        self.put_expired_away().await?;
        let host = &self.host;
        let mut purged = self.store.trash_purge_due().await?;
        let mut makes_room = None;
        if purged.is_empty() && self.is_short_of_room().await? {
            let kept = self.store.kept_volumes(host).await?;
            makes_room = keeps_most(kept, |volume| known_bytes(&self.engine, volume));
        }
        if let Some(holder) = &makes_room {
            purged.extend(self.store.trash_purge_oldest(host, holder).await?);
        }
        // What a branch was goes after what was deleted.
        let former = makes_room.as_ref().filter(|_| purged.is_empty());
        let former = self.store.version_give_up(host, former).await?;
        former.into_iter().for_each(|branch| self.reconciler.nudge(branch));
        for branch in purged {
            tracing::info!(%branch, "branch {branch} leaves the trash for good");
            self.reconciler.nudge(branch);
        }
        Ok(())
    }

    async fn is_short_of_room(&self) -> Result<bool> {
        Ok(self.engine.is_short_of_room().await?)
    }
}

/// Whose volumes take most bytes that they share with nothing else. What was not
/// measured yet counts as nothing.
fn keeps_most(
    kept: Vec<(Holder, VolumeId)>,
    known: impl Fn(&VolumeId) -> Option<VolumeBytes>,
) -> Option<Holder> {
    let mut bytes = BTreeMap::<_, u64>::new();
    for (holder, volume) in kept {
        let own = known(&volume).map_or(0, |bytes| bytes.total - bytes.shared.unwrap_or_default());
        let sum = bytes.entry(holder).or_default();
        *sum = sum.saturating_add(own);
    }
    bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(holder, _)| holder)
}

/// The complaint about the name that a branch had.
fn old_name_taken(error: StoreError, id: &BranchId) -> Error {
    match name_taken(error, "") {
        Error::Conflict { code, .. } => Error::Conflict {
            code,
            public: format!("another branch has the name that {id} had: give it another one, as `name`"),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_most_makes_room_and_not_who_keeps_many_or_shares() {
        let of = |holder: &str, volume: &str| (Holder::from_trusted(holder), VolumeId::from_trusted(volume));
        let kept =
            vec![of("many", "a"), of("many", "b"), of("much", "c"), of("shares", "d"), of("unknown", "e")];
        let known = |volume: &VolumeId| {
            let (total, shared) = match volume.as_str() {
                "a" | "b" => (10, None),
                "c" => (30, Some(5)),
                "d" => (100, Some(90)),
                _ => return None,
            };
            Some(VolumeBytes { total, shared })
        };
        assert_eq!(keeps_most(kept, known), Some(Holder::from_trusted("much")));
        assert_eq!(keeps_most(vec![], known), None);
    }
}
