//! What belongs to the request being answered: its id, and what its caller has
//! left of its rate.

use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use crate::rates::RateState;

pub(crate) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static CURRENT: Arc<Context>;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Context {
    id: String,
    rate: OnceLock<RateState>,
}

/// The id of the request being answered.
pub(crate) fn request_id() -> String {
    CURRENT.try_with(|current| current.id.clone()).unwrap_or_default()
}

/// Notes what is left of the caller's rate, for the headers of the answer.
pub(crate) fn note_rate(rate: RateState) {
    let _ = CURRENT.try_with(|current| current.rate.set(rate));
}

/// Goes on with the request in a task of its own, so that a client that goes
/// away does not stop it half-way.
pub(crate) async fn detached<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    let span = tracing::Span::current();
    match CURRENT.try_with(Arc::clone) {
        Ok(current) => tokio::spawn(CURRENT.scope(current, work).instrument(span)).await,
        Err(_) => tokio::spawn(work.instrument(span)).await,
    }
}

/// Gives the request an id, keeps it for the log and sends it back.
pub(crate) async fn identify(request: Request, next: Next) -> Response {
    let sent = request.headers().get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let is_usable =
        |id: &&str| (1..=100).contains(&id.len()) && id.bytes().all(|b| (b' '..=b'~').contains(&b));
    let id = match sent.filter(is_usable) {
        Some(id) => id.to_owned(),
        None => format!("req_{}", coppice_core::BranchId::generate()),
    };
    let is_options = request.method() == Method::OPTIONS;
    let span = tracing::info_span!("request", id);
    let context = Arc::new(Context { id, rate: OnceLock::new() });
    let mut response = CURRENT.scope(context.clone(), next.run(request)).instrument(span).await;
    if is_options && response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    if response.status() == StatusCode::NO_CONTENT {
        response.headers_mut().remove(header::CONTENT_TYPE);
    }
    context.write_to(response.headers_mut());
    response
}

impl Context {
    fn write_to(&self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::from_str(&self.id) {
            headers.insert(REQUEST_ID.clone(), value);
        }
        if let Some(rate) = self.rate.get() {
            headers.insert("ratelimit-limit", HeaderValue::from(rate.limit));
            headers.insert("ratelimit-remaining", HeaderValue::from(rate.remaining));
            headers.insert("ratelimit-reset", HeaderValue::from(rate.reset_seconds));
        }
    }
}
