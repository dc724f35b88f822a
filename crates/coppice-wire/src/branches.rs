//! Branches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::Schema;
use utoipa::openapi::schema::{ObjectBuilder, SchemaFormat, SchemaType, Type};

use crate::{
    BackupConfiguration, BackupConfigurationChange, Expiry, ScaleToZeroChange, ScaleToZeroSetting, Timestamp,
};

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

/// What a branch without a parent shall be made of.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomConfiguration {
    /// Where it shall run.
    #[schema(example = "local", format = "looked-up")]
    pub region: String,
    /// Its size, from listInstanceTypes.
    #[schema(example = "micro", format = "looked-up")]
    pub instance_type: String,
    /// PostgreSQL and its version; `postgres:17` is the newest 17.
    #[schema(example = "postgres:17", format = "looked-up")]
    pub image: String,
    /// Instances besides the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 0, minimum = 0, maximum = 4)]
    pub replicas: Option<u32>,
    /// Most storage, in GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 10, minimum = 1, maximum = 65536)]
    pub storage: Option<u32>,
    /// Parameters over the defaults, from getBranchPostgresConfig; at most 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = first_parameters)]
    pub postgres_configuration_parameters: Option<BTreeMap<String, String>>,
    /// Libraries that every session shall have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["pg_stat_statements"]), max_items = 50, format = "looked-up")]
    pub preload_libraries: Option<Vec<String>>,
}

/// Body of createBranch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum CreateBranch {
    /// A copy of another branch, as it is now or was at a moment.
    Inherit(InheritBranch),
    /// An empty database.
    Custom(CustomBranch),
}

/// A copy of another branch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InheritBranch {
    /// Unique in the project.
    #[schema(example = "pr-12", min_length = 1, max_length = 255, format = "name")]
    pub name: String,
    /// The branch to copy.
    #[serde(rename = "parentID")]
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0", pattern = "^[A-Za-z0-9_-]{1,64}$", format = "id")]
    pub parent_id: String,
    /// What shall be otherwise than there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<InheritedConfiguration>,
    /// The time to copy it as of, within the window of getBranchHistory; without it, now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_time: Option<Timestamp>,
    /// Instead of a time, a place in its write-ahead log, as `pg_current_wal_insert_lsn()` tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0/3000060", max_length = 17, format = "looked-up")]
    pub target_lsn: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "PR 12",
        max_length = 50,
        pattern = "^([a-zA-Z0-9]+[a-zA-Z0-9- ]*)?$",
        format = "description"
    )]
    pub description: Option<String>,
    /// When it may sleep, if not as the project says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_to_zero: Option<ScaleToZeroChange>,
    /// What shall be kept of what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_configuration: Option<BackupConfigurationChange>,
    /// When it shall be deleted; null is never, and absent is when the project says (`childExpiryHours`), or never.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::time::said")]
    #[schema(value_type = Option<Expiry>)]
    pub expires_at: Option<Option<Expiry>>,
}

/// What a copy shall have otherwise than its parent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InheritedConfiguration {
    /// Its size, from listInstanceTypes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "small", format = "looked-up")]
    pub instance_type: Option<String>,
    /// A later release of the same major version; `postgres:17` is the newest 17.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "postgres:17", format = "looked-up")]
    pub image: Option<String>,
    /// Most storage, in GiB; no less than that of its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 20, minimum = 1, maximum = 65536)]
    pub storage: Option<u32>,
    /// PostgreSQL parameters over those of its parent; a default takes the choice away. At most 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = changed_parameters)]
    pub postgres_configuration_parameters: Option<BTreeMap<String, String>>,
    /// All libraries that every session shall have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["pg_stat_statements"]), max_items = 50, format = "looked-up")]
    pub preload_libraries: Option<Vec<String>>,
}

/// A branch with an empty database.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomBranch {
    /// Unique in the project.
    #[schema(example = "main", min_length = 1, max_length = 255, format = "name")]
    pub name: String,
    /// What it shall be made of.
    pub configuration: CustomConfiguration,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "production",
        max_length = 50,
        pattern = "^([a-zA-Z0-9]+[a-zA-Z0-9- ]*)?$",
        format = "description"
    )]
    pub description: Option<String>,
    /// When it may sleep, if not as the project says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_to_zero: Option<ScaleToZeroChange>,
    /// What shall be kept of what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_configuration: Option<BackupConfigurationChange>,
    /// When it shall be deleted, if it shall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Expiry>,
}

/// Body of updateBranch; what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateBranch {
    /// Its new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "main", min_length = 1, max_length = 255, format = "name")]
    pub name: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "production",
        max_length = 50,
        pattern = "^([a-zA-Z0-9]+[a-zA-Z0-9- ]*)?$",
        format = "description"
    )]
    pub description: Option<String>,
    /// When it may sleep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_to_zero: Option<ScaleToZeroChange>,
    /// True lets nobody delete it, nor its project, and time neither. To change it needs the scope `project:write`, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = false)]
    pub protected: Option<bool>,
    /// When it is deleted; null is never.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::time::said")]
    #[schema(value_type = Option<Expiry>)]
    pub expires_at: Option<Option<Expiry>>,
    /// What is kept of what it was; at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_configuration: Option<BackupConfigurationChange>,
    /// True puts it to sleep, false wakes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = true)]
    pub hibernate: Option<bool>,
    /// Most storage, in GiB; may only grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = 20, minimum = 1, maximum = 65536)]
    pub storage: Option<u32>,
    /// Its size, from listInstanceTypes; restarts the server. Parameters that were not chosen follow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "small", format = "looked-up")]
    pub instance_type: Option<String>,
    /// A later release of the same major version; `postgres:17` is the newest 17. Restarts the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "postgres:17", format = "looked-up")]
    pub image: Option<String>,
    /// PostgreSQL parameters over those it has; a default takes the choice away. At most 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = changed_parameters)]
    pub postgres_configuration_parameters: Option<BTreeMap<String, String>>,
    /// All libraries that every session shall have; restarts the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["pg_stat_statements"]), max_items = 50, format = "looked-up")]
    pub preload_libraries: Option<Vec<String>>,
}

fn first_parameters() -> Schema {
    parameters("Parameters over the defaults, from getBranchPostgresConfig; at most 200.")
}

fn changed_parameters() -> Schema {
    parameters("PostgreSQL parameters over those it has; a default takes the choice away. At most 200.")
}

/// A refusal names every parameter that is wrong; there are far fewer that can be set.
fn parameters(description: &str) -> Schema {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let value = text().format(Some(SchemaFormat::Custom("looked-up".to_owned())));
    let mut object = ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .description(Some(description))
        .property_names(Some(text()))
        .additional_properties(Some(value))
        .max_properties(Some(200))
        .build();
    object.example = Some(json!({ "work_mem": "16MB" }));
    object.into()
}

/// Body of rotateBranchCredentials.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RotateCredentials {
    /// The managed role, in either of its forms.
    #[schema(example = "app", format = "looked-up")]
    pub username: String,
}

/// How to connect to a branch.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchCredentials {
    /// The role, with the branch's suffix where host names don't lead to branches.
    #[schema(example = "app.kq7m2kj8fr3cjdr0h2qkv5s4c0")]
    pub username: String,
    /// Its password.
    #[schema(example = "RiLmDt0AshPhAMXRBDVC3JSc9c9bN1yF", format = "password")]
    pub password: String,
    /// Where the gateway is.
    #[schema(example = "127.0.0.1")]
    pub hostname: String,
    /// Its port.
    #[schema(example = 7432, minimum = 1, maximum = 65535)]
    pub port: u16,
    /// The database.
    #[schema(example = "app")]
    pub dbname: String,
    /// All of it as one URL.
    #[schema(example = "postgresql://app.kq7m2kj8fr3cjdr0h2qkv5s4c0:secret@127.0.0.1:7432/app")]
    pub connection_string: String,
}

impl std::fmt::Debug for BranchCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BranchCredentials").field("username", &self.username).finish_non_exhaustive()
    }
}
