//! What is counted of requests, and the page that Prometheus reads.
//!
//! Labels are bounded: an operation is one of the OpenAPI document or the
//! pattern of a route, never a path as it was sent.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time;
use axum::extract::{Extension, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use coppice_core::{Error, ErrorCode};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use utoipa::openapi::OpenApi;

use crate::client_address::{client_address, is_from_this_machine};
use crate::connections::Ending;
use crate::context::{self, Context};
use crate::error::{ApiError, with_status};
use crate::hosts::{Hosts, is_sent_by_a_page};
use crate::rates::Rates;
use crate::request::bearer_of;

const REQUESTS: &str = "coppice_http_requests_total";
const DURATION: &str = "coppice_http_request_duration_seconds";
const IN_FLIGHT: &str = "coppice_http_requests_in_flight";
const RATE_LIMITED: &str = "coppice_http_rate_limited_total";
const AUTHENTICATION_FAILURES: &str = "coppice_http_authentication_failures_total";
pub(crate) const CONNECTIONS: &str = "coppice_http_connections";
pub(crate) const CONNECTIONS_REFUSED: &str = "coppice_http_connections_refused_total";
pub(crate) const CONNECTIONS_ENDED: &str = "coppice_http_connections_ended_total";

/// What the log's line of each request belongs to.
const ACCESS: &str = "coppice_api::access";
/// The format of the page (<https://prometheus.io/docs/instrumenting/exposition_formats>).
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Says what the API counts, and begins with zero.
pub(crate) fn describe() {
    describe_counter!(REQUESTS, "Answered requests by operation, method and class of the status.");
    describe_histogram!(
        DURATION,
        "Seconds until a request was answered, by operation and class of the status."
    );
    describe_gauge!(IN_FLIGHT, "Requests that are being answered.");
    describe_counter!(
        RATE_LIMITED,
        "Requests that came too fast, of a credential or of an address without one."
    );
    describe_counter!(
        AUTHENTICATION_FAILURES,
        "Requests without a valid credential, and wrong passwords on the page to sign in."
    );
    describe_gauge!(CONNECTIONS, "Connections that are held.");
    describe_counter!(CONNECTIONS_REFUSED, "Connections for which there was no room, by limit.");
    describe_counter!(CONNECTIONS_ENDED, "Connections that were ended for want of a request, by reason.");
    gauge!(CONNECTIONS).set(0.0);
    for limit in ["total", "address"] {
        counter!(CONNECTIONS_REFUSED, "limit" => limit).absolute(0);
    }
    for ending in [Ending::FirstRequest, Ending::Idle, Ending::Displaced, Ending::Unread] {
        counter!(CONNECTIONS_ENDED, "reason" => ending.label()).absolute(0);
    }
    for limit in ["credential", "address"] {
        counter!(RATE_LIMITED, "limit" => limit).absolute(0);
    }
    counter!(AUTHENTICATION_FAILURES).absolute(0);
    gauge!(IN_FLIGHT).set(0.0);
}

/// Counts a request that came too fast.
pub(crate) fn rate_limited(limit: &'static str) {
    counter!(RATE_LIMITED, "limit" => limit).increment(1);
}

/// Counts a request without a valid credential, or a wrong password.
pub(crate) fn authentication_failed() {
    counter!(AUTHENTICATION_FAILURES).increment(1);
}

/// Where a request went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The id of the operation; of routes without one their pattern.
    pub operation: Arc<str>,
    /// The pattern of its path.
    pub pattern: Arc<str>,
}

impl Route {
    fn new(operation: &str, pattern: &str) -> Self {
        Self { operation: operation.into(), pattern: pattern.into() }
    }

    /// Where requests for no known path went.
    pub(crate) fn unknown() -> Self {
        Self::new("unknown", "unknown")
    }

    /// Whether it is asked by machines that look after this one, all the time.
    fn is_probe(&self) -> bool {
        matches!(&*self.pattern, "/healthz" | "/readyz" | "/metrics")
    }
}

/// Operations by pattern and method.
#[derive(Debug)]
pub(crate) struct Routes(HashMap<String, Vec<(Method, Arc<Route>)>>);

impl Routes {
    pub(crate) fn new(document: &OpenApi) -> Self {
        let paths = document.paths.paths.iter().map(|(path, item)| {
            let operations = [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::PATCH, &item.patch),
                (Method::DELETE, &item.delete),
            ];
            let named = operations.into_iter().filter_map(|(method, documented)| {
                let id = documented.as_ref()?.operation_id.as_deref()?;
                Some((method, Arc::new(Route::new(id, path))))
            });
            (path.clone(), named.collect())
        });
        Self(paths.collect())
    }

    fn find(&self, method: &Method, pattern: &str) -> Arc<Route> {
        // HEAD is GET without a body.
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let of_path = self.0.get(pattern).into_iter().flatten();
        let mut known = of_path.filter(|(known, _)| known == method).map(|(_, route)| route.clone());
        known.next().unwrap_or_else(|| Arc::new(Route::new(pattern, pattern)))
    }
}

/// Notes where the request went, for whoever counts it.
pub(crate) async fn note_route(State(routes): State<Arc<Routes>>, request: Request, next: Next) -> Response {
    if let Some(pattern) = request.extensions().get::<MatchedPath>() {
        context::note_route(routes.find(request.method(), pattern.as_str()));
    }
    next.run(request).await
}

/// Methods that are told apart; others are one.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "OTHER",
    }
}

fn status_class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        100..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}

/// A request that is being answered. It is counted when it ends, also when
/// its client goes away before.
pub(crate) struct Observed {
    context: Arc<Context>,
    method: &'static str,
    began: Instant,
    is_ended: bool,
}

impl Observed {
    pub(crate) fn begin(method: &Method, context: Arc<Context>) -> Self {
        gauge!(IN_FLIGHT).increment(1.0);
        Self { context, method: method_label(method), began: Instant::now(), is_ended: false }
    }

    /// Counts it, and writes its line into the log.
    pub(crate) fn end(mut self, status: StatusCode) -> Arc<Context> {
        self.is_ended = true;
        let (route, caller) = (self.context.route(), self.context.caller());
        let took = self.count(status_class(status), &route);
        let (method, path, status) = (self.method, &route.pattern, status.as_u16());
        let ms = took.as_micros() as f64 / 1000.0;
        if route.is_probe() {
            tracing::debug!(target: ACCESS, method, route = %path, status, ms, caller, "answered");
        } else {
            tracing::info!(target: ACCESS, method, route = %path, status, ms, caller, "answered");
        }
        self.context.clone()
    }

    fn count(&self, status: &'static str, route: &Route) -> Duration {
        let took = self.began.elapsed();
        let operation = route.operation.clone();
        counter!(REQUESTS, "operation" => operation.clone(), "method" => self.method, "status" => status)
            .increment(1);
        histogram!(DURATION, "operation" => operation, "status" => status).record(took);
        took
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        gauge!(IN_FLIGHT).decrement(1.0);
        if !self.is_ended {
            let route = self.context.route();
            let took = self.count("aborted", &route);
            let (method, ms) = (self.method, took.as_micros() as f64 / 1000.0);
            tracing::info!(target: ACCESS, method, route = %route.pattern, ms, "the client left before it was answered");
        }
    }
}

/// Makes the page that Prometheus reads.
pub trait Exposition: Send + Sync + 'static {
    /// Everything that is counted, as it is now.
    fn text(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>>;
}

/// Lets whoever has it read the page from anywhere.
#[derive(Clone, PartialEq, Eq)]
pub struct MetricsToken(Arc<str>);

impl fmt::Debug for MetricsToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsToken(…)")
    }
}

impl MetricsToken {
    /// Shortest one that is taken, in bytes.
    pub const LENGTH_MIN: usize = 16;

    /// None when it is too short to be one, or can't be sent as a header.
    pub fn new(text: &str) -> Option<Self> {
        let is_sendable = text.bytes().all(|byte| byte.is_ascii_graphic());
        (text.len() >= Self::LENGTH_MIN && is_sendable).then(|| Self(text.into()))
    }

    fn is(&self, sent: &str) -> bool {
        constant_time::verify_slices_are_equal(self.0.as_bytes(), sent.as_bytes()).is_ok()
    }
}

/// Who may read the page, and who makes it.
#[derive(Clone)]
pub(crate) struct MetricsPage {
    pub(crate) exposition: Arc<dyn Exposition>,
    pub(crate) token: Option<MetricsToken>,
}

/// `GET /metrics`
pub(crate) async fn metrics_page(
    Extension(page): Extension<MetricsPage>,
    Extension(rates): Extension<Arc<Rates>>,
    Extension(hosts): Extension<Arc<Hosts>>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    if let Err(refusal) = page.admit(&parts, &rates, &hosts) {
        return refusal;
    }
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], page.exposition.text().await).into_response()
}

impl MetricsPage {
    /// With a token only who has it is admitted; without one, only this machine.
    #[expect(clippy::result_large_err, reason = "it is answered at once")]
    fn admit(&self, parts: &Parts, rates: &Rates, hosts: &Hosts) -> Result<(), Response> {
        let Some(token) = &self.token else {
            let is_called_here = hosts.are_called(&parts.uri, &parts.headers) && !is_sent_by_a_page(parts);
            return if is_from_this_machine(parts) && is_called_here { Ok(()) } else { Err(elsewhere()) };
        };
        let code = match bearer_of(&parts.headers) {
            Some(sent) if token.is(sent) => return Ok(()),
            Some(_) => ErrorCode::InvalidToken,
            None => ErrorCode::MissingToken,
        };
        authentication_failed();
        let refused = rates.admit_address(client_address(parts)).err();
        Err(ApiError::from(refused.unwrap_or(Error::Unauthenticated { code })).into_response())
    }
}

fn elsewhere() -> Response {
    let message = "metrics are for this machine itself, without a proxy: ask 127.0.0.1, or start the platform \
                   with --metrics-token-file to read them from elsewhere";
    with_status(StatusCode::FORBIDDEN, ErrorCode::LoopbackRequired, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_its_operation_or_its_pattern() {
        let routes = Routes::new(&crate::document());
        let pattern = "/organizations/{organizationID}";
        for (method, pattern, expected) in [
            (Method::GET, pattern, "getOrganization"),
            (Method::HEAD, pattern, "getOrganization"),
            (Method::DELETE, pattern, "deleteOrganization"),
            (Method::POST, pattern, pattern),
            (Method::GET, "/healthz", "/healthz"),
        ] {
            assert_eq!(&*routes.find(&method, pattern).operation, expected);
        }
    }

    #[test]
    fn a_token_is_compared_and_never_shown() {
        assert!(MetricsToken::new("short").is_none());
        assert!(MetricsToken::new("sixteen letters and blanks").is_none());
        let token = MetricsToken::new("0123456789abcdef").expect("long enough");
        assert!(token.is("0123456789abcdef"));
        assert!(!token.is("0123456789abcdeg") && !token.is("") && !token.is("0123456789abcdef0"));
        assert!(!format!("{token:?}").contains("0123"));
    }
}
