//! What can be had where, and how much of it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whose machines a region is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RegionProvider {
    /// Amazon's.
    Aws,
    /// Google's.
    Gcp,
    /// The operator's own.
    Custom,
}

/// A place where branches can be made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Region {
    /// Its id.
    #[schema(example = "local", pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    pub id: String,
    /// Whether its databases are reachable from the internet.
    pub public_access: bool,
    /// Whether branches there are backed up.
    pub backups_enabled: bool,
    /// Whose machines it is made of.
    pub provider: RegionProvider,
    /// The only organization that sees it; null is everybody.
    #[schema(required)]
    pub organization_id: Option<String>,
}

/// Answer of listRegions.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegionList {
    /// By id.
    pub regions: Vec<Region>,
}

/// A size, with its price where there is a price list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    /// Its name.
    #[schema(example = "small")]
    pub name: String,
    /// Virtual CPUs.
    #[schema(example = 1, minimum = 1)]
    pub vcpus: u32,
    /// Memory in GiB.
    #[schema(example = 2, minimum = 1)]
    pub ram: u32,
    /// What an instance costs for an hour, in the currency of the price list; 0 when nobody is charged for it.
    #[schema(example = 0.02, minimum = 0)]
    pub hourly_rate: f64,
    /// What a GiB of storage costs for a month, in the same way.
    #[schema(example = 0.25, minimum = 0)]
    pub storage_monthly_rate: f64,
    /// Where it is offered.
    #[schema(example = "local")]
    pub region: String,
}

/// Answer of listInstanceTypes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceTypeList {
    /// By region, then size.
    pub instance_types: Vec<InstanceType>,
}

/// A PostgreSQL release.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Its name in requests.
    #[schema(example = "postgres:17.6")]
    pub name: String,
    /// Its major version.
    #[schema(example = "17")]
    pub major_version: String,
    /// Its whole version.
    #[schema(example = "17.6")]
    pub full_version: String,
    /// Where it is offered.
    #[schema(example = json!(["local"]))]
    pub region: Vec<String>,
}

/// Answer of listImages.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImageList {
    /// Newest first.
    pub images: Vec<Image>,
}

/// What an extension is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExtensionKind {
    /// Made in a database by `CREATE EXTENSION`.
    Extension,
    /// Used by logical decoding.
    Plugin,
    /// A library that is loaded, without objects in a database.
    Module,
}

/// An extension that an image brings.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Extension {
    /// Its name.
    #[schema(example = "pg_trgm")]
    pub name: String,
    /// The version that is installed by default; empty for a module.
    #[schema(example = "1.6")]
    pub version: String,
    /// What it does, in a sentence.
    #[schema(example = "text similarity measurement and index searching based on trigrams")]
    pub description: String,
    /// Where it is documented; empty when unknown.
    #[schema(example = "https://www.postgresql.org/docs/17/pgtrgm.html")]
    pub docs: String,
    /// Whether it has to be among a branch's preload libraries.
    pub preload_required: bool,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: ExtensionKind,
}

/// Answer of listExtensions.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExtensionList {
    /// By name.
    pub extensions: Vec<Extension>,
}

/// Answer of getDefaultProjectLimits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectLimits {
    /// Most instances of a branch.
    #[schema(example = 5)]
    pub max_instances: u32,
    /// Fewest instances of a branch.
    #[schema(example = 1)]
    pub min_instances: u32,
    /// Longest description of a branch.
    #[schema(example = 50)]
    pub max_description_length: u32,
    /// Most branches of a project.
    #[schema(example = 100)]
    pub max_branches: u32,
}

/// Answer of getProjectLimits: what holds for one project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveProjectLimits {
    /// Longest description of a branch.
    #[schema(example = 50)]
    pub max_description_length: u32,
    /// Most branches of a project.
    #[schema(example = 100)]
    pub max_branches_per_project: u32,
    /// Most instances of a branch.
    #[schema(example = 5)]
    pub max_instances_per_branch: u32,
    /// Fewest instances of a branch.
    #[schema(example = 1)]
    pub min_instances_per_branch: u32,
    /// Largest instance type, in thousandths of a virtual CPU.
    #[schema(example = 32000)]
    pub max_allowed_instance_type: u32,
    /// Most branches made within an hour.
    #[schema(example = 200)]
    pub max_branches_per_hour: u32,
    /// Most storage of a branch in GiB; 0 is no limit.
    #[serde(rename = "maxStorageGBPerBranch")]
    #[schema(example = 250)]
    pub max_storage_gb_per_branch: u32,
}

/// Answer of getOrganizationLimits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrganizationLimits {
    /// What holds for each of its projects.
    #[serde(flatten)]
    pub project: EffectiveProjectLimits,
    /// Most projects.
    #[schema(example = 100)]
    pub max_projects: u32,
    /// Most projects made within an hour.
    #[schema(example = 200)]
    pub max_projects_per_hour: u32,
    /// Most branches of all its projects.
    #[schema(example = 500)]
    pub max_branches_per_org: u32,
}

/// Answer of getOrganizationMembershipLimits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrganizationMembershipLimits {
    /// Most members.
    #[schema(example = 100)]
    pub max_members: u32,
    /// Most pending invitations.
    #[schema(example = 50)]
    pub max_invites: u32,
}
