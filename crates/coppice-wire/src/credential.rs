//! What a credential is good for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// Answer of getCredential.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    /// Id of the key, or of the session behind a token.
    #[schema(example = "key_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub id: String,
    /// The organization whose key it is; null for what stands for a person.
    #[serde(rename = "organizationID")]
    #[schema(required, example = "org_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub organization_id: Option<String>,
    /// The person it stands for; null for a key of an organization.
    #[serde(rename = "userID")]
    #[schema(required, example = "usr_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub user_id: Option<String>,
    /// What it may do at most; `*` is everything.
    #[schema(example = json!(["project:read", "branch:read"]))]
    pub scopes: Vec<String>,
    /// Whether it reaches only the projects and branches below.
    pub is_limited: bool,
    /// The projects it is limited to, and those of the branches it is limited to.
    pub projects: Vec<ReachedProject>,
    /// The branches it is limited to.
    pub branches: Vec<ReachedBranch>,
    /// When it ends; null when it does not by itself.
    #[schema(required)]
    pub expiry: Option<Timestamp>,
}

/// A project that a credential reaches.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReachedProject {
    /// Its id.
    #[schema(example = "prj_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub id: String,
    /// Its name.
    #[schema(example = "shop")]
    pub name: String,
}

/// A branch that a credential reaches.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReachedBranch {
    /// Its id.
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0")]
    pub id: String,
    /// Its name.
    #[schema(example = "main")]
    pub name: String,
    /// The project it is in.
    #[serde(rename = "projectID")]
    #[schema(example = "prj_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub project_id: String,
}
