//! Reading request bodies.

mod fields;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use coppice_core::{Error, ErrorCode};
use serde_json::Value;

use crate::BODY_LIMIT_BYTES;
use crate::arrival::{CALLERS, Senders, Unread, no_room};
use crate::error::{ApiError, with_status};

pub(crate) use fields::Fields;

/// Marks a request whose body was read before, and has its place in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InMemory;

/// A body that was not read: who calls is checked first.
#[derive(Debug)]
pub(crate) struct RawBody {
    content_type: Option<String>,
    is_encoded: bool,
    is_in_memory: bool,
    senders: Senders,
    body: Body,
}

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = std::convert::Infallible;

    async fn from_request(request: Request, _state: &S) -> std::result::Result<Self, Self::Rejection> {
        let text = |headers: &HeaderMap, name| {
            headers.get(name).map(|value| value.to_str().unwrap_or("unreadable").to_owned())
        };
        let content_type = text(request.headers(), CONTENT_TYPE);
        let is_encoded = text(request.headers(), CONTENT_ENCODING)
            .is_some_and(|name| !name.eq_ignore_ascii_case("identity"));
        let is_in_memory = request.extensions().get::<InMemory>().is_some();
        let (parts, body) = request.into_parts();
        Ok(Self { content_type, is_encoded, is_in_memory, senders: Senders::of(&parts), body })
    }
}

/// Why a body was refused.
pub(crate) enum BodyError {
    /// An error of the catalogue.
    Api(ApiError),
    /// 413
    TooLarge,
    /// 400: it did not come to its end.
    Broken,
    /// 408
    Slow,
    /// 415
    MediaType,
}

impl From<Error> for BodyError {
    fn from(error: Error) -> Self {
        Self::Api(error.into())
    }
}

impl From<ApiError> for BodyError {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl From<Unread> for BodyError {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLarge => Self::TooLarge,
            Unread::Broken => Self::Broken,
            Unread::Slow => Self::Slow,
            Unread::NoRoom => no_room().into(),
        }
    }
}

fn invalid_json() -> Error {
    Error::invalid(ErrorCode::InvalidJson, "request body is not valid JSON")
}

fn object_in(bytes: &[u8]) -> std::result::Result<Fields, BodyError> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(fields)) => Ok(Fields::new(fields)),
        Ok(_) | Err(_) => Err(invalid_json().into()),
    }
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        match self {
            Self::Api(error) => error.into_response(),
            Self::TooLarge => with_status(
                StatusCode::PAYLOAD_TOO_LARGE,
                ErrorCode::BodyTooLarge,
                &format!("request body is larger than {BODY_LIMIT_BYTES} bytes"),
            ),
            Self::Broken => with_status(
                StatusCode::BAD_REQUEST,
                ErrorCode::InvalidJson,
                "request body did not arrive whole",
            ),
            Self::Slow => with_status(
                StatusCode::REQUEST_TIMEOUT,
                ErrorCode::BodyTimeout,
                "request body did not arrive in time",
            ),
            Self::MediaType => with_status(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                ErrorCode::UnsupportedMediaType,
                "content type must be application/json",
            ),
        }
    }
}

impl RawBody {
    /// Reads the object the body must be.
    pub(crate) async fn object(self) -> std::result::Result<Fields, BodyError> {
        let media_type =
            self.content_type.as_deref().map(|text| text.split(';').next().unwrap_or_default().trim());
        let is_json = media_type.is_none_or(|name| name.eq_ignore_ascii_case("application/json"));
        if !is_json || self.is_encoded {
            return Err(BodyError::MediaType);
        }
        if self.is_in_memory {
            return object_in(&to_bytes(self.body, BODY_LIMIT_BYTES).await.map_err(|_| BodyError::Broken)?);
        }
        object_in(&CALLERS.read(self.body, self.senders).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_too_large_is_called_so() {
        let statuses = [Unread::TooLarge, Unread::Broken, Unread::Slow, Unread::NoRoom]
            .map(|unread| BodyError::from(unread).into_response().status().as_u16());
        assert_eq!(statuses, [413, 400, 408, 503]);
    }
}
