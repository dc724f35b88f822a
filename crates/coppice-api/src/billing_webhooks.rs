//! What Stripe, Orb and Vercel call.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use coppice_app::{App, OrbDelivery, StripeDelivery, VercelDelivery};
use coppice_core::{Error, ErrorCode};

use crate::arrival::{BILLING_DELIVERIES, Senders};
use crate::client_address::client_address;
use crate::delivered::{answered, did_not_arrive};
use crate::error::ApiError;
use crate::rates::Rates;

/// The largest delivery, for people.
const MOST: &str = "5 MiB";

/// Who calls.
#[derive(Clone, Copy)]
enum Caller {
    Stripe,
    Orb,
    Vercel,
}

/// `POST /webhooks/stripe`, `POST /webhooks/orb` and `POST /webhooks/vercel`
pub(crate) fn routes() -> Router<App> {
    let of = |caller| post(move |app, rates, request| take(caller, app, rates, request));
    Router::new()
        .route("/webhooks/stripe", of(Caller::Stripe))
        .route("/webhooks/orb", of(Caller::Orb))
        .route("/webhooks/vercel", of(Caller::Vercel))
        .layer(DefaultBodyLimit::disable())
}

/// What follows is done later; Stripe and Orb are asked how things are before.
async fn take(
    caller: Caller,
    State(app): State<App>,
    Extension(rates): Extension<Arc<Rates>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let address = client_address(&parts);
    if !is_configured(caller, &app) {
        // Whatever it is, nothing here could have signed it.
        let refused = Error::invalid(ErrorCode::InvalidSignature, "invalid signature");
        return answered(Err(refused), &rates, &parts);
    }
    let _stranger = rates.progress.stranger(address).await?;
    let body = match BILLING_DELIVERIES.read(body, Senders::of(&parts)).await {
        Ok(body) => body,
        Err(unread) => return Ok(did_not_arrive(unread, MOST)),
    };
    let header = |name| header(&parts, name);
    let taken = match caller {
        Caller::Stripe => {
            let delivery = StripeDelivery { signature: header("stripe-signature"), body: &body };
            app.stripe.take_delivery(&delivery).await
        }
        Caller::Orb => {
            let (timestamp, signature) = (header("x-orb-timestamp"), header("x-orb-signature"));
            app.orb.take_delivery(&OrbDelivery { timestamp, signature, body: &body }).await
        }
        Caller::Vercel => {
            let delivery = VercelDelivery { signature: header("x-vercel-signature"), body: &body };
            app.vercel.take_delivery(&delivery).await
        }
    };
    answered(taken, &rates, &parts)
}

/// Whether anybody calls who can prove it.
fn is_configured(caller: Caller, app: &App) -> bool {
    match caller {
        Caller::Stripe => app.stripe.is_there(),
        Caller::Orb => app.orb.is_there(),
        Caller::Vercel => app.vercel.is_there(),
    }
}

fn header<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    parts.headers.get(name).and_then(|value| value.to_str().ok())
}
