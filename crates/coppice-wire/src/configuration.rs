//! PostgreSQL parameters of a branch.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer of getBranchPostgresConfig.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PostgresConfig {
    /// By section, then by name.
    pub parameters: Vec<PostgresParameter>,
}

/// A PostgreSQL parameter as it stands on a branch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostgresParameter {
    /// Its name.
    #[schema(example = "work_mem")]
    pub name: String,
    /// How its values are written.
    #[serde(rename = "type")]
    pub kind: PostgresParameterType,
    /// What it does.
    #[schema(
        example = "Memory that one sort or hash of a statement may use before it goes to temporary files."
    )]
    pub description: String,
    /// What it is about.
    pub section: PostgresParameterSection,
    /// What it is when nobody sets it.
    #[schema(example = "4MB")]
    pub default_value: String,
    /// Where the default comes from.
    pub default_value_source: DefaultValueSource,
    /// What it is set to, also while that waits for a restart.
    #[schema(example = "16MB")]
    pub current_value: String,
    /// Its entry in the manual of this version.
    #[schema(example = "https://www.postgresql.org/docs/17/runtime-config-resource.html#GUC-WORK-MEM")]
    pub documentation_link: String,
    /// Another value, and what the server counted that speaks for it; empty when nothing does.
    #[schema(example = "32MB: 120 sorts or hashes went to temporary files, 9MB each on average")]
    pub recommendation: String,
    /// Which values it takes.
    pub acceptable_range: AcceptableRange,
    /// Whether a change restarts the server.
    pub restart_required: bool,
}

/// Which values a parameter takes; empty when any of its type will do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AcceptableRange {
    /// The lowest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "64kB")]
    pub min_value: Option<String>,
    /// The highest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1GB")]
    pub max_value: Option<String>,
    /// One of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["on", "off"]))]
    pub enum_values: Vec<String>,
}

/// How the values of a parameter are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PostgresParameterType {
    /// Any text.
    String,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// A whole number with B, kB, MB, GB or TB.
    Bytes,
    /// One of a few words.
    Enum,
    /// A whole number with ms, s, min, h or d.
    Duration,
    /// on or off.
    Boolean,
}

/// What a parameter is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum PostgresParameterSection {
    /// Sessions and how long they may wait.
    Connections,
    /// Memory, and what is measured.
    #[serde(rename = "Resource consumption")]
    ResourceConsumption,
    /// How statements are planned.
    Planner,
    /// What is done at the same time.
    #[serde(rename = "Async behavior")]
    AsyncBehavior,
    /// The write-ahead log.
    #[serde(rename = "WAL")]
    Wal,
    /// Libraries.
    Extensions,
}

/// Where a default comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DefaultValueSource {
    /// PostgreSQL itself.
    Postgres,
    /// Chosen for the size of the instance.
    InstanceType,
}
