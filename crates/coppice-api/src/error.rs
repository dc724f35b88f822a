//! Errors as clients see them: a status and `{message, id}`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use coppice_core::Error;
use coppice_wire::ErrorBody;

use crate::current_request_id;

/// An error on its way to the client.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) Error);

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

/// An error that only HTTP knows.
pub(crate) fn with_status(status: StatusCode, id: &str, message: &str) -> Response {
    let body = ErrorBody { message: message.to_owned(), id: id.to_owned() };
    (status, Json(body)).into_response()
}

fn status(error: &Error) -> StatusCode {
    match error {
        Error::Invalid { .. } => StatusCode::BAD_REQUEST,
        Error::Unauthenticated { .. } => StatusCode::UNAUTHORIZED,
        Error::Forbidden { .. } => StatusCode::FORBIDDEN,
        Error::NotFound { .. } => StatusCode::NOT_FOUND,
        Error::Conflict { .. } => StatusCode::CONFLICT,
        Error::NotReady { .. } => StatusCode::PRECONDITION_FAILED,
        Error::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
        Error::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
        Error::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        Error::Internal { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = self.0;
        let status = status(&error);
        let request = current_request_id();
        if let Some(cause) = error.private() {
            tracing::error!(%request, %status, "{error}: {cause}");
        }
        let message =
            if status.is_server_error() { format!("{error} (request {request})") } else { error.to_string() };
        let mut response = with_status(status, error.code(), &message);
        let headers = response.headers_mut();
        match &error {
            Error::Unauthenticated { code } => {
                let challenge = match *code {
                    "missing_token" => "Bearer realm=\"platform\"",
                    _ => "Bearer realm=\"platform\", error=\"invalid_token\"",
                };
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
            Error::TooMany { retry_after_seconds, .. } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(*retry_after_seconds));
            }
            Error::Unavailable { .. } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(30));
            }
            Error::Forbidden { .. }
            | Error::Invalid { .. }
            | Error::NotFound { .. }
            | Error::Conflict { .. }
            | Error::NotReady { .. }
            | Error::Timeout { .. }
            | Error::Internal { .. } => {}
        }
        response
    }
}
