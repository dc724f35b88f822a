//! What servers have logged.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// Body of branchLogs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BranchLogsRequest {
    /// The earliest time.
    pub start: Timestamp,
    /// The first time that is too late.
    pub end: Timestamp,
    /// All of them have to match. What they look for in bodies has at most 32768 characters together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 20)]
    pub filters: Option<Vec<LogFilter>>,
    /// Most entries in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 200, default = 100)]
    pub limit: Option<u32>,
    /// `nextCursor` of an answer to the same question; empty or absent is the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "looked-up")]
    pub cursor: Option<String>,
}

/// A condition on entries. One of its texts has to match; without any, or with
/// an empty `value`, everything does.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LogFilter {
    /// What is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(default = "body")]
    pub field: Option<LogField>,
    /// How: `in` is for instance, level and process, the others are for the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<LogOperator>,
    /// Texts of 1 to 256 characters, of which one has to match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 100, min_length = 1, max_length = 256)]
    pub values: Option<Vec<String>>,
    /// One more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "deadlock", max_length = 1024)]
    pub value: Option<String>,
}

/// What of an entry a filter looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogField {
    /// The id of the instance.
    Instance,
    /// The level.
    Level,
    /// The kind of process.
    Process,
    /// The message.
    Body,
}

/// How a filter compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogOperator {
    /// The same text.
    In,
    /// Contains the text.
    Contains,
    /// Contains the text, in whatever case; the usual one for messages.
    Icontains,
    /// Matches the regular expression (without look-around and back references).
    Regex,
    /// As `regex`, in whatever case.
    Iregex,
}

/// Answer of branchLogs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchLogs {
    /// As it was asked for.
    #[schema(format = DateTime, example = "2026-01-02T03:00:00Z")]
    pub start: String,
    /// As it was asked for.
    #[schema(format = DateTime, example = "2026-01-02T04:00:00Z")]
    pub end: String,
    /// Newest first.
    pub logs: Vec<LogEntry>,
    /// Asks for the next page; null on the last one.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogEntry {
    /// When it was written.
    pub timestamp: Timestamp,
    /// The instance that wrote it.
    #[serde(rename = "instanceID")]
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0-1")]
    pub instance_id: String,
    /// What it says, with `DETAIL:`, `HINT:`, `CONTEXT:` and `STATEMENT:` in lines of their own. Passwords are
    /// masked; a long text is cut.
    #[schema(example = "relation \"x\" does not exist\nSTATEMENT: SELECT * FROM x", max_length = 16384)]
    pub message: String,
    /// How serious it is.
    pub level: LogLevel,
    /// The kind of process that wrote it.
    #[schema(example = "client backend")]
    pub process: String,
}

/// How serious an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// DEBUG1 to DEBUG5
    Debug,
    /// INFO, NOTICE, LOG
    Info,
    /// WARNING
    Warning,
    /// ERROR, FATAL, PANIC
    Error,
}

impl LogLevel {
    /// As on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}
