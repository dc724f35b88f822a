//! Roles of branches and their passwords.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of rotateBranchCredentials.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RotateCredentials {
    /// The managed role, in either of its forms.
    #[schema(example = "app", format = "looked-up")]
    pub username: String,
}

/// How to connect to a branch.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchCredentials {
    /// The role, with the branch's suffix where host names don't lead to branches.
    #[schema(example = "app.kq7m2kj8fr3cjdr0h2qkv5s4c0")]
    pub username: String,
    /// Its password.
    #[schema(example = "RiLmDt0AshPhAMXRBDVC3JSc9c9bN1yF", format = "password")]
    pub password: String,
    /// Where the gateway is.
    #[schema(example = "127.0.0.1")]
    pub hostname: String,
    /// Its port.
    #[schema(example = 7432, minimum = 1, maximum = 65535)]
    pub port: u16,
    /// The database.
    #[schema(example = "app")]
    pub dbname: String,
    /// All of it as one URL.
    #[schema(example = "postgresql://app.kq7m2kj8fr3cjdr0h2qkv5s4c0:secret@127.0.0.1:7432/app")]
    pub connection_string: String,
}

impl std::fmt::Debug for BranchCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BranchCredentials").field("username", &self.username).finish_non_exhaustive()
    }
}
