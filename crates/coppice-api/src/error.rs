//! Errors as clients see them: a status and `{message, id}`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use coppice_core::Error;
use coppice_wire::ErrorBody;

use crate::context::request_id;

/// When to come again who finds the platform unable to work.
pub(crate) const UNAVAILABLE_SECONDS: u32 = 30;

/// An error on its way to the client.
#[derive(Debug)]
pub(crate) struct ApiError {
    error: Error,
    /// Stands in for the error's own text, where the text is fixed.
    text: Option<&'static str>,
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self { error, text: None }
    }
}

/// Where the text of every refusal is fixed: an access error keeps its id, and
/// says no more than a bad key would.
pub(crate) fn as_invalid_key(error: Error) -> ApiError {
    let is_refusal = matches!(error, Error::Forbidden { .. } | Error::InsufficientScope { .. });
    ApiError { error, text: is_refusal.then_some("invalid API key") }
}

/// The id of the error that an answer is.
#[derive(Clone, Debug)]
pub(crate) struct ErrorId(pub(crate) String);

/// An error that only HTTP knows.
pub(crate) fn with_status(status: StatusCode, id: &str, message: &str) -> Response {
    let body = ErrorBody { message: message.to_owned(), id: id.to_owned() };
    let mut response = (status, Json(body)).into_response();
    response.extensions_mut().insert(ErrorId(id.to_owned()));
    response
}

fn status(error: &Error) -> StatusCode {
    StatusCode::from_u16(error.status()).expect("statuses of errors are statuses of HTTP")
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { error, text } = self;
        let status = status(&error);
        if let Some(cause) = error.private() {
            tracing::error!(%status, "{error}: {cause}");
        }
        let message = match text {
            Some(text) => text.to_owned(),
            None if status.is_server_error() => format!("{error} (request {})", request_id()),
            None => error.to_string(),
        };
        let mut response = with_status(status, error.code(), &message);
        if let Some((name, value)) = header_of(&error) {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// The header that tells a client what to do about an error.
fn header_of(error: &Error) -> Option<(header::HeaderName, HeaderValue)> {
    match error {
        Error::Unauthenticated { code } => {
            let challenge = match *code {
                "missing_token" => "Bearer realm=\"platform\"",
                _ => "Bearer realm=\"platform\", error=\"invalid_token\"",
            };
            Some((header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge)))
        }
        Error::InsufficientScope { needed } => {
            let challenge =
                format!("Bearer realm=\"platform\", error=\"insufficient_scope\", scope=\"{needed}\"");
            Some((header::WWW_AUTHENTICATE, HeaderValue::from_str(&challenge).ok()?))
        }
        Error::TooMany { retry_after_seconds, .. } => {
            Some((header::RETRY_AFTER, HeaderValue::from(*retry_after_seconds)))
        }
        Error::Unavailable { .. } => Some((header::RETRY_AFTER, HeaderValue::from(UNAVAILABLE_SECONDS))),
        Error::Forbidden { .. }
        | Error::Invalid { .. }
        | Error::NotFound { .. }
        | Error::Conflict { .. }
        | Error::NotReady { .. }
        | Error::Timeout { .. }
        | Error::Internal { .. } => None,
    }
}
