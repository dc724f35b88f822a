//! What organizations use.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// What is told apart in an answer of getUsage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UsageGroup {
    /// Projects.
    Project,
    /// Branches, with their projects.
    Branch,
    /// Instance types.
    Type,
    /// Hours in UTC.
    Hour,
    /// Days in UTC.
    Day,
    /// Months in UTC.
    Month,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UsageMeter {
    /// Hours of instances whose branch was to be awake.
    Awake,
    /// Hours of branches that slept, in the trash or not.
    Asleep,
    /// Bytes that files of branches took and no other branch pays for, for how long.
    Storage,
    /// Bytes that files of branches share with the branch they were made from, which
    /// pays for them, for how long.
    Shared,
    /// Bytes that clients were sent.
    Egress,
}

/// How an answer of getUsage looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UsageFormat {
    /// As the document shows it.
    Json,
    /// A table with the columns of FOCUS.
    Csv,
}

/// What was used of one thing. What is not told apart is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// The project; also one that is deleted.
    #[serde(rename = "projectID")]
    #[schema(required, example = "prj_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub project_id: Option<String>,
    /// What it was last called.
    #[schema(required, example = "shop")]
    pub project_name: Option<String>,
    /// The branch; also one that is deleted.
    #[serde(rename = "branchID")]
    #[schema(required, example = "kq7m2kj8fr3cjdr0h2qkv5s4c0")]
    pub branch_id: Option<String>,
    /// What it was last called.
    #[schema(required, example = "main")]
    pub branch_name: Option<String>,
    /// When the hour, day or month began; the first and the last may be parts of one.
    #[schema(required)]
    pub began_at: Option<Timestamp>,
    /// The instance type; only where instances are counted.
    #[schema(required, example = "small")]
    pub instance_type: Option<String>,
    /// What is counted.
    pub meter: UsageMeter,
    /// How much, with six decimals.
    #[schema(example = "744.000000")]
    pub quantity: String,
    /// Of what: `instance-hours`, `hours`, `GiB-hours`, `GiB`.
    #[schema(example = "instance-hours")]
    pub unit: String,
    /// What it costs, with six decimals; null where nobody is charged.
    #[schema(required, example = "14.880000")]
    pub cost: Option<String>,
}

/// Answer of getUsage.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// From when on: a full hour.
    pub from: Timestamp,
    /// Until when: a full hour, which is not part of it.
    pub to: Timestamp,
    /// What was used before is certain; the rest may still become a little more or less.
    pub sealed_until: Timestamp,
    /// What is told apart.
    pub group_by: Vec<UsageGroup>,
    /// By time, project, branch, meter and instance type.
    pub rows: Vec<UsageRow>,
    /// In what costs are, by ISO 4217; null where nobody is charged.
    #[schema(required, example = "EUR")]
    pub currency: Option<String>,
    /// The sum of the costs; null where nobody is charged.
    #[schema(required, example = "14.880000")]
    pub total: Option<String>,
}
