//! Databases on their way to another account.

use std::sync::LazyLock;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use chrono::DateTime;
use coppice_app::{App, KeptAnswer};
use coppice_core::Error;
use coppice_wire as wire;
use serde_json::json;

use super::repeat::once;
use super::{Partner, Refused, checked, shape, to_its_end};
use crate::body::{RawBody, Shape};

/// What asks for one.
pub(crate) const TRANSFERS: &str = "/v1/installations/{installationId}/resource-transfer-requests";
/// What looks whether it can be accepted.
pub(crate) const VERIFICATION: &str =
    "/v1/installations/{installationId}/resource-transfer-requests/{providerClaimId}/verify";
/// What accepts it.
pub(crate) const ACCEPTANCE: &str =
    "/v1/installations/{installationId}/resource-transfer-requests/{providerClaimId}/accept";

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route(TRANSFERS, post(begin))
        .route(VERIFICATION, get(verify))
        .route(ACCEPTANCE, post(accept))
}

/// `POST /v1/installations/{installationId}/resource-transfer-requests`, of who has the databases.
async fn begin(State(app): State<App>, partner: Partner, body: RawBody) -> Result<Response, Refused> {
    static SHAPE: LazyLock<Shape> = LazyLock::new(shape::<wire::TransferResources>);
    let asked: wire::TransferResources = body.read(|value| checked(&SHAPE, value)).await?;
    let until = DateTime::from_timestamp_millis(asked.expires_at as i64);
    let until = until.ok_or_else(|| Error::invalid_field("expiresAt", "is no time"))?;
    let Partner { caller, origin, repeat } = partner;
    once(app.clone(), repeat, json!(asked), |call| async move {
        let body = |id: &String| Ok(json!(wire::VercelTransfer { provider_claim_id: id.clone() }));
        let kept = KeptAnswer { call, body };
        body(&app.vercel.begin_transfer(&caller, &asked.resource_ids, until, &kept, &origin).await?)
    })
    .await
}

/// `GET …/verify`, of who is to get them.
async fn verify(
    State(app): State<App>,
    partner: Partner,
    Path((_, id)): Path<(String, String)>,
) -> Result<Json<wire::VerifiedTransfer>, Refused> {
    app.vercel.check_transfer(&partner.caller, &id).await?;
    Ok(Json(wire::VerifiedTransfer::default()))
}

/// `POST …/accept`, of who gets them.
async fn accept(
    State(app): State<App>,
    partner: Partner,
    Path((_, id)): Path<(String, String)>,
) -> Result<StatusCode, Refused> {
    to_its_end(async move { app.vercel.accept_transfer(&partner.caller, &id, &partner.origin).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
