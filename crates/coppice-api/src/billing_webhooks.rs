//! What Stripe and Orb call.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use coppice_app::{App, OrbDelivery, StripeDelivery};

use crate::arrival::{BILLING_DELIVERIES, Received, Senders, Unread};
use crate::error::ApiError;
use crate::github_webhook::{answered, did_not_arrive};
use crate::rates::Rates;

/// The largest delivery, for people.
const MOST: &str = "5 MiB";

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/webhooks/stripe", post(take_stripe))
        .route("/webhooks/orb", post(take_orb))
        .layer(DefaultBodyLimit::disable())
}

/// `POST /webhooks/stripe`: what follows is done later, after Stripe was asked how things are.
async fn take_stripe(
    State(app): State<App>,
    Extension(rates): Extension<Arc<Rates>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = match arrived(request).await {
        Ok(arrived) => arrived,
        Err(unread) => return Ok(did_not_arrive(unread, MOST)),
    };
    let delivery = StripeDelivery { signature: header(&parts, "stripe-signature"), body: &body };
    answered(app.take_stripe_delivery(&delivery).await, &rates, &parts)
}

/// `POST /webhooks/orb`: the same with Orb.
async fn take_orb(
    State(app): State<App>,
    Extension(rates): Extension<Arc<Rates>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = match arrived(request).await {
        Ok(arrived) => arrived,
        Err(unread) => return Ok(did_not_arrive(unread, MOST)),
    };
    let delivery = OrbDelivery {
        timestamp: header(&parts, "x-orb-timestamp"),
        signature: header(&parts, "x-orb-signature"),
        body: &body,
    };
    answered(app.take_orb_delivery(&delivery).await, &rates, &parts)
}

async fn arrived(request: Request) -> Result<(Parts, Received<'static>), Unread> {
    let (parts, body) = request.into_parts();
    let received = BILLING_DELIVERIES.read(body, Senders::of(&parts)).await?;
    Ok((parts, received))
}

fn header<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    parts.headers.get(name).and_then(|value| value.to_str().ok())
}
