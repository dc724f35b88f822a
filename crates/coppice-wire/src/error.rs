//! Errors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What happened, for people; the text may change.
    #[schema(example = "project prj_1 not found")]
    pub message: String,
    /// Stable code, for programs.
    #[schema(example = "project_not_found", pattern = "^[a-z_]+$")]
    pub id: String,
}
