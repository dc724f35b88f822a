//! Resetting a branch to another branch, or to its own past.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// Body of resetBranch.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ResetBranch {
    /// What it shall be a copy of; without it, its parent as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ResetSource>,
}

/// What a branch shall be a copy of: another branch or a version of its own, as it is or at a moment; or itself at a moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResetSource {
    /// Another branch of the project.
    #[serde(rename = "branchID", default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0", pattern = "^[A-Za-z0-9_-]{1,64}$", format = "id")]
    pub branch_id: Option<String>,
    /// What it was itself before it was reset, from getBranchHistory.
    #[serde(rename = "versionID", default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "vol_0d3q8v1c5k2m4n6p8r0s2t4u6g", pattern = "^[A-Za-z0-9_-]{1,64}$", format = "id")]
    pub version_id: Option<String>,
    /// Point in time to copy from, within the window of its history; before the source's last reset or upgrade, the
    /// version of that time is used. Without it, the source as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_time: Option<Timestamp>,
    /// Instead of a time, a place in its write-ahead log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0/3000060", max_length = 17, format = "looked-up")]
    pub target_lsn: Option<String>,
}
