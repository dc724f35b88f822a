//! Errors as Vercel reads them: `{error: {code, message, fields}}`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use coppice_core::Error;
use coppice_wire::{VercelError, VercelField, VercelProblem};

use crate::body::{BodyError, named_in};
use crate::context::request_id;

/// Why Vercel is refused something.
#[derive(Debug)]
pub(crate) struct Refused {
    status: StatusCode,
    code: &'static str,
    message: String,
    fields: Vec<VercelField>,
    retry_after_seconds: Option<u32>,
}

impl Refused {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), fields: vec![], retry_after_seconds: None }
    }

    /// The path has no such method.
    pub(crate) fn wrong_method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "method not allowed")
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let (status, code) = match &error {
            Error::Invalid { .. } => (StatusCode::BAD_REQUEST, "validation_error"),
            Error::Forbidden { .. } | Error::InsufficientScope { .. } | Error::Unauthenticated { .. } => {
                (StatusCode::FORBIDDEN, "forbidden")
            }
            Error::NotFound { .. } => (StatusCode::NOT_FOUND, "not_found"),
            Error::Conflict { .. } | Error::NotReady { .. } => (StatusCode::CONFLICT, "conflict"),
            Error::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, "rate_limited"),
            Error::Unavailable { .. } | Error::Timeout { .. } | Error::ProviderFailed { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
            }
            Error::Internal { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
        };
        if let Some(cause) = error.private() {
            tracing::error!(%status, "{error}: {cause}");
        }
        let message = match status.is_server_error() {
            true => format!("{error} (request {})", request_id()),
            false => error.to_string(),
        };
        let field = named_in(&error).map(|(name, message)| VercelField { name, message });
        Self {
            fields: field.into_iter().collect(),
            retry_after_seconds: error.retry_after_seconds(),
            ..Self::new(status, code, message)
        }
    }
}

impl From<BodyError> for Refused {
    fn from(error: BodyError) -> Self {
        let (status, message) = match error {
            BodyError::Api(api) => return api.error.into(),
            BodyError::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "request body is too large"),
            BodyError::Broken => (StatusCode::BAD_REQUEST, "request body did not arrive whole"),
            BodyError::Slow => (StatusCode::REQUEST_TIMEOUT, "request body did not arrive in time"),
            BodyError::MediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "content type must be application/json")
            }
        };
        Self::new(status, "validation_error", message)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Self { status, code, message, fields, retry_after_seconds } = self;
        let error = VercelProblem { code: code.to_owned(), message, fields };
        let mut response = (status, Json(VercelError { error })).into_response();
        if let Some(seconds) = retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
