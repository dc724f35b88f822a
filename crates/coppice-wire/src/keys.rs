//! API keys.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Expiry, Timestamp};

/// An API key. The key itself is shown once, when it is made.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct ApiKey {
    /// Of the record; not the secret.
    #[schema(example = "key_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub id: String,
    /// Not unique.
    #[schema(example = "ci", min_length = 1, max_length = 128)]
    pub name: String,
    /// Enough to recognise the key by.
    #[schema(example = "pko_...x7Qa", pattern = "^pk[uo]_\\.\\.\\.[0-9a-zA-Z]{4}$")]
    pub preview: String,
    /// What it may do; `*` is everything.
    #[schema(example = json!(["project:read", "branch:write"]), max_items = 50)]
    pub scopes: Vec<String>,
    /// The only projects it reaches; empty is no limit.
    #[schema(example = json!([]), max_items = 50)]
    pub projects: Vec<String>,
    /// The only branches it reaches; empty is no limit.
    #[schema(example = json!([]), max_items = 50)]
    pub branches: Vec<String>,
    /// True when it changes only branches that it made, and is shown the credentials of no others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub own_branches: bool,
    /// How many branches that it made may exist at once; absent is as many as there may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = 5, minimum = 1, maximum = 10000)]
    pub max_branches: Option<u32>,
    /// What it does by SQL, as a user of its own; absent is as the user `app`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub database_role: Option<DatabaseRole>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends; null is never.
    #[schema(required)]
    pub expiry: Option<Expiry>,
    /// When it was last used, to the minute; null is never.
    #[schema(required)]
    pub last_used: Option<Timestamp>,
    /// The user who made it; null when a key of the organization did.
    #[schema(required, example = "usr_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub created_by: Option<String>,
    /// The key that made it; null when a user's token did.
    #[schema(required, example = "key_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub created_by_key: Option<String>,
    /// The key itself, in the answer that makes it and never again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "pko_0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1w", nullable = false)]
    pub token: Option<String>,
    /// There when whoever runs the organization should look at its key again. The key goes on working.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub review: Option<ApiKeyReview>,
}

/// What the user of a key may do in the databases of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseRole {
    /// Read every table.
    Reader,
    /// Add, change and remove rows, too.
    Writer,
    /// Make what it likes in a schema of its own, too; what others own it can't alter.
    Owner,
}

/// Why to look at a key of an organization again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiKeyReview {
    /// Why.
    pub reason: ApiKeyReviewReason,
    /// The user who made it, or made the first of the keys that led to it.
    #[schema(example = "usr_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub maker: String,
}

/// What is the matter with the maker of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApiKeyReviewReason {
    /// They are no member any more.
    MadeByFormerMember,
    /// Their account is disabled.
    MadeByDisabledUser,
    /// The key allows what their role no longer does.
    ExceedsMaker,
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiKey").field("id", &self.id).field("preview", &self.preview).finish_non_exhaustive()
    }
}

/// Answer of the operations that make a key.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreatedApiKey {
    /// With its token.
    pub key: ApiKey,
}

/// Answer of the operations that list keys.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ApiKeyList {
    /// Oldest first; without tokens.
    pub keys: Vec<ApiKey>,
}

/// Body of the operations that make a key.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CreateApiKey {
    /// What it is for; need not be unique.
    #[schema(example = "ci", min_length = 1, max_length = 128, format = "name")]
    pub name: String,
    /// When it ends. Null is never. Absent is when the credential that makes it does, or never if that does not end.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::time::said")]
    #[schema(value_type = Option<Expiry>)]
    pub expiry: Option<Option<Expiry>>,
    /// What it may do: scopes, or `*`. Empty or absent is what its maker may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["project:read", "branch:write"]), max_items = 50, min_length = 1, max_length = 64, format = "scope")]
    pub scopes: Option<Vec<String>>,
    /// The only projects it reaches. Empty or absent is no limit beyond its maker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["prj_06gq0m2kj8fr3cjdr0h2qkv5s4"]), max_items = 50, format = "id-or-all")]
    pub projects: Option<Vec<String>>,
    /// The only branches it reaches. Empty or absent is no limit beyond its maker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!([]), max_items = 50, format = "id-or-all")]
    pub branches: Option<Vec<String>>,
    /// True lets it make branches, change and delete those that it made, and be shown their credentials; of all others it
    /// may see what its scopes say, and change nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = true)]
    pub own_branches: Option<bool>,
    /// How many branches that it made may exist at once. Such a key makes no keys. Absent is as many as there may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 5, minimum = 1, maximum = 10000)]
    pub max_branches: Option<u32>,
    /// Gives it a user of its own on each branch that it reaches, named as the key, in place of the user `app`. Its
    /// password is in the branch's credentials for this key, and it ends with the key, with all its sessions. Such a key
    /// makes no key that may more. Absent is what its maker has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_role: Option<DatabaseRole>,
}

/// Body of the operations that delete keys.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeleteApiKeys {
    /// Ids of the records; unknown ones are skipped.
    #[schema(example = json!(["key_06gq0m2kj8fr3cjdr0h2qkv5s4"]), max_items = 50, format = "looked-up")]
    pub ids: Vec<String>,
    /// True also deletes the keys that were made with them, at whatever distance, as after a theft: also with those that
    /// belong elsewhere, or were deleted before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = true)]
    pub with_made: Option<bool>,
}
