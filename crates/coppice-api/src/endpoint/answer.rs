//! What an operation answers when all goes well.

use aws_lc_rs::digest::{SHA256, digest};
use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use coppice_core::{Error, Result};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder};

use super::Schemas;
use crate::error::ApiError;
use crate::wishes::Wishes;

/// What another form may do in a browser: look as it says itself, and nothing else.
const TEXT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";

/// 200 with what is there.
#[derive(Debug)]
pub(crate) struct Shown<T>(pub(crate) T);

/// 200 with what is there and its `ETag`, or 304 to who has it already.
#[derive(Debug)]
pub(crate) struct Tagged<T>(pub(crate) T);

/// 200 with what is there, in another form if that is wished for.
#[derive(Debug)]
pub(crate) struct Written<T> {
    pub(crate) shown: T,
    /// The media type that it is to be, or JSON; without it the caller's `Accept` decides.
    pub(crate) kind: Option<&'static str>,
}

/// What can also be shown otherwise than as JSON.
pub(crate) trait Forms: Sized {
    /// The media types.
    const KINDS: &'static [&'static str];

    /// The body of the answer in one of the kinds. Texts are in UTF-8.
    fn form(self, kind: &str) -> impl Future<Output = Result<Vec<u8>>> + Send;

    /// What a browser saves one of them as; without a name it shows it.
    fn file_name(&self, _kind: &str) -> Option<String> {
        None
    }
}

/// 201 with what was made.
#[derive(Debug)]
pub(crate) struct Made<T>(pub(crate) T);

/// 202: it will be done.
#[derive(Debug)]
pub(crate) struct Begun;

/// 204: it is done.
#[derive(Debug)]
pub(crate) struct Done;

/// An answer of one status.
pub(crate) trait Answer: Send + 'static {
    /// The status.
    const STATUS: StatusCode;
    /// Whether it says by an `ETag` which one it is.
    const IS_TAGGED: bool = false;

    /// Writes its body into the document.
    fn document(response: ResponseBuilder, schemas: &mut Schemas) -> ResponseBuilder;

    /// Sends it in the form in which it is wished for.
    fn send(self, wishes: &Wishes) -> impl Future<Output = Response> + Send;
}

fn with_body<T: ToSchema>(response: ResponseBuilder, schemas: &mut Schemas) -> ResponseBuilder {
    super::add::<T>(schemas);
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(T::name()))).build();
    response.content("application/json", content)
}

impl<T: Serialize + ToSchema + Send + 'static> Answer for Shown<T> {
    const STATUS: StatusCode = StatusCode::OK;

    fn document(response: ResponseBuilder, schemas: &mut Schemas) -> ResponseBuilder {
        with_body::<T>(response, schemas)
    }

    async fn send(self, _: &Wishes) -> Response {
        Json(self.0).into_response()
    }
}

impl<T: Forms + Serialize + ToSchema + Send + 'static> Answer for Written<T> {
    const STATUS: StatusCode = StatusCode::OK;

    fn document(response: ResponseBuilder, schemas: &mut Schemas) -> ResponseBuilder {
        let schema = |kind: &str| {
            let text = ObjectBuilder::new().schema_type(Type::String);
            match is_text(kind) {
                true => text,
                false => text.format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary))),
            }
        };
        T::KINDS.iter().fold(with_body::<T>(response, schemas), |response, kind| {
            response.content(*kind, ContentBuilder::new().schema(Some(schema(kind))).build())
        })
    }

    async fn send(self, wishes: &Wishes) -> Response {
        let wished = || T::KINDS.iter().copied().find(|kind| wishes.kind.as_deref() == Some(kind));
        let Some(kind) = self.kind.or_else(wished).filter(|kind| T::KINDS.contains(kind)) else {
            return Json(self.shown).into_response();
        };
        let name = self.shown.file_name(kind);
        let bytes = match self.shown.form(kind).await {
            Ok(bytes) => bytes,
            Err(error) => return ApiError::from(error).into_response(),
        };
        let charset = if is_text(kind) { "; charset=utf-8" } else { "" };
        let kind = format!("{kind}{charset}");
        let saved = name.map(|name| [(CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\""))]);
        ([(CONTENT_TYPE, kind.as_str()), (CONTENT_SECURITY_POLICY, TEXT_POLICY)], saved, bytes)
            .into_response()
    }
}

fn is_text(kind: &str) -> bool {
    kind.starts_with("text/")
}

impl<T: Serialize + ToSchema + Send + 'static> Answer for Tagged<T> {
    const STATUS: StatusCode = StatusCode::OK;
    const IS_TAGGED: bool = true;

    fn document(response: ResponseBuilder, schemas: &mut Schemas) -> ResponseBuilder {
        with_body::<T>(response, schemas)
    }

    async fn send(self, wishes: &Wishes) -> Response {
        let body = match serde_json::to_vec(&self.0) {
            Ok(body) => body,
            Err(error) => return ApiError::from(Error::internal(error)).into_response(),
        };
        let digest = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, &body));
        // A weak one: compressed or not, it is the same.
        let tag = format!("W/\"{digest}\"");
        let known = wishes.known_tag.as_deref();
        let is_known = known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag));
        // Whoever keeps it asks each time whether it is still so.
        let headers = [(ETAG, tag), (CACHE_CONTROL, "private, no-cache".to_owned())];
        match is_known {
            true => (StatusCode::NOT_MODIFIED, headers).into_response(),
            false => (headers, [(CONTENT_TYPE, "application/json")], body).into_response(),
        }
    }
}

impl<T: Serialize + ToSchema + Send + 'static> Answer for Made<T> {
    const STATUS: StatusCode = StatusCode::CREATED;

    fn document(response: ResponseBuilder, schemas: &mut Schemas) -> ResponseBuilder {
        with_body::<T>(response, schemas)
    }

    async fn send(self, _: &Wishes) -> Response {
        (Self::STATUS, Json(self.0)).into_response()
    }
}

impl Answer for Begun {
    const STATUS: StatusCode = StatusCode::ACCEPTED;

    fn document(response: ResponseBuilder, _: &mut Schemas) -> ResponseBuilder {
        response
    }

    async fn send(self, _: &Wishes) -> Response {
        Self::STATUS.into_response()
    }
}

impl Answer for Done {
    const STATUS: StatusCode = StatusCode::NO_CONTENT;

    fn document(response: ResponseBuilder, _: &mut Schemas) -> ResponseBuilder {
        response
    }

    async fn send(self, _: &Wishes) -> Response {
        Self::STATUS.into_response()
    }
}
