//! The outermost layers of every request: its id, where it goes, and what is
//! counted of it.

use std::sync::{Arc, Weak};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use crate::connections::Asked;
use crate::context::{self, Context, REQUEST_ID};
use crate::metrics::OpenRequest;
use crate::pace::AnsweredFor;
use crate::route::RequestRoutes;

/// Gives the request an id, keeps it for the log and sends it back.
pub(crate) async fn identify(mut request: Request, next: Next) -> Response {
    let sent = request.headers().get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let is_usable =
        |id: &&str| (1..=100).contains(&id.len()) && id.bytes().all(|b| (b' '..=b'~').contains(&b));
    let id = match sent.filter(is_usable) {
        Some(id) => id.to_owned(),
        None => format!("req_{}", coppice_core::id::random_text()),
    };
    let is_options = request.method() == Method::OPTIONS;
    let span = tracing::info_span!("request", request_id = id);
    if let Ok(value) = HeaderValue::from_str(&id) {
        // What is asked on behalf of this request is found under the same id.
        request.headers_mut().insert(REQUEST_ID.clone(), value);
    }
    let asked = request.extensions().get::<Weak<Asked>>().cloned().unwrap_or_default();
    let context = Arc::new(Context::new(id, asked));
    let observed = OpenRequest::begin(request.method(), context.clone());
    context::within(context, answer(request, next, is_options, observed)).instrument(span).await
}

async fn answer(request: Request, next: Next, is_options: bool, observed: OpenRequest) -> Response {
    let mut response = next.run(request).await;
    if is_options && response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    if response.status() == StatusCode::NO_CONTENT {
        response.headers_mut().remove(header::CONTENT_TYPE);
    }
    let context = observed.end(response.status());
    context.write_to(response.headers_mut());
    // For whoever stands around the router.
    response.extensions_mut().insert(context.route());
    if let Some(sender) = context.sender() {
        response.extensions_mut().insert(sender.clone());
        if response.status() != StatusCode::TOO_MANY_REQUESTS {
            response.extensions_mut().insert(AnsweredFor);
        }
    }
    response
}

/// Notes where the request went, for whoever counts it.
pub(crate) async fn note_route(
    State(routes): State<Arc<RequestRoutes>>,
    request: Request,
    next: Next,
) -> Response {
    if let Some(pattern) = request.extensions().get::<MatchedPath>() {
        context::note_route(routes.find(request.method(), pattern.as_str()));
    }
    next.run(request).await
}
