//! The page that Prometheus reads, and who may read it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use aws_lc_rs::constant_time;
use axum::extract::{Extension, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use coppice_core::{Error, ErrorCode};

use crate::client_address::{client_address, is_from_this_machine};
use crate::error::{ApiError, with_status};
use crate::hosts::{Hosts, is_sent_by_a_page};
use crate::metrics::authentication_failed;
use crate::proof::bearer_of;
use crate::rates::Rates;

/// The format of the page (<https://prometheus.io/docs/instrumenting/exposition_formats>).
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

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

    /// Makes a token; none when the text is too short, or can't be sent in a header.
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
    fn a_token_is_compared_and_never_shown() {
        assert!(MetricsToken::new("short").is_none());
        assert!(MetricsToken::new("sixteen letters and blanks").is_none());
        let token = MetricsToken::new("0123456789abcdef").expect("long enough");
        assert!(token.is("0123456789abcdef"));
        assert!(!token.is("0123456789abcdeg") && !token.is("") && !token.is("0123456789abcdef0"));
        assert!(!format!("{token:?}").contains("0123"));
    }
}
