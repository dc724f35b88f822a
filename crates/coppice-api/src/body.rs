//! Reading request bodies.

mod format;
mod length;
mod place;
mod shape;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use coppice_core::{Error, ErrorCode, Result};
use serde_json::{Value, json};

use crate::arrival::{Unread, no_room};
use crate::entry::Entry;
use crate::error::{ApiError, with_status};
use crate::json as json_text;
use crate::{BODY_LIMIT_BYTES, context};

pub(crate) use format::Format;
pub(crate) use place::{Place, named_in};
pub(crate) use shape::{Shape, Unbounded};

/// Most values in a body, with those that nobody asks for. The largest question
/// that makes sense, about logs, has some 2,200.
const VALUES_MAX: usize = 10_000;

/// Marks a request whose body was read before, and has its place in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InMemory;

/// A body that was not read: who calls is checked first.
#[derive(Debug)]
pub(crate) struct RawBody {
    content_type: Option<String>,
    is_encoded: bool,
    is_in_memory: bool,
    entry: Entry,
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
        Ok(Self { content_type, is_encoded, is_in_memory, entry: Entry::of(&parts), body })
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

fn not_json() -> Error {
    Error::invalid(ErrorCode::InvalidJson, "request body is not valid JSON")
}

fn object_in(bytes: &[u8]) -> Result<Value> {
    match value_in(bytes)? {
        object @ Value::Object(_) => Ok(object),
        _ => Err(not_json()),
    }
}

/// What a body says.
pub(crate) fn value_in(bytes: &[u8]) -> Result<Value> {
    json_text::read(bytes, VALUES_MAX).map_err(|unread| match unread {
        json_text::Unread::Invalid => not_json(),
        json_text::Unread::TooMany => {
            let public = format!("request body accepts at most {VALUES_MAX} items");
            Error::invalid(ErrorCode::TooManyItems, public)
        }
    })
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
    /// Makes what is wanted out of the object that the body must be. The object
    /// takes many times as much memory as its text: nobody has it for longer
    /// than that takes. The place of the text is given back with the answer,
    /// for what was read may have as many bytes.
    pub(crate) async fn read<T>(
        self,
        wanted: impl FnOnce(Value) -> Result<T>,
    ) -> std::result::Result<T, BodyError> {
        self.read_by(object_in, wanted).await
    }

    /// As [`RawBody::read`]; without a body, out of an object without fields.
    pub(crate) async fn read_optional<T>(
        self,
        wanted: impl FnOnce(Value) -> Result<T>,
    ) -> std::result::Result<T, BodyError> {
        let read = |bytes: &[u8]| if bytes.is_empty() { Ok(json!({})) } else { object_in(bytes) };
        self.read_by(read, wanted).await
    }

    async fn read_by<T>(
        self,
        read: impl FnOnce(&[u8]) -> Result<Value>,
        wanted: impl FnOnce(Value) -> Result<T>,
    ) -> std::result::Result<T, BodyError> {
        let media_type =
            self.content_type.as_deref().map(|text| text.split(';').next().unwrap_or_default().trim());
        let is_json = media_type.is_none_or(|name| name.eq_ignore_ascii_case("application/json"));
        if !is_json || self.is_encoded {
            return Err(BodyError::MediaType);
        }
        if self.is_in_memory {
            let bytes = to_bytes(self.body, BODY_LIMIT_BYTES).await.map_err(|_| BodyError::Broken)?;
            return Ok(wanted(read(&bytes)?)?);
        }
        let (bytes, place) = self.entry.read::<BodyError>(self.body).await?.into_parts();
        context::hold(place);
        Ok(wanted(read(&bytes)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_becomes_no_more_than_its_questions_need() {
        let unread = vec![r#"{"":0}"#; 100_000].join(",");
        let refused = object_in(format!(r#"{{"name":"a","x":[{unread}]}}"#).as_bytes()).expect_err("refused");
        assert_eq!(refused.code(), ErrorCode::TooManyItems);
        assert_eq!(refused.to_string(), "request body accepts at most 10000 items");
        let values = vec![r#""a""#; 100].join(",");
        let filters = vec![format!(r#"{{"field":"body","op":"regex","values":[{values}]}}"#); 20].join(",");
        let body = format!(r#"{{"start":"a","end":"b","limit":1,"cursor":"c","filters":[{filters}]}}"#);
        assert!(object_in(body.as_bytes()).is_ok(), "the largest question");
    }

    #[test]
    fn only_what_is_too_large_is_called_so() {
        let statuses = [Unread::TooLarge, Unread::Broken, Unread::Slow, Unread::NoRoom]
            .map(|unread| BodyError::from(unread).into_response().status().as_u16());
        assert_eq!(statuses, [413, 400, 408, 503]);
    }
}
