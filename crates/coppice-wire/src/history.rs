//! What branches can be taken back to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// Answer of getBranchHistory.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchHistory {
    /// From when to when; null where no history is kept.
    #[schema(required)]
    pub window: Option<HistoryWindow>,
    /// Times in the window that can't be gone back to, newest first; at most 100.
    pub gaps: Vec<HistoryGap>,
    /// Copies that going back begins with, newest first; at most 100.
    pub snapshots: Vec<HistorySnapshot>,
    /// Times at which it is known how far the write-ahead log was.
    #[schema(example = 3600)]
    pub marks: u32,
    /// Bytes of the write-ahead log that are kept beside the branch's data. Snapshots share what has not changed.
    #[schema(example = 16777216)]
    pub wal_bytes: u64,
    /// What the branch was before it was reset, the latest first; each can be copied by createBranch,
    /// and gone back to by resetBranch.
    #[serde(default)]
    pub versions: Vec<BranchVersion>,
}

/// What a branch was until another volume took the place of its own.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchVersion {
    /// Its id, for createBranch and resetBranch.
    #[schema(example = "vol_0d3q8v1c5k2m4n6p8r0s2t4u6g")]
    pub id: String,
    /// From when on it was the branch.
    pub since: Timestamp,
    /// Until when it was.
    pub until: Timestamp,
    /// What was done then.
    #[schema(example = "reset to branch main")]
    pub reason: String,
    /// When it is removed, if there is room until then.
    pub kept_until: Timestamp,
}

/// From when to when a branch can be taken back.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryWindow {
    /// The first moment.
    pub from: Timestamp,
    /// The last moment.
    pub to: Timestamp,
    /// Where the write-ahead log was at the first.
    #[schema(example = "0/3000060")]
    pub from_lsn: String,
    /// And at the last.
    #[schema(example = "0/9000028")]
    pub to_lsn: String,
}

/// Times that can't be gone back to: something was written while nobody looked, or what the branch was is not kept.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryGap {
    /// The last moment before it.
    pub from: Timestamp,
    /// The first moment after it.
    pub to: Timestamp,
}

/// A copy of a branch's data that going back begins with.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistorySnapshot {
    /// When it was made.
    pub taken_at: Timestamp,
    /// Where its write-ahead log ends.
    #[schema(example = "0/3000060")]
    pub lsn: String,
}
