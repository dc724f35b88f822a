//! Databases of installations: making, showing, changing and deleting them, and their secrets.

use std::sync::LazyLock;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use chrono::TimeDelta;
use coppice_app::{
    App, KeptAnswer, ResourceChange, ResourceRequest, ResourceSecrets, ResourceSeen, ResourceStatus,
    ResourceTold,
};
use coppice_core::vercel::VERCEL_PLAN;
use coppice_core::{Error, Result};
use coppice_wire as wire;
use serde_json::json;

use super::repeat::once;
use super::{Partner, Refused, Visitor, checked, shape, to_its_end};
use crate::body::{RawBody, Shape};

/// What products can be charged by.
pub(crate) const PLANS: &str = "/v1/products/{productSlug}/plans";
/// The databases of an installation.
pub(crate) const RESOURCES: &str = "/v1/installations/{installationId}/resources";
/// One of them.
pub(crate) const RESOURCE: &str = "/v1/installations/{installationId}/resources/{resourceId}";
/// What rotates its secrets.
pub(crate) const ROTATION: &str = "/v1/installations/{installationId}/resources/{resourceId}/secrets/rotate";

const MILLISECONDS_PER_HOUR: f64 = 3_600_000.0;

/// Below an installation, and what belongs to none.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route(PLANS, get(plans))
        .route(RESOURCES, post(provision))
        .route(RESOURCE, get(show).patch(update).delete(delete))
        .route(ROTATION, post(rotate))
}

/// The ids of the path: of the installation, which is checked elsewhere, and of the database.
type Ids = Path<(String, String)>;

pub(super) fn plan() -> wire::VercelPlan {
    wire::VercelPlan {
        id: VERCEL_PLAN.to_owned(),
        kind: "subscription".to_owned(),
        scope: "resource".to_owned(),
        name: "Standard".to_owned(),
        description: "A PostgreSQL database with branches. Vercel charges nothing for it.".to_owned(),
        payment_method_required: false,
    }
}

/// `GET /v1/products/{productSlug}/plans`
async fn plans(_visitor: Visitor) -> Json<wire::VercelPlans> {
    Json(wire::VercelPlans { plans: vec![plan()] })
}

/// `POST /v1/installations/{installationId}/resources`
async fn provision(State(app): State<App>, partner: Partner, body: RawBody) -> Result<Response, Refused> {
    static SHAPE: LazyLock<Shape> = LazyLock::new(shape::<wire::ProvisionResource>);
    let asked: wire::ProvisionResource = body.read(|value| checked(&SHAPE, value)).await?;
    let Partner { caller, origin, repeat } = partner;
    once(app.clone(), repeat, json!(asked), |call| async move {
        let request = ResourceRequest {
            name: asked.name,
            product: asked.product_id,
            plan: asked.billing_plan_id,
            metadata: json!(asked.metadata),
        };
        let body = |(seen, secrets): &ResourceTold| Ok(json!(resource_to_wire(seen, secrets)?));
        let kept = KeptAnswer { call, body };
        body(&app.vercel.provision_resource(&caller, &request, &kept, &origin).await?)
    })
    .await
}

/// `GET /v1/installations/{installationId}/resources/{resourceId}`
async fn show(
    State(app): State<App>,
    partner: Partner,
    Path((_, id)): Ids,
) -> Result<Json<wire::VercelResource>, Refused> {
    let seen = app.vercel.resource(&partner.caller, &id).await?;
    Ok(Json(resource_to_wire(&seen, &vec![])?))
}

/// `PATCH /v1/installations/{installationId}/resources/{resourceId}`
async fn update(
    State(app): State<App>,
    partner: Partner,
    Path((_, id)): Ids,
    body: RawBody,
) -> Result<Json<wire::VercelResource>, Refused> {
    static SHAPE: LazyLock<Shape> = LazyLock::new(shape::<wire::UpdateResource>);
    let asked: wire::UpdateResource = body.read(|value| checked(&SHAPE, value)).await?;
    let change = ResourceChange {
        name: asked.name,
        plan: asked.billing_plan_id,
        metadata: asked.metadata.map(|metadata| json!(metadata)),
    };
    let seen = to_its_end(async move {
        app.vercel.update_resource(&partner.caller, &id, &change, &partner.origin).await
    })
    .await?;
    Ok(Json(resource_to_wire(&seen, &vec![])?))
}

/// `DELETE /v1/installations/{installationId}/resources/{resourceId}`
async fn delete(State(app): State<App>, partner: Partner, Path((_, id)): Ids) -> Result<StatusCode, Refused> {
    to_its_end(async move { app.vercel.delete_resource(&partner.caller, &id, &partner.origin).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/installations/{installationId}/resources/{resourceId}/secrets/rotate`
async fn rotate(
    State(app): State<App>,
    partner: Partner,
    Path((_, id)): Ids,
    body: RawBody,
) -> Result<Response, Refused> {
    static SHAPE: LazyLock<Shape> = LazyLock::new(shape::<wire::RotateResourceSecrets>);
    let asked: wire::RotateResourceSecrets = body.read_optional(|value| checked(&SHAPE, value)).await?;
    if let Some(reason) = &asked.reason {
        tracing::info!(resource = id, "the secrets of a database of Vercel are rotated: {reason:?}");
    }
    let hours = asked.delay_old_secrets_expiration_hours.unwrap_or_default();
    let delay = TimeDelta::milliseconds((hours * MILLISECONDS_PER_HOUR) as i64);
    let Partner { caller, origin, repeat } = partner;
    once(app.clone(), repeat, json!(asked), |call| async move {
        let body = |secrets: &ResourceSecrets| {
            Ok(json!(wire::RotatedSecrets { sync: true, secrets: secrets_to_wire(secrets) }))
        };
        let kept = KeptAnswer { call, body };
        body(&app.vercel.rotate_secrets(&caller, &id, delay, &kept, &origin).await?)
    })
    .await
}

fn resource_to_wire(seen: &ResourceSeen, secrets: &ResourceSecrets) -> Result<wire::VercelResource> {
    let resource = seen.resource.clone();
    Ok(wire::VercelResource {
        id: resource.project.to_string(),
        product_id: resource.product,
        name: resource.name,
        metadata: serde_json::from_str(&resource.metadata).map_err(Error::internal)?,
        status: match seen.status {
            ResourceStatus::Ready => wire::VercelStatus::Ready,
            ResourceStatus::Pending => wire::VercelStatus::Pending,
            ResourceStatus::Suspended => wire::VercelStatus::Suspended,
            ResourceStatus::Error => wire::VercelStatus::Error,
        },
        billing_plan: plan(),
        secrets: secrets_to_wire(secrets),
    })
}

fn secrets_to_wire(secrets: &ResourceSecrets) -> Vec<wire::VercelSecret> {
    let secrets = secrets.iter();
    secrets
        .map(|(name, value)| wire::VercelSecret { name: (*name).to_owned(), value: value.to_string() })
        .collect()
}
