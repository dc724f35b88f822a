//! Bodies of the HTTP API, shared by the server, the command line and tests.
//!
//! **Owns** names and shapes on the wire.
//! **Must not know** tables, processes or rules.
//! **Start reading** at [`Branch`].

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// A time on the wire: RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp(pub DateTime<Utc>);

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DateTime::<Utc>::deserialize(deserializer).map(Self)
    }
}

/// The body of every error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// For people; may change.
    pub message: String,
    /// Stable code, for programs.
    pub id: String,
}

/// When a branch without clients is put to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleToZeroSetting {
    /// Whether it is at all.
    pub enabled: bool,
    /// Minutes without a client session.
    pub inactivity_period_minutes: u32,
}

/// Defaults of scale-to-zero by kind of branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleToZeroConfiguration {
    /// For branches without a parent.
    pub base_branches: ScaleToZeroSetting,
    /// For branches with a parent.
    pub child_branches: ScaleToZeroSetting,
}

/// One range of addresses that may connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CidrEntry {
    /// Address or block.
    pub cidr: String,
    /// For people.
    pub description: String,
}

/// Which addresses may connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpFiltering {
    /// Off means: every address.
    pub enabled: bool,
    /// Allowed ranges.
    pub cidr: Vec<CidrEntry>,
}

/// Settings of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectConfiguration {
    /// Defaults for new branches.
    pub scale_to_zero: ScaleToZeroConfiguration,
    /// For all branches.
    pub ip_filtering: IpFiltering,
}

/// A project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Project {
    /// Its id.
    pub id: String,
    /// Not unique.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Its settings.
    pub configuration: ProjectConfiguration,
}

/// Answer of listProjects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProjectList {
    /// Oldest first.
    pub projects: Vec<Project>,
}

/// A region.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Region {
    /// Its id.
    pub id: String,
    /// Whether its databases are reachable from the internet.
    pub public_access: bool,
    /// Whether branches there are backed up.
    pub backups_enabled: bool,
    /// `aws`, `gcp` or `custom`.
    pub provider: String,
    /// The only organization that sees it, if there is one.
    pub organization_id: Option<String>,
}

/// Answer of listRegions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegionList {
    /// By id.
    pub regions: Vec<Region>,
}

/// A size with its price.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    /// Its name.
    pub name: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// GiB.
    pub ram: u32,
    /// USD per instance and hour.
    pub hourly_rate: f64,
    /// USD per GiB and month.
    pub storage_monthly_rate: f64,
    /// Where it is offered.
    pub region: String,
}

/// Answer of listInstanceTypes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceTypeList {
    /// By region, then size.
    pub instance_types: Vec<InstanceType>,
}

/// A PostgreSQL release.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// For example `postgres:17.6`.
    pub name: String,
    /// For example `17`.
    pub major_version: String,
    /// For example `17.6`.
    pub full_version: String,
    /// Where it is offered.
    pub region: Vec<String>,
}

/// Answer of listImages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImageList {
    /// Newest first.
    pub images: Vec<Image>,
}

/// A branch. Which optional fields are there depends on the operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Branch {
    /// Its id.
    pub id: String,
    /// Unique in the project.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its owner last changed it.
    pub updated_at: Timestamp,
    /// Where it runs.
    pub region: String,
    /// Whether the region is reachable from the internet.
    pub public_access: bool,
    /// Empty when there is none.
    pub description: String,
    /// The branch it was made from.
    #[serde(rename = "parentID")]
    pub parent_id: Option<String>,
    /// Not in the short view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backups_enabled: Option<bool>,
    /// Not in lists; null without the right to read credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_string: Option<Option<String>>,
    /// In the full view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<BranchStatus>,
    /// In the full view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_to_zero: Option<ScaleToZeroSetting>,
    /// In the full view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ClusterConfiguration>,
}

/// Answer of listBranches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BranchList {
    /// Oldest first.
    pub branches: Vec<Branch>,
}

/// What a branch is doing.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchStatus {
    /// For people.
    pub status: String,
    /// For programs.
    pub status_type: String,
    /// As `status`, with the reason of a failure.
    pub message: String,
    /// Deprecated.
    pub lifecycle: Lifecycle,
    /// Instances there should be.
    pub instance_count: u32,
    /// Instances that are ready.
    pub instance_ready_count: u32,
    /// By id.
    pub instances: Vec<InstanceStatus>,
}

/// Deprecated state of a branch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lifecycle {
    /// The state.
    pub state: String,
    /// In more detail.
    pub phase: String,
}

/// What one instance is doing.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// Its id.
    pub id: String,
    /// `healthy`, `starting`, `stopped` or `failed`.
    pub status: String,
    /// Whether it takes writes.
    pub primary: bool,
    /// Whether it takes writes or is about to.
    pub target_primary: bool,
}

/// What a branch is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConfiguration {
    /// Where it runs.
    pub region: String,
    /// Its size.
    pub instance_type: String,
    /// `postgres:<version>`
    pub image: String,
    /// Instances besides the primary.
    pub replicas: u32,
    /// GiB.
    pub storage: u32,
    /// Set by the user.
    pub postgres_configuration_parameters: std::collections::BTreeMap<String, String>,
    /// Preloaded on top of the platform's.
    pub preload_libraries: Vec<String>,
}

/// How to connect.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchCredentials {
    /// The role.
    pub username: String,
    /// Its password.
    pub password: String,
    /// Where the gateway is.
    pub hostname: String,
    /// Its port.
    pub port: u16,
    /// The database.
    pub dbname: String,
    /// All of it as one URL.
    pub connection_string: String,
}

impl std::fmt::Debug for BranchCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BranchCredentials").field("username", &self.username).finish_non_exhaustive()
    }
}
