//! What organizations use.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// What is told apart in an answer of getUsage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum UsageGroup {
    /// Projects.
    Project,
    /// Branches, with their projects.
    Branch,
    /// Values of the label with this key.
    Label(String),
    /// All labels of branches together.
    Labels,
    /// Instance types.
    Type,
    /// Hours in UTC.
    Hour,
    /// Days in UTC.
    Day,
    /// Months in UTC.
    Month,
}

impl Display for UsageGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project => f.write_str("project"),
            Self::Branch => f.write_str("branch"),
            Self::Label(key) => write!(f, "label:{key}"),
            Self::Labels => f.write_str("labels"),
            Self::Type => f.write_str("type"),
            Self::Hour => f.write_str("hour"),
            Self::Day => f.write_str("day"),
            Self::Month => f.write_str("month"),
        }
    }
}

impl FromStr for UsageGroup {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "project" => Ok(Self::Project),
            "branch" => Ok(Self::Branch),
            "labels" => Ok(Self::Labels),
            "type" => Ok(Self::Type),
            "hour" => Ok(Self::Hour),
            "day" => Ok(Self::Day),
            "month" => Ok(Self::Month),
            other => match other.strip_prefix("label:") {
                Some(key) if !key.is_empty() => Ok(Self::Label(key.to_owned())),
                _ => Err("must be project, branch, label:KEY, labels, type, hour, day or month"),
            },
        }
    }
}

impl From<UsageGroup> for String {
    fn from(group: UsageGroup) -> Self {
        group.to_string()
    }
}

impl TryFrom<String> for UsageGroup {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
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
    /// The labels that the branch had then: those that are told apart, as far as it had them.
    #[schema(required, example = json!({ "team": "shop" }))]
    pub labels: Option<BTreeMap<String, String>>,
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
    /// What is told apart: `project`, `branch`, `label:KEY`, `labels`, `type`, `hour`, `day` or `month`.
    #[schema(value_type = Vec<String>, example = json!(["project", "label:team"]))]
    pub group_by: Vec<UsageGroup>,
    /// By time, project, branch, labels, meter and instance type.
    pub rows: Vec<UsageRow>,
    /// In what costs are, by ISO 4217; null where nobody is charged.
    #[schema(required, example = "EUR")]
    pub currency: Option<String>,
    /// The sum of the costs; null where nobody is charged.
    #[schema(required, example = "14.880000")]
    pub total: Option<String>,
}
