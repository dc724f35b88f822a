//! Mounts a second protocol (MCP) beside the API, with the same middleware.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Extension;
use axum::http::request::Parts;
use axum::http::response;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use coppice_core::proxies::TrustedProxies;
use serde_json::Value;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;

use crate::arrival::{CALLERS, Senders};
use crate::audience::Audience;
use crate::body::{BodyError, value_in};
use crate::context::Sender;
use crate::error::ApiError;
use crate::identify::{identify, note_route};
use crate::route::RequestRoutes;
use crate::{context, departure, document, limit_time, panicked, remainder};

/// The API with `way` beside it, at paths of its own: answers are made and sent
/// like those of operations. Who may come that way is for it to check.
pub fn beside(api: Router, way: Router, trusted_proxies: TrustedProxies) -> Router {
    let names = Arc::new(RequestRoutes::new(document()));
    way.layer(from_fn(|request, next| limit_time(Audience::Api, request, next)))
        .layer(from_fn_with_state(names, note_route))
        .layer(CatchPanicLayer::custom(|panic| panicked(Audience::Api, &panic)))
        .layer(CompressionLayer::new())
        .layer(from_fn(departure::leave_in_turn))
        .layer(Extension(Arc::new(trusted_proxies)))
        .layer(from_fn(identify))
        .layer(from_fn(remainder::discard_remainder))
        .fallback_service(api)
}

/// Notes for the log who sent what came that way, by what the API answered them.
pub fn note_sender(answered: &response::Parts) {
    if let Some(Sender { kind, holder }) = answered.extensions.get() {
        context::note_caller(kind, holder);
    }
}

/// Reads the JSON that comes that way: of a sender who is known, and with a place
/// in memory until the request is answered. Also as it came.
///
/// # Errors
/// The answer, when it is too large, too slow, no JSON, or there is no room.
pub async fn read_json(parts: &Parts, body: Body) -> Result<(Value, Vec<u8>), Response> {
    let received = CALLERS.read(body, Senders::of(parts)).await;
    let (bytes, place) = received.map_err(|unread| BodyError::from(unread).into_response())?.into_parts();
    context::hold(place);
    let value = value_in(&bytes).map_err(|error| ApiError::from(error).into_response())?;
    Ok((value, bytes))
}
