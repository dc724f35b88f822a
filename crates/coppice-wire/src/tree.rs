//! All branches of a project at a glance.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BranchStatusType, ScaleToZeroSetting, Timestamp};

/// Answer of getProjectTree.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProjectTree {
    /// Oldest first; only those the caller may see.
    pub branches: Vec<BranchInTree>,
}

/// A branch among the others of its project.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchInTree {
    /// Its id; also the DNS label and the user name suffix that lead to it.
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0", pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: String,
    /// Unique in the project.
    #[schema(example = "main", min_length = 1, max_length = 255)]
    pub name: String,
    /// What it is for; empty when there is none.
    #[schema(example = "PR 12", max_length = 50)]
    pub description: String,
    /// The branch it was made from; null for a base branch, and when that one is deleted.
    #[serde(rename = "parentID")]
    #[schema(required)]
    pub parent_id: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Where it runs.
    #[schema(example = "local")]
    pub region: String,
    /// How large its server is.
    #[schema(example = "micro")]
    pub instance_type: String,
    /// What it is doing, for people.
    #[schema(example = "Healthy")]
    pub status: String,
    /// The same, for programs.
    pub status_type: BranchStatusType,
    /// What is in its way; empty when nothing is.
    pub message: String,
    /// When it may sleep.
    pub scale_to_zero: ScaleToZeroSetting,
    /// What keeps it awake, or why it sleeps, in a sentence.
    #[schema(example = "asleep since 2026-05-04T07:30:00Z: nobody used it")]
    pub summary: String,
    /// Open sessions of clients.
    #[schema(example = 2, minimum = 0)]
    pub sessions: u32,
    /// When it goes to sleep if nobody connects; null while it is in use, sleeps, or may not sleep by itself.
    #[schema(required)]
    pub sleeps_at: Option<Timestamp>,
    /// When it was last woken, or made; null when that is too long ago.
    #[schema(required)]
    pub woken_at: Option<Timestamp>,
    /// Who or what woke it; empty when it was made.
    #[schema(example = "a connection of app from 127.0.0.1 (psql)")]
    pub woken_by: String,
    /// Since when it sleeps; null while it does not.
    #[schema(required)]
    pub asleep_since: Option<Timestamp>,
    /// When a client was last connected, to about half a minute, since it was last woken; null when none was.
    #[schema(required)]
    pub last_used_at: Option<Timestamp>,
    /// Bytes of its data as they were last measured, awake or asleep; null when they were not yet.
    #[schema(required, minimum = 0)]
    pub disk_bytes: Option<u64>,
    /// Of `diskBytes`, what it wrote itself since it was made, and so takes of the disk by itself; null when the file
    /// system can't tell.
    #[schema(required, minimum = 0)]
    pub own_bytes: Option<u64>,
    /// The part of `diskBytes` that it shares with its parent, stored once for both.
    #[schema(required, minimum = 0)]
    pub shared_bytes: Option<u64>,
}
