//! Branches: what their owners want and what was last seen of them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::backup::BackupConfiguration;
use crate::image::PostgresVersion;
use crate::labels::Labels;
use crate::project::ScaleToZero;
use crate::storage::Fullness;
use crate::{ApiKeyId, BranchId, OrganizationId, ProjectId, RegionId, VolumeId};

/// What a branch is made of; changing it raises the generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchSpec {
    /// Where it runs.
    pub region: RegionId,
    /// The PostgreSQL release.
    pub version: PostgresVersion,
    /// Name of the instance type.
    pub instance_type: String,
    /// Instances besides the primary.
    pub replicas: u32,
    /// Largest size of the data, WAL and temporary files included, in GiB.
    pub storage_gib: u32,
    /// PostgreSQL parameters set by the user, over the defaults.
    pub parameters: BTreeMap<String, String>,
    /// Libraries preloaded on top of the platform's.
    pub preload_libraries: Vec<String>,
}

/// What the owner wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Instances run.
    Running,
    /// Instances are stopped, volumes are kept.
    Hibernated,
    /// As [`Goal::Hibernated`], and nobody sees it; it can be brought back.
    Trashed,
    /// Nothing is left.
    Deleted,
}

/// What was last observed of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BranchState {
    /// Never was ready yet.
    Creating,
    /// The primary accepts connections.
    Ready,
    /// On the way to [`BranchState::Hibernated`].
    Hibernating,
    /// No instance runs.
    Hibernated,
    /// On the way from stopped to [`BranchState::Ready`].
    Waking,
    /// Restarted with another configuration.
    Updating,
    /// Restarted with another release of PostgreSQL.
    Upgrading,
    /// Can't be brought up; the message says why. Still retried.
    Failed,
    /// Not observed yet after a start of the control plane.
    Unknown,
    /// Removed, or on the way there; invisible.
    Deleted,
}

names!(Goal {
    Running = "running",
    Hibernated = "hibernated",
    Trashed = "trashed",
    Deleted = "deleted",
});
names!(BranchState {
    Creating = "creating",
    Ready = "ready",
    Hibernating = "hibernating",
    Hibernated = "hibernated",
    Waking = "waking",
    Updating = "updating",
    Upgrading = "upgrading",
    Failed = "failed",
    Unknown = "unknown",
    Deleted = "deleted",
});

/// What a server needs to take another configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconfigure {
    /// To read its files again.
    Reload,
    /// To be started again.
    Restart,
}

names!(Reconfigure { Reload = "reload", Restart = "restart" });

impl BranchState {
    /// The text for people, as the API shows it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Creating => "Creating",
            Self::Ready => "Healthy",
            Self::Hibernating => "Hibernating",
            Self::Hibernated => "Hibernated",
            Self::Waking => "Waking up",
            Self::Updating => "Updating",
            Self::Upgrading => "Upgrading",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
            Self::Deleted => "Deleted",
        }
    }
}

/// A branch as the rest of the house sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// Its id.
    pub id: BranchId,
    /// The organization that owns the project.
    pub organization: OrganizationId,
    /// The project it belongs to.
    pub project: ProjectId,
    /// Unique among the project's branches.
    pub name: String,
    /// Empty when none was given.
    pub description: String,
    /// What it is told apart by.
    pub labels: Labels,
    /// The branch it was made from, unless that one is deleted.
    pub parent: Option<BranchId>,
    /// What it is made of.
    pub spec: BranchSpec,
    /// When it may sleep.
    pub scale_to_zero: ScaleToZero,
    /// Whether it can't be deleted, and does not expire.
    pub is_protected: bool,
    /// When it is deleted; none is never.
    pub expires_at: Option<DateTime<Utc>>,
    /// What is kept of what it was.
    pub backups: BackupConfiguration,
    /// What its owner wants.
    pub goal: Goal,
    /// Raised by every change of the spec or the goal.
    pub generation: i64,
    /// What was last observed.
    pub state: BranchState,
    /// Replicas that were seen to accept connections.
    pub ready_replicas: u32,
    /// Why, when that is not obvious; empty otherwise.
    pub message: String,
    /// How full its storage was when it was last measured.
    pub fullness: Fullness,
    /// The volume that holds its data now.
    pub volume: VolumeId,
    /// The volume that is to take its place.
    pub replacement: Option<VolumeId>,
    /// The managed role's password, encrypted.
    pub password_sealed: Vec<u8>,
    /// The key that it was made with, if that is still there.
    pub made_with: Option<ApiKeyId>,
    /// From when on it counts as idle, if nobody has used it since.
    pub idle_since: DateTime<Utc>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When its owner last changed it.
    pub updated_at: DateTime<Utc>,
}

impl Branch {
    /// Whether its primary accepts connections, and fewer replicas do than there
    /// should be.
    pub fn is_degraded(&self) -> bool {
        self.state == BranchState::Ready && self.ready_replicas < self.spec.replicas
    }

    /// How it is, for people.
    pub fn title(&self) -> &'static str {
        if self.is_degraded() { "Degraded" } else { self.state.title() }
    }

    /// Its instances that accept connections.
    pub fn ready_instances(&self) -> u32 {
        match self.state {
            BranchState::Ready => 1 + self.ready_replicas.min(self.spec.replicas),
            _ => 0,
        }
    }
}

/// A branch that was deleted and can be brought back.
#[derive(Clone, Debug, PartialEq)]
pub struct TrashedBranch {
    /// As it was.
    pub branch: Branch,
    /// When it was deleted.
    pub deleted_at: DateTime<Utc>,
    /// When its data is removed, if there is room until then.
    pub purge_at: DateTime<Utc>,
}

/// What a branch was until another volume took the place of its own. It can be
/// gone back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchVersion {
    /// The volume that held its data.
    pub volume: VolumeId,
    /// From when on it did.
    pub since: DateTime<Utc>,
    /// Until when it did.
    pub until: DateTime<Utc>,
    /// What was done then, for people.
    pub reason: String,
    /// When it is removed, if there is room until then.
    pub kept_until: DateTime<Utc>,
}

/// Begins what a branch says whose upgrade to another major version went well when it
/// was tried.
pub const TRIAL_PASSED: &str = "a trial upgrade passed, to PostgreSQL";

/// The role that owns the database of a branch.
pub const MANAGED_ROLE: &str = "app";
/// The role that statements are carried out as which may only read.
pub const READER_ROLE: &str = "coppice_reader";
/// The database clients connect to by default.
pub const MANAGED_DATABASE: &str = "app";
