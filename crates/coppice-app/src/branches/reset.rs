//! Branches that become again what another one is, or what they were.

use chrono::{SecondsFormat, Utc};
use coppice_core::branch::{Branch, BranchSpec, BranchState, BranchVersion};
use coppice_core::history::Moment;
use coppice_core::image::PostgresVersion;
use coppice_core::lsn::Lsn;
use coppice_core::target::InBranch;
use coppice_core::{BranchId, Error, ErrorCode, Result, VolumeId};
use coppice_failpoint::failpoint;
use coppice_store::{NewVolume, Replacement, Tx};
use coppice_turns::step_aside;

use super::{Branches, busy};
use crate::Access;
use crate::idempotency::{branch_of_call, note_effect_in_tx};
use crate::past::{Past, no_version};
use crate::projects::protected_from;
use crate::rows::{find_branch, find_in_project, lock_in_tx, lock_project_in_tx};

/// What a branch shall be from now on: a copy of its parent, unless something
/// else is named.
#[derive(Clone, Debug, Default)]
pub struct ResetTo {
    /// Another branch of its project.
    pub branch: Option<BranchId>,
    /// What it was itself, until it was reset before.
    pub version: Option<VolumeId>,
    /// A moment of that; without a branch or a version, of its own history.
    pub moment: Option<Moment>,
}

/// Where the data comes from.
struct Source {
    volume: VolumeId,
    moment: Option<Lsn>,
    storage_gib: u32,
    version: PostgresVersion,
    /// What is said of it.
    name: String,
}

impl Branches {
    /// Gives a branch the data of another one, or data that it had. Its id, its
    /// settings and its password stay; what it was is kept as a version. Waits a few
    /// seconds; what is true then is in its state.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`, `branch_protected`, `branch_busy`,
    /// `parent_not_ready`, `invalid_restore_target`, `invalid_field`,
    /// `branch_access_denied`, `organization_disabled`
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn reset(&self, access: &Access<InBranch>, to: &ResetTo) -> Result<Branch> {
        let InBranch { within, branch: id } = &access.target;
        let seen = find_in_project(&self.store, within, id).await?;
        if branch_of_call().is_some() {
            return Ok(seen);
        }
        let origin = origin(access, &seen, to)?;
        // Before anything is locked: it takes a look at the log.
        let past = self.find_reset_moment(access, &seen, &origin, to).await?;
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let project = lock_project_in_tx(&self.store, &mut tx, within).await?;
        let found = self.store.branch_find_in_tx(&mut tx, &project.organization, &project.id, id).await?;
        let current = found.ok_or_else(|| Error::branch_not_found(id))?;
        if current.is_protected {
            return Err(protected_from("reset", &format!("branch {}", current.name), "it"));
        }
        let source = self.reset_source(&mut tx, access, &current, &origin, to, past).await?;
        let volume = VolumeId::generate(Utc::now());
        let new = NewVolume {
            id: &volume,
            host: &self.host,
            branch: id,
            source: Some(&source.volume),
            moment: source.moment,
            base: None,
            version: source.version,
        };
        let reason = format!("reset to {}", source.name);
        let (storage_gib, keep) = (source.storage_gib, self.trash_keep);
        let why = Replacement {
            reason: &reason,
            meanwhile: BranchState::Updating,
            is_trial: false,
            storage_gib,
            keep,
        };
        if !self.store.branch_plan_replacement_in_tx(&mut tx, &current, &new, &why).await? {
            return Err(busy(id));
        }
        note_effect_in_tx(&self.store, &mut tx, id).await?;
        let done = self.reconciler.watch(id);
        tx.commit().await?;
        failpoint!("reset.committed");
        self.reconciler.nudge(id.clone());
        step_aside();
        let _ = tokio::time::timeout(self.create_wait, done).await;
        find_in_project(&self.store, within, id).await
    }

    /// The volume and the place in its log, where a version or a moment is asked for.
    async fn find_reset_moment(
        &self,
        access: &Access<InBranch>,
        branch: &Branch,
        origin: &BranchId,
        to: &ResetTo,
    ) -> Result<Option<Past>> {
        if to.moment.is_none() && to.version.is_none() {
            return Ok(None);
        }
        let other = match *origin == branch.id {
            true => None,
            false => Some(find_in_project(&self.store, &access.target.within, origin).await?),
        };
        self.moments
            .find_own_past(other.as_ref().unwrap_or(branch), to.version.as_ref(), to.moment)
            .await
            .map(Some)
    }

    async fn reset_source(
        &self,
        tx: &mut Tx,
        access: &Access<InBranch>,
        current: &Branch,
        origin: &BranchId,
        to: &ResetTo,
        past: Option<Past>,
    ) -> Result<Source> {
        let within = &access.target.within;
        let is_itself = *origin == current.id;
        let found = match is_itself {
            true => Some(current.clone()),
            false => self.store.branch_find_in_tx(tx, &within.organization, &within.project, origin).await?,
        };
        let source = found.ok_or_else(|| Error::branch_not_found(origin))?;
        if !is_itself && !matches!(source.state, BranchState::Ready | BranchState::Hibernated) {
            let public = format!("branch {} is not ready", source.id);
            return Err(Error::NotReady { code: ErrorCode::ParentNotReady, public });
        }
        let now = Past { volume: source.volume.clone(), lsn: None, base: None };
        let Past { volume, lsn: moment, .. } = past.unwrap_or(now);
        let (has, wants) = (current.spec.version.major, self.major_of_past(tx, &source, &volume).await?);
        if has != wants && !is_itself {
            let why = format!("it has PostgreSQL {wants}, and branch {} has {has}", current.name);
            return Err(Error::invalid_field("from.branchID", why));
        }
        let version = self.image_of_past(&current.spec, wants).await?;
        let name = match &to.version {
            Some(version) => format!("version {version}"),
            None if is_itself => "itself".to_owned(),
            None => format!("branch {}", source.name),
        };
        let at = match to.moment {
            None => String::new(),
            Some(Moment::Time(time)) => format!(" at {}", time.to_rfc3339_opts(SecondsFormat::Millis, true)),
            Some(Moment::Lsn(lsn)) => format!(" at {lsn}"),
        };
        let storage_gib = source.spec.storage_gib;
        Ok(Source { volume, moment, storage_gib, version, name: format!("{name}{at}") })
    }

    /// The major version of a volume that a branch has or had. A version of it stays as
    /// long as the transaction lasts.
    ///
    /// # Errors
    /// `invalid_restore_target` when it is gone
    pub(super) async fn major_of_past(&self, tx: &mut Tx, branch: &Branch, volume: &VolumeId) -> Result<u32> {
        if *volume == branch.volume {
            return Ok(branch.spec.version.major);
        }
        let found = self.store.branch_version_major_in_tx(tx, &branch.id, volume).await?;
        found.ok_or_else(|| no_version(branch, volume))
    }

    /// The release that what a branch was gets, of this major version, if the settings are
    /// for that, too.
    ///
    /// # Errors
    /// `invalid_image`, `invalid_postgres_parameter`, `invalid_preload_library`
    async fn image_of_past(&self, spec: &BranchSpec, major: u32) -> Result<PostgresVersion> {
        let version = self.release_of(spec.version, major).await?;
        if version.major != spec.version.major {
            self.check_fits(spec, version).await?;
        }
        Ok(version)
    }

    /// The release that a branch has, if it is of this major version; else the newest of that.
    ///
    /// # Errors
    /// `invalid_image`
    pub(super) async fn release_of(&self, has: PostgresVersion, major: u32) -> Result<PostgresVersion> {
        match has.major == major {
            true => Ok(has),
            false => self.offers.choose_image(&format!("postgres:{major}")).await,
        }
    }

    /// What a branch was before it was reset, the latest first.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`
    pub async fn versions(&self, access: &Access<InBranch>) -> Result<Vec<BranchVersion>> {
        let branch = find_branch(&self.store, access).await?;
        Ok(self.store.branch_versions(&branch.id).await?)
    }
}

/// The branch whose data it is to have; may be itself.
fn origin(access: &Access<InBranch>, branch: &Branch, to: &ResetTo) -> Result<BranchId> {
    let origin = match to {
        ResetTo { branch: Some(_), version: Some(_), .. } => {
            return Err(Error::invalid_field("from.versionID", "name a branch or a version, not both"));
        }
        ResetTo { branch: Some(other), moment: None, .. } if *other == branch.id => {
            return Err(Error::invalid_field("from.branchID", "name a moment of the branch itself, too"));
        }
        ResetTo { branch: Some(other), .. } => other.clone(),
        ResetTo { branch: None, version: None, moment: None } => branch.parent.clone().ok_or_else(|| {
            let why = format!("branch {} has no parent: name what it shall be a copy of", branch.name);
            Error::invalid_field("from", why)
        })?,
        ResetTo { branch: None, .. } => branch.id.clone(),
    };
    access.check_other_branch(&origin)?;
    Ok(origin)
}
