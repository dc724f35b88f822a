//! What Vercel asks about installations of our integration and their databases, in
//! the form that its marketplace prescribes to partners.

mod refused;
mod repeat;
mod resources;
mod transfers;

use std::sync::{Arc, LazyLock};

use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use coppice_app::{App, VercelCaller, VercelTerms};
use coppice_core::audit::RequestOrigin;
use coppice_core::organization::Holder;
use coppice_core::vercel::VERCEL_PLAN;
use coppice_core::{Error, Result};
use coppice_wire as wire;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::ToSchema;
use zeroize::Zeroizing;

pub(crate) use refused::Refused;
pub(crate) use resources::{PLANS, RESOURCE, RESOURCES, ROTATION};
pub(crate) use transfers::{ACCEPTANCE, TRANSFERS, VERIFICATION};

use crate::body::{Place, RawBody, Shape};
use crate::client_address::client_address;
use crate::context;
use crate::origin::ClientOrigin;
use crate::proof::bearer_of;
use crate::rates::Rates;
use repeat::Repeat;

/// Where an installation is.
pub(crate) const INSTALLATION: &str = "/v1/installations/{installationId}";

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route(INSTALLATION, get(show).put(upsert).patch(update).delete(end))
        .merge(resources::routes())
        .merge(transfers::routes())
}

/// Who calls, which is certain, and from where; and what repetitions are known by.
struct Partner {
    caller: VercelCaller,
    origin: RequestOrigin,
    repeat: Option<Repeat>,
}

/// Somebody whom Vercel signs for, and no more is known of them.
struct Visitor;

impl FromRequestParts<App> for Visitor {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refused> {
        let rates = rates_of(parts)?;
        rates.admit_address(client_address(parts))?;
        app.vercel.check_token(bearer_of(&parts.headers)).await?;
        context::note_caller("vercel", &Holder::from_trusted("vercel"));
        Ok(Self)
    }
}

impl FromRequestParts<App> for Partner {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refused> {
        let rates = rates_of(parts)?;
        let path = Path::<Vec<(String, String)>>::from_request_parts(parts, app).await;
        // A path that can't be read names no installation.
        let named = path.map_or_else(|_| vec![], |path| path.0);
        let installation = named.iter().find(|(name, _)| name == "installationId");
        let installation = installation.map_or("", |(_, text)| text.as_str());
        let is_write = parts.method != Method::GET;
        match app.vercel.caller(bearer_of(&parts.headers), installation, is_write).await {
            Ok(caller) => {
                context::note_caller("vercel", &Holder::from_trusted(caller.installation.as_str()));
                rates.admit_credential(&caller.credential())?;
                let repeat = Repeat::of(parts, &caller)?;
                Ok(Self { caller, origin: ClientOrigin::of(parts).0, repeat })
            }
            Err(error) => {
                if matches!(error, Error::Forbidden { .. }) {
                    rates.admit_address(client_address(parts))?;
                }
                Err(error.into())
            }
        }
    }
}

fn rates_of(parts: &Parts) -> Result<Arc<Rates>> {
    let rates = parts.extensions.get::<Arc<Rates>>().cloned();
    rates.ok_or_else(|| Error::internal("the router has no rate limits"))
}

/// `GET /v1/installations/{installationId}`
async fn show(State(app): State<App>, partner: Partner) -> Result<Json<wire::VercelInstallation>, Refused> {
    let is_enabled = app.vercel.is_installation_enabled(&partner.caller).await?;
    let notification = (!is_enabled).then(|| wire::VercelNotification {
        level: "error".to_owned(),
        title: "This installation is disabled: its databases sleep. Ask who runs the platform.".to_owned(),
    });
    Ok(Json(wire::VercelInstallation { billing_plan: resources::plan(), notification }))
}

/// `PATCH /v1/installations/{installationId}`: there is one plan, so there is nothing to be changed.
async fn update(
    State(app): State<App>,
    partner: Partner,
    body: RawBody,
) -> Result<Json<wire::VercelInstallation>, Refused> {
    static SHAPE: LazyLock<Shape> = LazyLock::new(shape::<wire::UpdateInstallation>);
    let asked: wire::UpdateInstallation = body.read_optional(|value| checked(&SHAPE, value)).await?;
    if let Some(plan) = asked.billing_plan_id.filter(|plan| plan != VERCEL_PLAN) {
        let why = format_args!("there is no plan {plan:?}; must be {VERCEL_PLAN}");
        return Err(Error::invalid_field("billingPlanId", why).into());
    }
    show(State(app), partner).await
}

/// `PUT /v1/installations/{installationId}`
async fn upsert(State(app): State<App>, partner: Partner, body: RawBody) -> Result<Response, Refused> {
    static SHAPE: LazyLock<Shape> = LazyLock::new(shape::<wire::UpsertInstallation>);
    let asked: wire::UpsertInstallation = body.read(|value| checked(&SHAPE, value)).await?;
    let terms = VercelTerms {
        name: asked.account.name.clone(),
        account: json!(asked.account),
        access_token: Zeroizing::new(asked.credentials.access_token),
        token_type: asked.credentials.token_type,
        scopes: asked.scopes,
        accepted_policies: asked.accepted_policies,
    };
    to_its_end(async move { app.vercel.upsert_installation(&partner.caller, &terms, &partner.origin).await })
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `DELETE /v1/installations/{installationId}`
async fn end(State(app): State<App>, partner: Partner, body: RawBody) -> Result<Response, Refused> {
    static SHAPE: LazyLock<Shape> = LazyLock::new(shape::<wire::DeleteInstallation>);
    let asked: wire::DeleteInstallation = body.read_optional(|value| checked(&SHAPE, value)).await?;
    if let Some(reason) = &asked.reason {
        tracing::info!(installation = %partner.caller.installation, "an installation on Vercel is deleted: {reason:?}");
    }
    let is_cascading = asked.cascade_resource_deletion.unwrap_or_default();
    to_its_end(
        async move { app.vercel.end_installation(&partner.caller, is_cascading, &partner.origin).await },
    )
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Carries out what has begun, also when the client goes away.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T, Refused> {
    let done = context::detached(work).await.map_err(Error::internal)?;
    Ok(done?)
}

fn shape<T: ToSchema>() -> Shape {
    Shape::of::<T>().unwrap_or_else(|why| panic!("{}: {why}", T::name()))
}

fn checked<T: DeserializeOwned>(shape: &Shape, mut value: Value) -> Result<T> {
    shape.check(&mut value, &Place::Body)?;
    serde_json::from_value(value)
        .map_err(|why| Error::internal(format!("the body has its shape, but: {why}")))
}
