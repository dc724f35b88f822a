//! Branches that were deleted and can be brought back.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// A branch in the trash.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrashedBranch {
    /// Its id; it keeps that when it is brought back.
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0", pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: String,
    /// What it was called. Others may be called so by now.
    #[schema(example = "main", min_length = 1, max_length = 255)]
    pub name: String,
    /// What it was for; empty when there is none.
    #[schema(example = "PR 12", max_length = 50)]
    pub description: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was deleted.
    pub deleted_at: Timestamp,
    /// When its data is removed for good, or earlier if there is no room for it.
    pub purge_at: Timestamp,
}

/// Answer of listTrash.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TrashList {
    /// What was deleted last first.
    pub branches: Vec<TrashedBranch>,
}

/// Body of undeleteBranch.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct UndeleteBranch {
    /// What it shall be called; as before when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "main-again", min_length = 1, max_length = 255, format = "name")]
    pub name: Option<String>,
}
