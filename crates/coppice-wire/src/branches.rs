//! Branches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BackupConfiguration, Expiry, ScaleToZeroSetting, Timestamp};

/// A branch in a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedBranch {
    /// Its id; also the DNS label and the user name suffix that lead to it.
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0", pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: String,
    /// Unique in the project.
    #[schema(example = "main", min_length = 1, max_length = 255)]
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its owner last changed it.
    pub updated_at: Timestamp,
    /// Where it runs.
    #[schema(example = "local")]
    pub region: String,
    /// Whether the region is reachable from the internet.
    pub public_access: bool,
    /// Whether the region makes backups.
    pub backups_enabled: bool,
    /// What it is for; empty when there is none.
    #[schema(example = "PR 12", max_length = 50)]
    pub description: String,
    /// The branch it was made from; null for a base branch, and when that one is deleted.
    #[serde(rename = "parentID")]
    #[schema(required)]
    pub parent_id: Option<String>,
    /// What it is told apart by, beside its name; absent when it has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false, example = json!({ "team": "shop" }))]
    pub labels: BTreeMap<String, String>,
    /// True when it can't be deleted, and does not expire.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub protected: bool,
    /// When it is deleted; absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub expires_at: Option<Expiry>,
}

/// Answer of listBranches.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BranchList {
    /// Oldest first; only those the caller may see.
    pub branches: Vec<ListedBranch>,
}

/// A branch, as the operations that make and change it answer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Branch {
    /// Its id; also the DNS label and the user name suffix that lead to it.
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0", pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: String,
    /// Unique in the project.
    #[schema(example = "main", min_length = 1, max_length = 255)]
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its owner last changed it.
    pub updated_at: Timestamp,
    /// Where it runs.
    #[schema(example = "local")]
    pub region: String,
    /// Whether the region is reachable from the internet.
    pub public_access: bool,
    /// What it is for; empty when there is none.
    #[schema(example = "PR 12", max_length = 50)]
    pub description: String,
    /// The branch it was made from; null for a base branch, and when that one is deleted.
    #[serde(rename = "parentID")]
    #[schema(required)]
    pub parent_id: Option<String>,
    /// How to connect; null unless both the credential and the role allow credentials:read. Ask for the credentials instead.
    #[schema(required, deprecated)]
    pub connection_string: Option<String>,
}

/// A branch with everything that is known about it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchDetails {
    /// What every answer on one branch has.
    #[serde(flatten)]
    pub branch: Branch,
    /// What it is told apart by, beside its name; absent when it has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false, example = json!({ "team": "shop" }))]
    pub labels: BTreeMap<String, String>,
    /// True when it can't be deleted, and does not expire.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub protected: bool,
    /// When it is deleted; absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub expires_at: Option<Expiry>,
    /// Whether the region makes backups.
    pub backups_enabled: bool,
    /// What is kept of what it was; absent where no backups are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub backup_configuration: Option<BackupConfiguration>,
    /// What it is doing.
    pub status: BranchStatus,
    /// When it may sleep.
    pub scale_to_zero: ScaleToZeroSetting,
    /// What it is made of.
    pub configuration: ClusterConfiguration,
}

/// What a branch is doing, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum BranchStatusType {
    /// Not looked at yet.
    #[serde(rename = "STATUS_TYPE_UNSPECIFIED")]
    Unspecified,
    /// Accepts connections.
    #[serde(rename = "STATUS_TYPE_HEALTHY")]
    Healthy,
    /// On its way from one state to another.
    #[serde(rename = "STATUS_TYPE_TRANSIENT")]
    Transient,
    /// Can't be brought up.
    #[serde(rename = "STATUS_TYPE_FAULT")]
    Fault,
    /// Asleep.
    #[serde(rename = "STATUS_TYPE_HIBERNATED")]
    Hibernated,
}

/// Deprecated word for what a branch is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LifecycleState {
    /// Up, or asleep.
    Ready,
    /// On its way up.
    Creating,
    /// Being changed.
    Updating,
    /// Getting another release of PostgreSQL.
    Upgrading,
    /// None of these.
    Unknown,
}

/// Deprecated state of a branch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Lifecycle {
    /// The state.
    pub state: LifecycleState,
    /// Why, when that is not obvious.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
    /// In more detail.
    #[schema(example = "Healthy")]
    pub phase: String,
}

/// What one instance is doing, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstanceState {
    /// Accepts connections.
    Healthy,
    /// On its way up.
    Starting,
    /// Does not run.
    Stopped,
    /// Can't be brought up.
    Failed,
}

/// What one instance is doing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// Its id.
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0-1")]
    pub id: String,
    /// What it is doing.
    pub status: InstanceState,
    /// Whether it takes writes.
    pub primary: bool,
    /// Whether it takes writes or is about to.
    pub target_primary: bool,
}

/// What a branch is doing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchStatus {
    /// For people.
    #[schema(example = "Healthy")]
    pub status: String,
    /// For programs; the field to wait on.
    pub status_type: BranchStatusType,
    /// As `status`, with the reason of a failure, or who last woke it.
    #[schema(example = "Healthy", deprecated)]
    pub message: String,
    /// The older form of `statusType`.
    #[schema(deprecated)]
    pub lifecycle: Lifecycle,
    /// Instances there should be.
    #[schema(example = 1, minimum = 1, maximum = 5)]
    pub instance_count: u32,
    /// Instances that accept connections.
    #[schema(example = 1, minimum = 0, maximum = 5)]
    pub instance_ready_count: u32,
    /// By id.
    pub instances: Vec<InstanceStatus>,
}

/// What a branch is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConfiguration {
    /// Where it runs.
    #[schema(example = "local")]
    pub region: String,
    /// Its size.
    #[schema(example = "small")]
    pub instance_type: String,
    /// PostgreSQL and its version.
    #[schema(example = "postgres:17.6")]
    pub image: String,
    /// Instances besides the primary.
    #[schema(example = 0, minimum = 0, maximum = 4)]
    pub replicas: u32,
    /// Most storage, in GiB.
    #[schema(example = 10, minimum = 1)]
    pub storage: u32,
    /// Set by the owner, over the defaults.
    #[schema(example = json!({ "work_mem": "16MB" }))]
    pub postgres_configuration_parameters: BTreeMap<String, String>,
    /// Libraries that every session has.
    #[schema(example = json!(["pg_stat_statements", "auto_explain"]))]
    pub preload_libraries: Vec<String>,
}
