//! What Stripe calls.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use coppice_app::{App, StripeDelivery};

use crate::arrival::{STRIPE_DELIVERIES, Senders};
use crate::error::ApiError;
use crate::github_webhook::{answered, did_not_arrive};
use crate::rates::Rates;

pub(crate) fn routes() -> Router<App> {
    Router::new().route("/webhooks/stripe", post(take)).layer(DefaultBodyLimit::disable())
}

/// `POST /webhooks/stripe`: what follows is done later, after Stripe was asked how things are.
async fn take(
    State(app): State<App>,
    Extension(rates): Extension<Arc<Rates>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let received = match STRIPE_DELIVERIES.read(body, Senders::of(&parts)).await {
        Ok(received) => received,
        Err(unread) => return Ok(did_not_arrive(unread, "5 MiB")),
    };
    let signature = parts.headers.get("stripe-signature").and_then(|value| value.to_str().ok());
    let delivery = StripeDelivery { signature, body: &received };
    answered(app.take_stripe_delivery(&delivery).await, &rates, &parts)
}
