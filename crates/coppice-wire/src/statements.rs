//! Statements on a branch.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Body of queryBranch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueryRequest {
    /// One statement.
    #[schema(example = "SELECT count(*) FROM orders", format = "sought", min_length = 1, max_length = 65536)]
    pub query: String,
    /// Where; without it, in `app`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "sought", min_length = 1, max_length = 63, example = "app")]
    pub database: Option<String>,
    /// Most rows in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    pub limit: Option<u32>,
    /// Longest time that it may take, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 15, default = 10)]
    pub timeout: Option<u32>,
}

/// Body of executeOnBranch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExecuteRequest {
    /// One statement.
    #[schema(
        example = "UPDATE orders SET paid = true WHERE id = 7",
        format = "sought",
        min_length = 1,
        max_length = 65536
    )]
    pub query: String,
    /// Where; without it, in `app`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "sought", min_length = 1, max_length = 63, example = "app")]
    pub database: Option<String>,
    /// Longest time that it may take, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 15, default = 10)]
    pub timeout: Option<u32>,
}

/// What a statement answered.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatementResult {
    /// In the order of the values of a row.
    pub columns: Vec<ResultColumn>,
    /// Values of each row; numbers, booleans, JSON and arrays are such, `bigint`, `numeric` and all else is text.
    #[schema(value_type = Vec<Vec<serde_json::Value>>)]
    pub rows: Box<RawValue>,
    /// Rows that it read or changed; none where that says nothing, or there are more.
    pub row_count: Option<u64>,
    /// Which kind of statement it was; none where there are more rows.
    #[schema(example = "SELECT")]
    pub command: Option<String>,
    /// Whether there are more rows than were asked for.
    pub truncated: bool,
}

/// A column of a result.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ResultColumn {
    /// Its name, which others may have, too.
    #[schema(example = "count")]
    pub name: String,
    /// The oid of its type.
    #[serde(rename = "dataTypeID")]
    #[schema(example = 20)]
    pub data_type_id: u32,
}
