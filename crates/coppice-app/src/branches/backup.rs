//! What can be restored of branches.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use coppice_core::backup::{BackupChange, DrillReport};
use coppice_core::branch::{Branch, BranchVersion};
use coppice_core::history::Span;
use coppice_core::target::{InProject, OnBackup};
use coppice_core::{BranchId, Error, ErrorCode, Result};
use coppice_store::Drills;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::Branches;
use crate::Access;
use crate::rows::find_in_project;

/// Branches that are looked at at a time.
const LOOKS_MAX: usize = 8;

/// What is kept of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The branch; the backup has the same id.
    pub branch: BranchId,
    /// What the branch is called.
    pub branch_name: String,
    /// For how many days what it was is kept.
    pub retention_days: u32,
    /// The times at which it can be restored, also to what it was before it was reset or
    /// upgraded; none when there are none yet.
    pub span: Option<Span>,
    /// For how long what was written may not be in the store; none where there is no store,
    /// or nothing of the branch in it.
    pub lag: Option<Duration>,
    /// When it was last restored for proof, and what came of it; none when it never was.
    pub last_drill: Option<(DateTime<Utc>, DrillReport)>,
    /// When that last went well.
    pub verified_at: Option<DateTime<Utc>>,
}

impl Branches {
    /// Whether anything of what branches were is kept here.
    pub fn makes_backups(&self) -> bool {
        self.engine.keeps_history() || self.has_archive
    }

    /// Refuses settings of backups where none are made; to say nothing of them is
    /// to change nothing.
    pub(super) fn check_backups(&self, change: BackupChange) -> Result<()> {
        if change == BackupChange::default() || self.makes_backups() {
            return Ok(());
        }
        let public = "invalid backup configuration: this region makes no backups";
        Err(Error::invalid(ErrorCode::InvalidBackupConfiguration, public))
    }

    /// What can be restored of the branches of the project that the caller may see.
    ///
    /// # Errors
    /// `project_not_found`
    pub async fn list_backups(&self, access: &Access<InProject>) -> Result<Vec<Backup>> {
        let branches = self.list(access).await?;
        if !self.makes_backups() {
            return Ok(vec![]);
        }
        let ids: Vec<_> = branches.iter().map(|branch| branch.id.clone()).collect();
        let drills: BTreeMap<_, _> = self.store.drill_list(&ids).await?.into_iter().collect();
        let mut versions: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, version) in self.store.versions_of_branches(&ids).await? {
            versions.entry(id).or_default().push(version);
        }
        let volumes: Vec<_> = branches.iter().map(|branch| branch.volume.clone()).collect();
        let seen: BTreeMap<_, _> = self.store.base_seen_at(&volumes).await?.into_iter().collect();
        let found = branches.into_iter().map(|branch| {
            let versions = versions.remove(&branch.id).unwrap_or_default();
            let drills = drills.get(&branch.id).cloned();
            let base_seen_at = seen.get(&branch.volume).copied();
            async move { self.backup_of(branch, &versions, drills, base_seen_at).await }
        });
        stream::iter(found).buffered(LOOKS_MAX).try_collect().await
    }

    /// What can be restored of a branch.
    ///
    /// # Errors
    /// `project_not_found`, `backup_not_found`
    pub async fn get_backup(&self, access: &Access<OnBackup>) -> Result<Backup> {
        let OnBackup { within, branch: id } = &access.target;
        let found = match find_in_project(&self.store, within, id).await {
            Ok(branch) if self.makes_backups() => branch,
            Ok(_) | Err(Error::NotFound { code: ErrorCode::BranchNotFound, .. }) => {
                return Err(Error::backup_not_found(id));
            }
            Err(error) => return Err(error),
        };
        let drills = self.store.drill_list(std::slice::from_ref(id)).await?.pop();
        let versions = self.store.branch_versions(id).await?;
        let seen = self.store.base_seen_at(std::slice::from_ref(&found.volume)).await?.pop();
        let (drills, seen) = (drills.map(|(_, drills)| drills), seen.map(|(_, at)| at));
        self.backup_of(found, &versions, drills, seen).await
    }

    async fn backup_of(
        &self,
        branch: Branch,
        versions: &[BranchVersion],
        drills: Option<Drills>,
        base_seen_at: Option<DateTime<Utc>>,
    ) -> Result<Backup> {
        let drills = drills.unwrap_or_default();
        Ok(Backup {
            lag: self.backups.lag_of(&branch.volume, base_seen_at),
            span: self.moments.span_of_branch(&branch, versions, true).await?,
            last_drill: drills.last,
            verified_at: drills.verified_at,
            branch: branch.id,
            branch_name: branch.name,
            retention_days: branch.backups.retention_days,
        })
    }
}
