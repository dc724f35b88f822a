//! What an operation answers when all goes well.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder};

use super::Schemas;

/// 200 with what is there.
#[derive(Debug)]
pub(crate) struct Shown<T>(pub(crate) T);

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

    /// Writes its body into the document.
    fn document(response: ResponseBuilder, schemas: &mut Schemas) -> ResponseBuilder;

    /// Sends it.
    fn send(self) -> Response;
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

    fn send(self) -> Response {
        Json(self.0).into_response()
    }
}

impl<T: Serialize + ToSchema + Send + 'static> Answer for Made<T> {
    const STATUS: StatusCode = StatusCode::CREATED;

    fn document(response: ResponseBuilder, schemas: &mut Schemas) -> ResponseBuilder {
        with_body::<T>(response, schemas)
    }

    fn send(self) -> Response {
        (Self::STATUS, Json(self.0)).into_response()
    }
}

impl Answer for Begun {
    const STATUS: StatusCode = StatusCode::ACCEPTED;

    fn document(response: ResponseBuilder, _: &mut Schemas) -> ResponseBuilder {
        response
    }

    fn send(self) -> Response {
        Self::STATUS.into_response()
    }
}

impl Answer for Done {
    const STATUS: StatusCode = StatusCode::NO_CONTENT;

    fn document(response: ResponseBuilder, _: &mut Schemas) -> ResponseBuilder {
        response
    }

    fn send(self) -> Response {
        Self::STATUS.into_response()
    }
}
