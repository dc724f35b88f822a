//! What is counted of requests.
//!
//! Labels are bounded: an operation is one of the OpenAPI document or the
//! pattern of a route, never a path as it was sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use parking_lot::Mutex;

use crate::context::Context;
use crate::route::RequestRoute;

const REQUESTS: &str = "coppice_http_requests_total";
const DURATION: &str = "coppice_http_request_duration_seconds";
const IN_FLIGHT: &str = "coppice_http_requests_in_flight";
const RATE_LIMITED: &str = "coppice_http_rate_limited_total";
const AUTHENTICATION_FAILURES: &str = "coppice_http_authentication_failures_total";

/// What the log's line of each request belongs to.
const ACCESS: &str = "coppice_api::access";

/// Requests that came too fast and have no line in the log yet, and when the last line was written: whoever sends
/// them would else write as many lines as they like.
static TOO_FAST: Mutex<(u64, Option<Instant>)> = Mutex::new((0, None));
/// The time between two such lines.
const TOO_FAST_EVERY: Duration = Duration::from_secs(1);

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
        "Requests that came too fast: of a credential, of an address without one, changes of whoever answers for them, or too many in progress."
    );
    describe_counter!(
        AUTHENTICATION_FAILURES,
        "Requests without a valid credential, and wrong passwords on the page to sign in."
    );
    for limit in ["credential", "address", "changes", "progress"] {
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
pub(crate) struct OpenRequest {
    context: Arc<Context>,
    method: &'static str,
    began: Instant,
    is_ended: bool,
}

impl OpenRequest {
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
        if status == StatusCode::TOO_MANY_REQUESTS.as_u16() {
            let count = due(&mut TOO_FAST.lock(), Instant::now());
            if let Some(count) = count {
                tracing::info!(target: ACCESS, count, method, route = %path, status, caller, "requests came too fast; this was the last one");
            }
            tracing::debug!(target: ACCESS, method, route = %path, status, ms, caller, "answered");
        } else if route.is_probe() {
            tracing::debug!(target: ACCESS, method, route = %path, status, ms, caller, "answered");
        } else {
            tracing::info!(target: ACCESS, method, route = %path, status, ms, caller, "answered");
        }
        self.context.clone()
    }

    fn count(&self, status: &'static str, route: &RequestRoute) -> Duration {
        let took = self.began.elapsed();
        let operation = route.operation.clone();
        counter!(REQUESTS, "operation" => operation.clone(), "method" => self.method, "status" => status)
            .increment(1);
        histogram!(DURATION, "operation" => operation, "status" => status).record(took);
        took
    }
}

/// Counts a request that came too fast; how many did since the last line, when the next one is due.
fn due((count, last): &mut (u64, Option<Instant>), now: Instant) -> Option<u64> {
    *count += 1;
    let is_due = last.is_none_or(|last| now.duration_since(last) >= TOO_FAST_EVERY);
    is_due.then(|| {
        *last = Some(now);
        std::mem::take(count)
    })
}

impl Drop for OpenRequest {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_come_too_fast_have_one_line_a_second() {
        let (mut waiting, now) = ((0, None), Instant::now());
        let lines = (0..10_000).filter_map(|at| due(&mut waiting, now + Duration::from_millis(at)));
        assert_eq!(lines.collect::<Vec<_>>(), [1, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000]);
    }
}
