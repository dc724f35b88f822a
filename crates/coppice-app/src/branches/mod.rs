//! Branches.

mod backup;
mod create;
mod lineage;
mod reset;
mod spec;
mod trash;
mod tree;
mod upgrade;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use coppice_core::access::{AskedExpiry, Scope, check_fresh};
use coppice_core::backup::BackupChange;
use coppice_core::branch::{Branch, BranchState, Reconfigure};
use coppice_core::budget::UsedUp;
use coppice_core::labels::{self, LABELS_MAX, Labels};
use coppice_core::limits::OrganizationLimits;
use coppice_core::project::ScaleToZeroChange;
use coppice_core::target::{InBranch, InProject};
use coppice_core::{BranchId, Error, ErrorCode, HostId, InstanceId, Result};
use coppice_engine::SharedEngine;
use coppice_store::{BranchNote, Store, StoreError, Tx};

use crate::backups::Backups;
use crate::offers::Offers;
use crate::past::Moments;
use crate::projects::Projects;
use crate::reconciler::Reconciler;
use crate::rows::{find_branch, find_in_project, find_project, lock_in_tx, lock_project_in_tx};
use crate::secrets::MasterKey;
use crate::sleep::{Activity, Sleep};
use crate::{Access, AppConfig};

pub use backup::Backup;
pub(crate) use create::MadeFor;
pub use create::{BranchOrigin, CustomBranch, NewBranchRequest};
pub use reset::ResetTo;
use spec::NewSpec;
pub use spec::SpecChange;
pub use tree::BranchInTree;
pub use upgrade::UpgradeTo;

/// How long a request waits for a server to take its parameters.
const RELOAD_WAIT: Duration = Duration::from_secs(1);
/// What woke a branch whose owner asked for it.
const WOKEN_BY_REQUEST: &str = "a request to the API";

/// A change of a branch; checked by the caller. What is absent stays.
#[derive(Clone, Debug, Default)]
pub struct BranchChange {
    /// Its new name.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Labels over those it has; an empty value takes one away.
    pub labels: Labels,
    /// When it may sleep.
    pub scale_to_zero: ScaleToZeroChange,
    /// Whether it can't be deleted, and does not expire.
    pub is_protected: Option<bool>,
    /// When it is deleted.
    pub expiry: AskedExpiry,
    /// What is kept of what it was.
    pub backups: BackupChange,
    /// Whether it shall sleep now, or wake.
    pub hibernate: Option<bool>,
    /// What it is made of.
    pub spec: SpecChange,
}

/// A branch with what its instances are doing.
#[derive(Clone, Debug)]
pub struct BranchDetails {
    /// The branch.
    pub branch: Branch,
    /// Its instances.
    pub instances: Vec<(InstanceId, InstanceStatus)>,
    /// What keeps it awake; none while it is not.
    pub activity: Option<Activity>,
    /// The budget that keeps it asleep, if it sleeps.
    pub used_up: Option<UsedUp>,
}

/// What one instance is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceStatus {
    /// Accepts connections.
    Healthy,
    /// On its way up.
    Starting,
    /// Does not run.
    Stopped,
    /// Can't be brought up.
    Failed,
}

/// Branches of projects.
#[derive(Clone)]
pub struct Branches {
    store: Store,
    engine: SharedEngine,
    reconciler: Reconciler,
    key: Arc<MasterKey>,
    offers: Offers,
    projects: Projects,
    moments: Moments,
    backups: Backups,
    sleep: Sleep,
    /// Where they are made.
    host: HostId,
    limits: OrganizationLimits,
    /// How long a creation waits for its branch to be ready.
    create_wait: Duration,
    /// For how long deleted ones can be brought back.
    trash_keep: Duration,
    /// Whether bases are kept away from this machine.
    has_archive: bool,
}

impl Branches {
    pub(crate) fn new(
        (store, engine, reconciler): (Store, SharedEngine, Reconciler),
        key: Arc<MasterKey>,
        (offers, projects): (Offers, Projects),
        (moments, backups): (Moments, Backups),
        sleep: Sleep,
        config: &AppConfig,
    ) -> Self {
        Self {
            store,
            engine,
            reconciler,
            key,
            offers,
            projects,
            moments,
            backups,
            sleep,
            host: config.host.clone(),
            limits: config.limits,
            create_wait: config.create_wait,
            trash_keep: config.trash_keep,
            has_archive: config.archive.is_some(),
        }
    }

    /// Branches of the project that the caller may see.
    ///
    /// # Errors
    /// `project_not_found`
    pub async fn list(&self, access: &Access<InProject>) -> Result<Vec<Branch>> {
        let only = access.caller.grant.branch_limit();
        let branches = self.store.branch_list(&access.organization.id, &access.target.project, only).await?;
        if branches.is_empty() {
            find_project(&self.store, &access.target).await?;
        }
        Ok(branches)
    }

    /// Changes what the owner says of a branch; a change that changes nothing
    /// leaves it as it is.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`, `branch_name_taken`, `branch_busy`,
    /// `invalid_postgres_parameter`, `invalid_preload_library`, `storage_shrink`, `invalid_field`,
    /// `invalid_instance_type`, `invalid_image`, `organization_disabled`,
    /// `branch_protected`, `expiry_in_past`, `insufficient_scope`, `budget_reached`,
    /// `invalid_backup_configuration`
    pub async fn update(&self, access: &Access<InBranch>, change: BranchChange) -> Result<Branch> {
        let InBranch { within, branch: id } = &access.target;
        self.check_backups(change.backups)?;
        if change.hibernate == Some(true) {
            // What was used until now belongs to the time that ends now.
            self.sleep.note_uses().await;
        }
        let mut tx = self.store.begin().await?;
        let access = &lock_in_tx(&self.store, &mut tx, access).await?;
        // Renames wait for each other and for creations in the project.
        let project = lock_project_in_tx(&self.store, &mut tx, within).await?;
        let found = self.store.branch_find_in_tx(&mut tx, &project.organization, &project.id, id).await?;
        let current = found.ok_or_else(|| Error::branch_not_found(id))?;
        let note = changed_note(access, &current, &change)?;
        let new = self.changed_spec(&current.spec, &change.spec).await?;
        let has_new_spec = new.spec != current.spec;
        let is_same = note == BranchNote::of(&current);
        if !is_same {
            let updated = self.store.branch_update_in_tx(&mut tx, id, &note).await;
            updated.map_err(|error| name_taken(error, note.name))?;
        }
        if has_new_spec {
            self.set_spec_in_tx(&mut tx, &current, &new).await?;
        }
        let has_new_goal = match change.hibernate {
            None => false,
            Some(true) => self.store.branch_hibernate_in_tx(&mut tx, id).await?,
            Some(false) => self.wake_in_tx(&mut tx, id).await?,
        };
        if is_same && !has_new_goal && !has_new_spec {
            return Ok(current);
        }
        let done = self.reconciler.watch(id);
        tx.commit().await.map_err(|error| name_taken(error, note.name))?;
        if has_new_goal || has_new_spec {
            self.reconciler.nudge(id.clone());
        }
        if has_new_spec && new.how == Reconfigure::Reload && !has_new_goal {
            // It also ends when the server does not answer, which is told later then.
            let _ = tokio::time::timeout(RELOAD_WAIT, done).await;
        }
        find_in_project(&self.store, within, id).await
    }

    /// Wakes a branch that no budget keeps asleep.
    async fn wake_in_tx(&self, tx: &mut Tx, id: &BranchId) -> Result<bool> {
        match self.store.budget_of_branch_in_tx(tx, id).await? {
            Some(used_up) => Err(used_up.error()),
            None => Ok(self.store.branch_wake_in_tx(tx, id, WOKEN_BY_REQUEST).await?),
        }
    }

    /// Changes what a branch is made of that is at rest.
    async fn set_spec_in_tx(&self, tx: &mut Tx, current: &Branch, new: &NewSpec) -> Result<()> {
        let NewSpec { spec, how, meanwhile } = new;
        match self.store.branch_set_spec_in_tx(tx, current, spec, *how, *meanwhile).await? {
            true => Ok(()),
            false => Err(busy(&current.id)),
        }
    }

    /// A branch with its instances.
    ///
    /// # Errors
    /// `project_not_found`, `branch_not_found`
    pub async fn describe(&self, access: &Access<InBranch>) -> Result<BranchDetails> {
        let branch = find_branch(&self.store, access).await?;
        let status = match branch.state {
            BranchState::Ready => InstanceStatus::Healthy,
            BranchState::Creating
            | BranchState::Waking
            | BranchState::Updating
            | BranchState::Upgrading
            | BranchState::Unknown => InstanceStatus::Starting,
            BranchState::Hibernating | BranchState::Hibernated | BranchState::Deleted => {
                InstanceStatus::Stopped
            }
            BranchState::Failed => InstanceStatus::Failed,
        };
        let replicas = self.store.replicas_of_branch(&branch.id).await?;
        let is_ready = |id: &InstanceId| replicas.iter().any(|one| one.instance == *id && one.is_ready);
        let instances = (1..=branch.spec.replicas + 1).map(|ordinal| {
            let instance = InstanceId::new(&branch.id, ordinal);
            let is_on_its_way =
                status == InstanceStatus::Healthy && !instance.is_primary() && !is_ready(&instance);
            let status = if is_on_its_way { InstanceStatus::Starting } else { status };
            (instance, status)
        });
        let instances = instances.collect();
        let activity = match branch.state {
            BranchState::Ready => Some(self.sleep.activity(&branch, 1).await?),
            _ => None,
        };
        let used_up = match branch.state {
            BranchState::Hibernating | BranchState::Hibernated => {
                self.store.budget_of_branch(&branch.id).await?
            }
            _ => None,
        };
        Ok(BranchDetails { branch, instances, activity, used_up })
    }
}

/// What its owner says of a branch from now on. Whether a branch can be deleted
/// is the project's business.
fn changed_note<'a>(
    access: &Access<InBranch>,
    current: &'a Branch,
    change: &'a BranchChange,
) -> Result<BranchNote<'a>> {
    let note = BranchNote {
        name: change.name.as_deref().unwrap_or(&current.name),
        description: change.description.as_deref().unwrap_or(&current.description),
        labels: match change.labels.is_empty() {
            true => Cow::Borrowed(&current.labels),
            false => Cow::Owned(checked_labels(&current.labels, &change.labels)?),
        },
        scale_to_zero: current.scale_to_zero.with(change.scale_to_zero),
        is_protected: change.is_protected.unwrap_or(current.is_protected),
        expires_at: match change.expiry {
            AskedExpiry::Unsaid => current.expires_at,
            AskedExpiry::Never => None,
            AskedExpiry::At(time) if Some(time) == current.expires_at => Some(time),
            AskedExpiry::At(time) => Some(checked_expiry(time)?),
        },
        backups: current.backups.with(change.backups),
    };
    let is_at_rest =
        matches!(current.state, BranchState::Ready | BranchState::Hibernated | BranchState::Failed);
    if note.backups != current.backups && !is_at_rest {
        return Err(busy(&current.id));
    }
    // What protection keeps, the past is a part of.
    let loses_past = note.backups.retention_days < current.backups.retention_days;
    if note.is_protected != current.is_protected || current.is_protected && loses_past {
        access.check(Scope::ProjectWrite)?;
    }
    if loses_past {
        check_fresh(&access.caller)?;
    }
    match (note.is_protected, note.expires_at) {
        (true, Some(_)) => Err(Error::Conflict {
            code: ErrorCode::BranchProtected,
            public: format!(
                "a protected branch does not expire: take the one or the other from branch {}, with `protected` \
                 false or `expiresAt` null",
                current.name
            ),
        }),
        _ => Ok(note),
    }
}

/// The labels of a branch after a change.
fn checked_labels(current: &Labels, change: &Labels) -> Result<Labels> {
    let labels = labels::changed(current, change);
    match labels.len() > LABELS_MAX {
        true => {
            let public =
                format!("labels accepts at most {LABELS_MAX} items: take some away with an empty value");
            Err(Error::invalid(ErrorCode::TooManyItems, public))
        }
        false => Ok(labels),
    }
}

/// When a branch is to be deleted, if that is in the future.
fn checked_expiry(time: DateTime<Utc>) -> Result<DateTime<Utc>> {
    match time > Utc::now() {
        true => Ok(time),
        false => Err(Error::invalid(ErrorCode::ExpiryInPast, "expiresAt must be in the future")),
    }
}

/// The complaint about a branch that is on its way from one state to another.
fn busy(id: &BranchId) -> Error {
    Error::Conflict { code: ErrorCode::BranchBusy, public: format!("branch {id} is being changed, retry") }
}

fn name_taken(error: StoreError, name: &str) -> Error {
    match error.is_unique_violation("branches_name") {
        true => has_name(name),
        false => error.into(),
    }
}

/// The complaint that another branch has a name.
fn has_name(name: &str) -> Error {
    Error::Conflict {
        code: ErrorCode::BranchNameTaken,
        public: format!("a branch named {name} already exists"),
    }
}
