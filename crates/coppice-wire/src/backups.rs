//! What is kept of what branches were.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{HistoryGap, InheritedConfiguration, ScaleToZeroChange, Timestamp};

/// What is kept of what a branch was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupConfiguration {
    /// For how many days it can be restored, as far as there is room.
    #[schema(example = 2, minimum = 2, maximum = 35)]
    pub retention_period: u32,
    /// When a full copy is made, where there is a store: day of the week (0 is Sunday, `*` every day), hour and minute, UTC.
    #[schema(example = "0:03:15", pattern = r"^(\*|[0-6]):(0[0-9]|1[0-9]|2[0-3]):([0-5][0-9])$")]
    pub backup_time: String,
}

/// What to keep of what a branch was; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupConfigurationChange {
    /// For how many days it can be restored, as far as there is room; 2 unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 7, minimum = 2, maximum = 35)]
    pub retention_period: Option<u32>,
    /// When a full copy is made, where there is a store: day of the week (0 is Sunday, `*` every day), hour and minute,
    /// UTC. Early on a Sunday unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "*:03:15",
        max_length = 7,
        pattern = r"^(\*|[0-6]):(0[0-9]|1[0-9]|2[0-3]):([0-5][0-9])$",
        format = "backup-time"
    )]
    pub backup_time: Option<String>,
}

/// What can be restored of a branch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupMetadata {
    /// Its id, which is that of its branch.
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0", pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: String,
    /// The branch.
    #[serde(rename = "branchID")]
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0", pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub branch_id: String,
    /// The first time at which it can be restored; absent when nothing can be yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub earliest_restore: Option<Timestamp>,
    /// The last time at which it can be restored; absent when nothing can be yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub latest_restore: Option<Timestamp>,
    /// Times between these two that it can't be restored to, newest first; at most 100.
    #[serde(default)]
    pub gaps: Vec<HistoryGap>,
    /// For how many seconds what was written may not be in the store: what a lost machine would take with it. Absent where
    /// there is no store, or nothing of the branch in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 4, nullable = false)]
    pub lag_seconds: Option<u64>,
    /// When the newest full copy was last restored for proof and found sound; absent when it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_verified: Option<Timestamp>,
    /// The last drill, whatever came of it; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_drill: Option<Drill>,
    /// For people.
    #[schema(example = "Branch main, at any second of the last 2 days")]
    pub description: String,
}

/// A full copy of a branch was restored for proof.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drill {
    /// When that ended.
    pub at: Timestamp,
    /// What came of it.
    pub result: DrillResult,
    /// What was looked at, what is wrong, or why it was skipped; for people.
    #[schema(
        example = "its server answers; of 382 tables and indexes in 3 databases, 382 were looked at and are sound"
    )]
    pub message: String,
}

/// What came of a drill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DrillResult {
    /// A server came up on it, and what was looked at is sound.
    Passed,
    /// It can't be restored, or what is in it is damaged.
    Failed,
    /// Nothing was found out: there was no room or no time for it.
    Skipped,
}

/// Answer of listBackups.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BackupList {
    /// One of each branch, the oldest branch first; only those the caller may see.
    pub backups: Vec<BackupMetadata>,
}

/// Body of restoreFromBackup.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreBranch {
    /// What the new branch is called; unique in the project.
    #[schema(example = "before-the-migration", min_length = 1, max_length = 255, format = "name")]
    pub name: String,
    /// The time to restore, from `earliestRestore` to `latestRestore` but for `gaps`; without it, the latest. Before the
    /// branch was reset or upgraded, it is what it was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_time: Option<Timestamp>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "as of yesterday",
        max_length = 50,
        pattern = "^([a-zA-Z0-9]+[a-zA-Z0-9- ]*)?$",
        format = "description"
    )]
    pub description: Option<String>,
    /// When it may sleep, if not as the project says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_to_zero: Option<ScaleToZeroChange>,
    /// What shall be kept of what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_configuration: Option<BackupConfigurationChange>,
    /// What shall be otherwise than with the branch that is restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<RestoredConfiguration>,
}

/// What a restored branch shall have otherwise than the branch that is restored.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RestoredConfiguration {
    /// Where it shall run: where the branch is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "local", format = "looked-up")]
    pub region: Option<String>,
    /// Instances besides the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 0, minimum = 0, maximum = 4)]
    pub replicas: Option<u32>,
    /// Its size, release, storage, parameters and libraries.
    #[serde(flatten)]
    pub rest: InheritedConfiguration,
}
