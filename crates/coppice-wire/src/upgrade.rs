//! Branches that get another major version of PostgreSQL.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of upgradeBranch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeBranch {
    /// What it shall have: `postgres:18` means the newest 18.
    #[schema(example = "postgres:18", max_length = 64, format = "looked-up")]
    pub image: String,
    /// Only try it on a copy, and say in the branch's `message` what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<bool>,
}
