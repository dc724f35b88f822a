//! SQL over HTTP, as serverless drivers speak it, and the PostgreSQL protocol
//! in a WebSocket.
//!
//! A request says by its headers where to and as whom. It enters the gateway as
//! any client does, with the password of its connection string, so who may
//! connect, from where, and what wakes is decided there. Only who got a session
//! has its body read.

mod frames;
mod leaving;
mod query;
mod refused;
mod script;
pub(crate) mod session;
mod tunnel;
mod wanted;
mod websocket;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use coppice_core::proxies::TrustedProxies;
use coppice_gateway::Gateway;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::SizeAbove;
use tower_http::cors::{AllowHeaders, Any, CorsLayer};

use self::refused::Refused;
pub(crate) use self::script::console_routes;
use crate::context::REQUEST_ID;
use crate::identify::{identify, note_route};
use crate::remainder::discard_remainder;
use crate::route::RequestRoutes;

/// Shorter answers are sent faster than they are compressed.
const COMPRESSED_FROM_BYTES: u64 = 8 << 10;

/// What branches are reached by over HTTP, with what every request meets.
pub fn gateway_routes(gateway: Arc<Gateway>, trusted_proxies: TrustedProxies) -> Router {
    let names = Arc::new(RequestRoutes::new(crate::document()));
    Router::new()
        .route("/sql", post(query::query))
        // One trailing slash is ignored.
        .route("/sql/", post(query::query))
        .route("/v2", get(websocket::websocket))
        .route("/v2/", get(websocket::websocket))
        .method_not_allowed_fallback(wrong_method)
        .with_state(gateway)
        .layer(Extension(Arc::new(trusted_proxies)))
        .layer(from_fn_with_state(names, note_route))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(CompressionLayer::new().compress_when(SizeAbove::new(COMPRESSED_FROM_BYTES)))
        .layer(cors())
        .layer(from_fn(identify))
        .layer(from_fn(discard_remainder))
}

/// Pages of everybody may ask: what lets in is the password.
fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET, Method::POST, Method::OPTIONS])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([REQUEST_ID.clone(), header::RETRY_AFTER, HeaderName::from_static("deprecation")])
        .max_age(Duration::from_secs(86_400))
}

async fn wrong_method() -> Refused {
    Refused::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "method not allowed")
}

fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!("SQL over HTTP panicked: {}", words.unwrap_or("without words"));
    Refused::internal().into_response()
}
