//! Projects.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// When a branch without clients is put to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleToZeroSetting {
    /// Whether it is at all.
    #[schema(example = true)]
    pub enabled: bool,
    /// Minutes without a client session.
    #[schema(example = 30, minimum = 1, maximum = 10080)]
    pub inactivity_period_minutes: u32,
}

/// Defaults of scale-to-zero by kind of branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleToZeroConfiguration {
    /// For branches without a parent.
    pub base_branches: ScaleToZeroSetting,
    /// For branches with a parent.
    pub child_branches: ScaleToZeroSetting,
}

/// One range of client addresses that may connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CidrEntry {
    /// An address or a block of addresses, IPv4 or IPv6.
    #[schema(example = "203.0.113.0/24", min_length = 1, max_length = 64)]
    pub cidr: String,
    /// For people; empty when there is none.
    #[schema(example = "office", max_length = 100)]
    pub description: String,
}

/// A range of client addresses that may connect from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewCidrEntry {
    /// An address or a block of addresses, IPv4 or IPv6.
    #[schema(example = "203.0.113.0/24", min_length = 1, max_length = 64, format = "cidr")]
    pub cidr: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "office", max_length = 100, format = "remark")]
    pub description: Option<String>,
}

/// Which client addresses may connect to the branches of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IpFiltering {
    /// Off means: every address. On without any range admits nobody.
    pub enabled: bool,
    /// Allowed ranges.
    #[schema(max_items = 64)]
    pub cidr: Vec<CidrEntry>,
}

/// Settings of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectConfiguration {
    /// Defaults for new branches.
    pub scale_to_zero: ScaleToZeroConfiguration,
    /// Hours after which new branches with a parent are deleted, unless told otherwise; absent when they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = 168, minimum = 1, maximum = 8760)]
    pub child_expiry_hours: Option<u32>,
    /// For all branches.
    pub ip_filtering: IpFiltering,
}

/// A project: branches that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Project {
    /// Its id.
    #[schema(example = "prj_06gq0m2kj8fr3cjdr0h2qkv5s4", pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: String,
    /// Not unique.
    #[schema(example = "shop", min_length = 1, max_length = 128)]
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Its settings.
    pub configuration: ProjectConfiguration,
}

/// Answer of listProjects.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProjectList {
    /// Oldest first; only those the caller may see.
    pub projects: Vec<Project>,
}

/// A change of a scale-to-zero setting; what is absent stays.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleToZeroChange {
    /// Whether branches sleep at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = true)]
    pub enabled: Option<bool>,
    /// Minutes without a client session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = 30, minimum = 1, maximum = 10080)]
    pub inactivity_period_minutes: Option<u32>,
}

/// A change of the scale-to-zero defaults; what is absent stays.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleToZeroConfigurationChange {
    /// For branches without a parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_branches: Option<ScaleToZeroChange>,
    /// For branches with a parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_branches: Option<ScaleToZeroChange>,
}

/// A change of the address filter; what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct IpFilteringChange {
    /// Off means: every address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Replaces all ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub cidr: Option<Vec<NewCidrEntry>>,
}

/// A change of a project's settings; what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectConfigurationChange {
    /// Defaults for branches made later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_to_zero: Option<ScaleToZeroConfigurationChange>,
    /// Hours after which branches with a parent that are made later are deleted, unless told otherwise; 0 is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 168, minimum = 0, maximum = 8760)]
    pub child_expiry_hours: Option<u32>,
    /// For all branches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_filtering: Option<IpFilteringChange>,
}

/// Body of createProject.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CreateProject {
    /// Its name; need not be unique.
    #[schema(example = "shop", min_length = 1, max_length = 128, format = "name")]
    pub name: String,
    /// Settings other than the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ProjectConfigurationChange>,
}

/// Body of updateProject.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct UpdateProject {
    /// The new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "shop", min_length = 1, max_length = 128, format = "name")]
    pub name: Option<String>,
    /// Settings to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ProjectConfigurationChange>,
}
