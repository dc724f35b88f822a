//! API keys of organizations and of users.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coppice_app::{App, NewKey};
use coppice_core::access::{AskedExpiry, Grant};
use coppice_core::api_key::{ApiKey, ApiKeySecret, Review, ReviewReason};
use coppice_core::operation::{
    CREATE_ORGANIZATION_API_KEY, CREATE_USER_API_KEY, DELETE_ORGANIZATION_API_KEYS, DELETE_USER_API_KEYS,
    LIST_ORGANIZATION_API_KEYS, LIST_USER_API_KEYS, is_record_id,
};
use coppice_core::{Error, ErrorCode, Result};
use coppice_wire as wire;

use crate::body::{BodyError, Fields, RawBody};
use crate::context;
use crate::error::{ApiError, as_invalid_key};
use crate::request::{Call, InOrganization};

/// Items of each list of a key, and of a bulk deletion.
const ITEMS_MAX: usize = 50;

/// List the keys of an organization
///
/// Those are marked by `review` whose makers left, or could not make them with the role that they have now.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/api-keys", operation_id = "listOrganizationAPIKeys",
    tag = "API Keys", params(InOrganization),
    responses((status = 200, description = "Its keys, also expired ones.", body = wire::ApiKeyList))
)]
pub(crate) async fn list_organization_api_keys(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::ApiKeyList>, ApiError> {
    let access = call.authorize(&app, &LIST_ORGANIZATION_API_KEYS).await.map_err(as_invalid_key)?;
    Ok(Json(list(app.list_organization_keys(&access).await?)))
}

/// Make a key of an organization
///
/// Its token is in this answer only. It can't do more than the credential that makes it, nor go on for longer.
#[utoipa::path(
    post, path = "/organizations/{organizationID}/api-keys", operation_id = "createOrganizationAPIKey",
    tag = "API Keys", params(InOrganization), request_body = wire::CreateApiKey,
    responses((status = 201, description = "The new key with its token.", body = wire::CreatedApiKey))
)]
pub(crate) async fn create_organization_api_key(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Response, BodyError> {
    let access = call.authorize(&app, &CREATE_ORGANIZATION_API_KEY).await?;
    let new = body.read(new_key).await?;
    Ok(created(app.create_organization_key(&access, &new).await?))
}

/// Delete keys of an organization
///
/// Up to 50 at once; ids that don't exist or belong elsewhere are skipped.
#[utoipa::path(
    delete, path = "/organizations/{organizationID}/api-keys", operation_id = "deleteOrganizationAPIKeys",
    tag = "API Keys", params(InOrganization), request_body = wire::DeleteApiKeys,
    responses((status = 204, description = "They are gone."))
)]
pub(crate) async fn delete_organization_api_keys(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<StatusCode, BodyError> {
    let access = call.authorize(&app, &DELETE_ORGANIZATION_API_KEYS).await?;
    let ids = body.read(ids).await?;
    context::audit_notes(|notes| notes.targets(ids.clone()));
    let names = app.delete_organization_keys(&access, &ids).await?;
    context::audit_notes(|notes| notes.names(names));
    Ok(StatusCode::NO_CONTENT)
}

/// List the calling user's keys
///
/// Also those that have expired. The tokens are in no answer but the one that made them.
#[utoipa::path(
    get, path = "/api-keys", operation_id = "listUserAPIKeys", tag = "API Keys",
    responses((status = 200, description = "The caller's keys, also expired ones.", body = wire::ApiKeyList))
)]
pub(crate) async fn list_user_api_keys(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::ApiKeyList>, ApiError> {
    let access = call.authorize_person(&app, &LIST_USER_API_KEYS).await?;
    Ok(Json(list(app.list_user_keys(&access).await?)))
}

/// Make a key of the calling user
///
/// It acts as the user, within what it was given. Its token is in this answer only. It can't do more than the credential
/// that makes it, nor go on for longer.
#[utoipa::path(
    post, path = "/api-keys", operation_id = "createUserAPIKey", tag = "API Keys",
    request_body = wire::CreateApiKey,
    responses((status = 201, description = "The new key with its token.", body = wire::CreatedApiKey))
)]
pub(crate) async fn create_user_api_key(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Response, BodyError> {
    let access = call.authorize_person(&app, &CREATE_USER_API_KEY).await?;
    let new = body.read(new_key).await?;
    Ok(created(app.create_user_key(&access, &new).await?))
}

/// Delete keys of the calling user
///
/// Up to 50 at once; ids that don't exist or belong elsewhere are skipped.
#[utoipa::path(
    delete, path = "/api-keys", operation_id = "deleteUserAPIKeys", tag = "API Keys",
    request_body = wire::DeleteApiKeys,
    responses((status = 204, description = "They are gone."))
)]
pub(crate) async fn delete_user_api_keys(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<StatusCode, BodyError> {
    let access = call.authorize_person(&app, &DELETE_USER_API_KEYS).await?;
    let ids = body.read(ids).await?;
    context::audit_notes(|notes| notes.targets(ids.clone()));
    let names = app.delete_user_keys(&access, &ids).await?;
    context::audit_notes(|notes| notes.names(names));
    Ok(StatusCode::NO_CONTENT)
}

fn list(keys: Vec<ApiKey>) -> wire::ApiKeyList {
    wire::ApiKeyList { keys: keys.into_iter().map(|key| to_wire(key, None)).collect() }
}

fn created((key, secret): (ApiKey, ApiKeySecret)) -> Response {
    let key = to_wire(key, Some(secret.expose().to_owned()));
    (StatusCode::CREATED, Json(wire::CreatedApiKey { key })).into_response()
}

fn to_wire(key: ApiKey, token: Option<String>) -> wire::ApiKey {
    wire::ApiKey {
        id: key.id.to_string(),
        name: key.name,
        preview: key.preview,
        scopes: key.grant.scopes,
        projects: key.grant.projects,
        branches: key.grant.branches,
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

fn new_key(fields: &Fields) -> Result<NewKey> {
    let name = fields.name_of("name", 128)?;
    let expiry = match fields.time("expiry")? {
        Some(expiry) => AskedExpiry::At(expiry.at),
        None if fields.is_null("expiry") => AskedExpiry::Never,
        None => AskedExpiry::Unsaid,
    };
    let list = |field: &str, is_item: fn(&str) -> bool, why: &str| -> Result<Vec<String>> {
        let items = fields.texts(field, ITEMS_MAX)?.unwrap_or_default();
        match items.iter().all(|item| is_item(item)) {
            true => Ok(items),
            false => Err(Error::invalid_field(field, why)),
        }
    };
    let ids = "must hold ids of at most 64 letters, digits, - and _, or *";
    Ok(NewKey {
        name,
        expiry,
        grant: Grant {
            scopes: list("scopes", is_scope, "must hold texts of 1 to 64 printable characters")?,
            projects: list("projects", is_id, ids)?,
            branches: list("branches", is_id, ids)?,
        },
    })
}

fn is_scope(text: &str) -> bool {
    (1..=64).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

fn is_id(text: &str) -> bool {
    text == "*" || is_record_id(text)
}

fn ids(fields: &Fields) -> Result<Vec<String>> {
    let count = fields.list_length("ids")?.ok_or_else(|| fields.missing("ids"))?;
    if count > ITEMS_MAX {
        return Err(Error::invalid(
            ErrorCode::TooManyApiKeys,
            format!("at most {ITEMS_MAX} API keys can be deleted at once"),
        ));
    }
    let ids = fields.texts("ids", ITEMS_MAX)?.unwrap_or_default();
    // What can be no id names no key; not every text can be asked for in SQL.
    Ok(ids.into_iter().filter(|id| is_record_id(id)).collect())
}
