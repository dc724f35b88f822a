//! API keys of organizations and of users.

use coppice_app::{Access, App, DeletedKey, NewKey, PersonalAccess};
use coppice_core::access::{AskedExpiry, Grant};
use coppice_core::api_key::{ApiKey, ApiKeySecret, Review, ReviewReason};
use coppice_core::login::DatabaseRole;
use coppice_core::operation::{
    CREATE_ORGANIZATION_API_KEY, CREATE_USER_API_KEY, DELETE_ORGANIZATION_API_KEYS, DELETE_USER_API_KEYS,
    LIST_ORGANIZATION_API_KEYS, LIST_USER_API_KEYS,
};
use coppice_core::target::is_record_id;
use coppice_core::{Error, ErrorCode, Result};
use coppice_wire as wire;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::context;
use crate::endpoint::{Body, Done, Endpoint, Made, Query, Shown, delete, get, post};
use crate::error::as_invalid_key;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "API Keys";
    vec![
        get("/api-keys", &LIST_ORGANIZATION_API_KEYS)
            .says(AREA, "List the keys of an organization", "Those are marked by `review` whose makers left, or could not make them with the role that they have now.")
            .answers("Its keys, also expired ones.")
            .forbids_by(as_invalid_key)
            .runs(list_organization_api_keys),
        post("/api-keys", &CREATE_ORGANIZATION_API_KEY)
            .says(AREA, "Make a key of an organization", "Its token is in this answer only. It can't do more than the credential that makes it, nor go on for longer.")
            .answers("The new key with its token.")
            .runs(create_organization_api_key),
        delete("/api-keys", &DELETE_ORGANIZATION_API_KEYS)
            .says(AREA, "Delete keys of an organization", "Up to 50 at once; ids that don't exist or belong elsewhere are skipped. With `with_made`, all keys of the organization\ngo that were made with them, at whatever distance, also with a person's own key.")
            .answers("They are gone.")
            .refuses_bodies_by(too_many_keys)
            .runs(delete_organization_api_keys),
        get("/api-keys", &LIST_USER_API_KEYS)
            .says(AREA, "List the calling user's keys", "Also those that have expired. The tokens are in no answer but the one that made them.")
            .answers("The caller's keys, also expired ones.")
            .runs(list_user_api_keys),
        post("/api-keys", &CREATE_USER_API_KEY)
            .says(AREA, "Make a key of the calling user", "It acts as the user, within what it was given. Its token is in this answer only. It can't do more than the credential\nthat makes it, nor go on for longer.")
            .answers("The new key with its token.")
            .runs(create_user_api_key),
        delete("/api-keys", &DELETE_USER_API_KEYS)
            .says(AREA, "Delete keys of the calling user", "Up to 50 at once; ids that don't exist or belong elsewhere are skipped. With `with_made`, the caller's own keys that\nwere made with them go too; keys of an organization that were made with them are deleted there, by the same ids.")
            .answers("They are gone.")
            .refuses_bodies_by(too_many_keys)
            .runs(delete_user_api_keys),
    ]
}

/// Which keys to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListKeys {
    /// Only those that were made with one of these keys, at whatever distance: their ids, separated by commas. They
    /// may belong elsewhere, or be gone.
    #[param(example = "key_06gq0m2kj8fr3cjdr0h2qkv5s4", max_length = 2000, format = "sought")]
    made_with: Option<String>,
}

impl ListKeys {
    fn made_with(&self) -> Option<Vec<String>> {
        let ids = self.made_with.as_deref()?.split(',').map(|id| id.trim().to_owned());
        Some(possible(ids))
    }
}

async fn list_organization_api_keys(
    app: App,
    access: Access,
    Query(asked): Query<ListKeys>,
) -> Result<Shown<wire::ApiKeyList>> {
    let keys = app.keys.list_of_organization(&access, asked.made_with().as_deref()).await?;
    Ok(Shown(list(keys)))
}

async fn create_organization_api_key(
    app: App,
    access: Access,
    Body(asked): Body<wire::CreateApiKey>,
) -> Result<Made<wire::CreatedApiKey>> {
    Ok(created(app.keys.create_for_organization(&access, &new_key(asked)).await?))
}

async fn delete_organization_api_keys(
    app: App,
    access: Access,
    Body(asked): Body<wire::DeleteApiKeys>,
) -> Result<Done> {
    let (ids, with_made) = begin_deletion(asked);
    let deleted = app.keys.delete_of_organization(&access, &ids, with_made).await?;
    note_deletion(ids, deleted);
    Ok(Done)
}

async fn list_user_api_keys(
    app: App,
    access: PersonalAccess,
    Query(asked): Query<ListKeys>,
) -> Result<Shown<wire::ApiKeyList>> {
    Ok(Shown(list(app.keys.list_of_user(&access, asked.made_with().as_deref()).await?)))
}

async fn create_user_api_key(
    app: App,
    access: PersonalAccess,
    Body(asked): Body<wire::CreateApiKey>,
) -> Result<Made<wire::CreatedApiKey>> {
    Ok(created(app.keys.create_for_user(&access, &new_key(asked)).await?))
}

async fn delete_user_api_keys(
    app: App,
    access: PersonalAccess,
    Body(asked): Body<wire::DeleteApiKeys>,
) -> Result<Done> {
    let (ids, with_made) = begin_deletion(asked);
    let deleted = app.keys.delete_of_user(&access, &ids, with_made).await?;
    note_deletion(ids, deleted);
    Ok(Done)
}

/// What to delete, noted before it is tried, and whether with all that was made with it.
fn begin_deletion(asked: wire::DeleteApiKeys) -> (Vec<String>, bool) {
    let ids = possible(asked.ids);
    context::audit_notes(|notes| notes.targets(ids.clone()));
    (ids, asked.with_made.unwrap_or_default())
}

/// Notes what went, also beside what was named.
fn note_deletion(mut ids: Vec<String>, deleted: Vec<DeletedKey>) {
    let (deleted, names): (Vec<_>, _) = deleted.into_iter().map(|key| (key.id, key.name)).unzip();
    let named = ids.len();
    ids.extend(deleted.into_iter().filter(|id| !ids[..named].contains(id)).collect::<Vec<_>>());
    context::audit_notes(|notes| notes.targets(ids));
    context::audit_notes(|notes| notes.names(names));
}

fn list(keys: Vec<ApiKey>) -> wire::ApiKeyList {
    wire::ApiKeyList { keys: keys.into_iter().map(|key| to_wire(key, None)).collect() }
}

fn created((key, secret): (ApiKey, ApiKeySecret)) -> Made<wire::CreatedApiKey> {
    Made(wire::CreatedApiKey { key: to_wire(key, Some(secret.expose().to_owned())) })
}

fn to_wire(key: ApiKey, token: Option<String>) -> wire::ApiKey {
    wire::ApiKey {
        id: key.id.to_string(),
        name: key.name,
        preview: key.preview,
        scopes: key.grant.scopes,
        projects: key.grant.projects,
        branches: key.grant.branches,
        own_branches: key.grant.own_branches,
        max_branches: key.grant.branches_max,
        database_role: key.grant.database_role.map(role_to_wire),
        created_at: wire::Timestamp(key.created_at),
        expiry: key.expiry.map(wire::Expiry),
        last_used: key.last_used.map(wire::Timestamp),
        created_by: key.created_by.map(|user| user.to_string()),
        created_by_key: key.created_by_key.map(|key| key.to_string()),
        token,
        review: key.review.map(review),
    }
}

fn review(review: Review) -> wire::ApiKeyReview {
    let reason = match review.reason {
        ReviewReason::MadeByFormerMember => wire::ApiKeyReviewReason::MadeByFormerMember,
        ReviewReason::MadeByDisabledUser => wire::ApiKeyReviewReason::MadeByDisabledUser,
        ReviewReason::ExceedsMaker => wire::ApiKeyReviewReason::ExceedsMaker,
    };
    wire::ApiKeyReview { reason, maker: review.maker.to_string() }
}

fn role_to_wire(role: DatabaseRole) -> wire::DatabaseRole {
    match role {
        DatabaseRole::Reader => wire::DatabaseRole::Reader,
        DatabaseRole::Writer => wire::DatabaseRole::Writer,
        DatabaseRole::Owner => wire::DatabaseRole::Owner,
    }
}

fn role_from_wire(role: wire::DatabaseRole) -> DatabaseRole {
    match role {
        wire::DatabaseRole::Reader => DatabaseRole::Reader,
        wire::DatabaseRole::Writer => DatabaseRole::Writer,
        wire::DatabaseRole::Owner => DatabaseRole::Owner,
    }
}

fn new_key(asked: wire::CreateApiKey) -> NewKey {
    NewKey {
        name: asked.name,
        expiry: asked_expiry(asked.expiry),
        grant: Grant {
            scopes: asked.scopes.unwrap_or_default(),
            projects: asked.projects.unwrap_or_default(),
            branches: asked.branches.unwrap_or_default(),
            own_branches: asked.own_branches.unwrap_or(false),
            branches_max: asked.max_branches,
            database_role: asked.database_role.map(role_from_wire),
        },
    }
}

/// Null is never, and nothing says nothing.
pub(crate) fn asked_expiry(asked: Option<Option<wire::Expiry>>) -> AskedExpiry {
    match asked {
        Some(Some(expiry)) => AskedExpiry::At(expiry.0),
        Some(None) => AskedExpiry::Never,
        None => AskedExpiry::Unsaid,
    }
}

/// What can be no id names no key; not every text can be asked for in SQL.
fn possible(ids: impl IntoIterator<Item = String>) -> Vec<String> {
    ids.into_iter().filter(|id| is_record_id(id)).collect()
}

fn too_many_keys(error: Error) -> Error {
    match error {
        Error::Invalid { code: ErrorCode::TooManyItems, .. } => {
            Error::invalid(ErrorCode::TooManyApiKeys, "at most 50 API keys can be deleted at once")
        }
        other => other,
    }
}
