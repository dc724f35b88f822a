//! Branches that get another major version of PostgreSQL.

use chrono::Utc;
use coppice_core::branch::{Branch, BranchState};
use coppice_core::image::{PostgresVersion, image_name};
use coppice_core::target::InBranch;
use coppice_core::{Error, Result, VolumeId};
use coppice_store::{NewVolume, Replacement};

use super::spec::invalid_image;
use super::{Branches, busy};
use crate::Access;
use crate::idempotency::{branch_of_call, note_effect_in_tx};
use crate::rows::{find_in_project, lock_in_tx, lock_project_in_tx};

/// The major version that a branch shall have.
#[derive(Clone, Debug)]
pub struct UpgradeTo {
    /// For example `postgres:18`, for its newest release.
    pub image: String,
    /// Whether it is only tried on a copy.
    pub is_trial: bool,
}

impl Branches {
    /// Begins to give a branch a later major version, or to try that. It is tried on a
    /// copy first while the branch serves; then clients wait until it is done. Id, URL,
    /// password and data stay, and what it was is kept as a version. Returns at once.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`, `branch_busy`, `invalid_image`,
    /// `invalid_postgres_parameter`, `invalid_preload_library`, `organization_disabled`,
    /// `budget_reached`
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn upgrade(&self, access: &Access<InBranch>, to: &UpgradeTo) -> Result<Branch> {
        let InBranch { within, branch: id } = &access.target;
        if branch_of_call().is_some() {
            return find_in_project(&self.store, within, id).await;
        }
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let project = lock_project_in_tx(&self.store, &mut tx, within).await?;
        let found = self.store.branch_find_in_tx(&mut tx, &project.organization, &project.id, id).await?;
        let current = found.ok_or_else(|| Error::branch_not_found(id))?;
        // It is two servers, also of a branch that sleeps.
        if let Some(used_up) = self.store.budget_of_branch_in_tx(&mut tx, id).await? {
            return Err(used_up.error());
        }
        let version = self.later_major(current.spec.version, &to.image).await?;
        self.check_fits(&current.spec, version).await?;
        let volume = VolumeId::generate(Utc::now());
        let new = NewVolume {
            id: &volume,
            host: &self.host,
            branch: id,
            source: Some(&current.volume),
            moment: None,
            base: None,
            version,
        };
        let reason = format!("upgraded from PostgreSQL {}", current.spec.version);
        let why = Replacement {
            reason: &reason,
            meanwhile: BranchState::Upgrading,
            is_trial: to.is_trial,
            storage_gib: current.spec.storage_gib,
            keep: self.trash_keep,
        };
        if !self.store.branch_plan_replacement_in_tx(&mut tx, &current, &new, &why).await? {
            return Err(busy(id));
        }
        note_effect_in_tx(&self.store, &mut tx, id).await?;
        tx.commit().await?;
        self.reconciler.nudge(id.clone());
        find_in_project(&self.store, within, id).await
    }

    async fn later_major(&self, has: PostgresVersion, name: &str) -> Result<PostgresVersion> {
        let asked = self.offers.choose_image(name).await?;
        match asked.major > has.major {
            true => Ok(asked),
            false => {
                let why = format!(
                    "the branch has {}, and an upgrade is to a later major version; updateBranch takes it to a later \
                     release of its own",
                    image_name(has)
                );
                Err(invalid_image(name, &why))
            }
        }
    }
}
