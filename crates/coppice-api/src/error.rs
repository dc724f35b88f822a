//! Errors as clients see them: a status and `{message, id}`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use coppice_core::{Error, ErrorCode, ErrorKind};
use coppice_wire::ErrorBody;

use crate::context::request_id;

/// An error on its way to the client.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) error: Error,
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

/// Where only 401 is documented, an access error is one, with its own id.
pub(crate) fn as_unauthenticated(error: Error) -> ApiError {
    let error = match error {
        Error::Forbidden { code, .. } => Error::Unauthenticated { code },
        Error::InsufficientScope { .. } => Error::Unauthenticated { code: ErrorCode::InsufficientScope },
        other => other,
    };
    error.into()
}

/// The id of the error that an answer is.
#[derive(Clone, Debug)]
pub(crate) struct ErrorId(pub(crate) ErrorCode);

/// An error that only HTTP knows.
pub(crate) fn with_status(status: StatusCode, id: ErrorCode, message: &str) -> Response {
    let body = ErrorBody { message: message.to_owned(), id: id.to_string() };
    let mut response = (status, Json(body)).into_response();
    response.extensions_mut().insert(ErrorId(id));
    response
}

/// The status of an answer that is an error of this kind.
pub fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::NotReady => StatusCode::PRECONDITION_FAILED,
        ErrorKind::TooMany => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorKind::ProviderFailed => StatusCode::BAD_GATEWAY,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { error, text } = self;
        let status = status_of(error.kind());
        if let Some(cause) = error.private() {
            tracing::error!(%status, "{error}: {cause}");
        }
        let message = match text {
            Some(text) => text.to_owned(),
            None if status.is_server_error() => format!("{error} (request {})", request_id()),
            None => error.to_string(),
        };
        let mut response = with_status(status, error.code(), &message);
        if let Some(challenge) = challenge_of(&error) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = error.retry_after_seconds() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// What tells a client which credential is wanted.
fn challenge_of(error: &Error) -> Option<HeaderValue> {
    match error {
        Error::Unauthenticated { code: ErrorCode::MissingToken } => {
            Some(HeaderValue::from_static("Bearer realm=\"platform\""))
        }
        Error::Unauthenticated { .. } => {
            Some(HeaderValue::from_static("Bearer realm=\"platform\", error=\"invalid_token\""))
        }
        Error::InsufficientScope { needed } => {
            let challenge =
                format!("Bearer realm=\"platform\", error=\"insufficient_scope\", scope=\"{needed}\"");
            HeaderValue::from_str(&challenge).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_come_again_is_told_when() {
        let code = ErrorCode::RateLimited;
        let busy = Error::Conflict { code: ErrorCode::BranchBusy, public: String::new() };
        let taken = Error::Conflict { code: ErrorCode::BranchNameTaken, public: String::new() };
        let parent = Error::NotReady { code: ErrorCode::ParentNotReady, public: String::new() };
        let many = Error::TooMany { code, public: String::new(), retry_after_seconds: 7 };
        for (error, expected) in [
            (busy, Some("1")),
            (parent, Some("1")),
            (taken, None),
            (many, Some("7")),
            (Error::unavailable("a test"), Some("30")),
        ] {
            let response = ApiError::from(error).into_response();
            let said = response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().expect("text"));
            assert_eq!(said, expected);
        }
    }
}
