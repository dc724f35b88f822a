//! What an operation is asked: its body or its query, checked by the schema
//! that the document shows, and read into the type that has that schema.

use std::marker::PhantomData;

use coppice_core::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::openapi::path::{OperationBuilder, Parameter, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::{ContentBuilder, Ref, Required};
use utoipa::{IntoParams, ToSchema};

use super::Schemas;
use crate::body::{BodyError, Place, RawBody, Shape, Unbounded};
use crate::openapi::formats;
use crate::request::{Call, Sender};

/// A JSON body.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

/// A JSON body that the document shows as `T`, read as `U`: it also takes what
/// nobody needs to know of, or refuses in words of its own.
#[derive(Debug)]
pub(crate) struct BodyAs<T, U>(pub(crate) U, pub(crate) PhantomData<T>);

/// A JSON body, and who sends it.
#[derive(Debug)]
pub(crate) struct SentBody<T>(pub(crate) T, pub(crate) Sender);

/// The parameters of a query.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

/// The parameters of a query, and who sends it.
#[derive(Debug)]
pub(crate) struct SentQuery<T>(pub(crate) T, pub(crate) Sender);

/// What is asked of a handler that waits for something, and the request, to be
/// authorized once more by then.
#[derive(Debug)]
pub(crate) struct Waiting<Q>(pub(crate) Q, pub(crate) Call);

/// How what is asked is checked.
#[derive(Debug)]
pub(crate) struct Form {
    /// What it may look like.
    pub(super) shape: Shape,
    /// The error for a body of another shape.
    pub(super) refused: fn(Error) -> Error,
}

impl Form {
    fn checked<T: DeserializeOwned>(&self, mut value: Value, place: &Place<'_>) -> Result<T> {
        self.shape.check(&mut value, place).map_err(self.refused)?;
        let unread = |why| Error::internal(format!("the {place} has its shape, but: {why}"));
        serde_json::from_value(value).map_err(unread)
    }
}

/// What a handler is given of a request besides who calls and where.
pub(crate) trait Asked: Sized + Send + 'static {
    /// Whether it is read from the body.
    const IS_BODY: bool;

    /// What it may look like.
    ///
    /// # Errors
    /// Names what has no bound.
    fn shape() -> Result<Shape, Unbounded>;

    /// Writes it into the document.
    fn document(operation: OperationBuilder, schemas: &mut Schemas) -> OperationBuilder;

    /// Reads it. Nothing of a body is looked at before.
    fn read(call: &Call, body: RawBody, form: &Form) -> impl Future<Output = Result<Self, BodyError>> + Send;
}

impl Asked for () {
    const IS_BODY: bool = false;

    fn shape() -> Result<Shape, Unbounded> {
        Ok(Shape::nothing())
    }

    fn document(operation: OperationBuilder, _: &mut Schemas) -> OperationBuilder {
        operation
    }

    async fn read(_: &Call, _: RawBody, _: &Form) -> Result<Self, BodyError> {
        Ok(())
    }
}

impl<T: DeserializeOwned + ToSchema + Send + 'static> Asked for Body<T> {
    const IS_BODY: bool = true;

    fn shape() -> Result<Shape, Unbounded> {
        Shape::of::<T>()
    }

    fn document(operation: OperationBuilder, schemas: &mut Schemas) -> OperationBuilder {
        document_body::<T>(operation, schemas)
    }

    async fn read(_: &Call, body: RawBody, form: &Form) -> Result<Self, BodyError> {
        Ok(Self(body.read(|value| form.checked(value, &Place::Body)).await?))
    }
}

impl<T: DeserializeOwned + ToSchema + Send + 'static> Asked for SentBody<T> {
    const IS_BODY: bool = true;

    fn shape() -> Result<Shape, Unbounded> {
        Shape::of::<T>()
    }

    fn document(operation: OperationBuilder, schemas: &mut Schemas) -> OperationBuilder {
        document_body::<T>(operation, schemas)
    }

    async fn read(call: &Call, body: RawBody, form: &Form) -> Result<Self, BodyError> {
        let Body(read) = Body::read(call, body, form).await?;
        Ok(Self(read, call.sender()))
    }
}

impl<T, U> Asked for BodyAs<T, U>
where
    T: ToSchema + Send + 'static,
    U: DeserializeOwned + ToSchema + Send + 'static,
{
    const IS_BODY: bool = true;

    fn shape() -> Result<Shape, Unbounded> {
        Shape::of::<T>()?;
        Shape::of::<U>()
    }

    fn document(operation: OperationBuilder, schemas: &mut Schemas) -> OperationBuilder {
        document_body::<T>(operation, schemas)
    }

    async fn read(call: &Call, body: RawBody, form: &Form) -> Result<Self, BodyError> {
        let Body(read) = Body::read(call, body, form).await?;
        Ok(Self(read, PhantomData))
    }
}

impl<T: DeserializeOwned + IntoParams + Send + 'static> Asked for Query<T> {
    const IS_BODY: bool = false;

    fn shape() -> Result<Shape, Unbounded> {
        Shape::of_query(&parameters::<T>())
    }

    fn document(operation: OperationBuilder, _: &mut Schemas) -> OperationBuilder {
        parameters::<T>().into_iter().fold(operation, |operation, mut parameter| {
            parameter.schema.iter_mut().for_each(formats::hide);
            operation.parameter(parameter)
        })
    }

    async fn read(call: &Call, _: RawBody, form: &Form) -> Result<Self, BodyError> {
        Ok(Self(form.checked(query(call, &form.shape), &Place::Query)?))
    }
}

impl<T: DeserializeOwned + IntoParams + Send + 'static> Asked for SentQuery<T> {
    const IS_BODY: bool = false;

    fn shape() -> Result<Shape, Unbounded> {
        Query::<T>::shape()
    }

    fn document(operation: OperationBuilder, schemas: &mut Schemas) -> OperationBuilder {
        Query::<T>::document(operation, schemas)
    }

    async fn read(call: &Call, body: RawBody, form: &Form) -> Result<Self, BodyError> {
        let Query(read) = Query::read(call, body, form).await?;
        Ok(Self(read, call.sender()))
    }
}

impl<Q: Asked> Asked for Waiting<Q> {
    const IS_BODY: bool = Q::IS_BODY;

    fn shape() -> Result<Shape, Unbounded> {
        Q::shape()
    }

    fn document(operation: OperationBuilder, schemas: &mut Schemas) -> OperationBuilder {
        Q::document(operation, schemas)
    }

    async fn read(call: &Call, body: RawBody, form: &Form) -> Result<Self, BodyError> {
        Ok(Self(Q::read(call, body, form).await?, call.clone().again()))
    }
}

fn document_body<T: ToSchema>(operation: OperationBuilder, schemas: &mut Schemas) -> OperationBuilder {
    super::add::<T>(schemas);
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(T::name()))).build();
    let body = RequestBodyBuilder::new().content("application/json", content);
    operation.request_body(Some(body.required(Some(Required::True)).build()))
}

fn parameters<T: IntoParams>() -> Vec<Parameter> {
    T::into_params(|| Some(ParameterIn::Query))
}

/// The parameters that are asked for; an empty one counts as absent.
fn query(call: &Call, shape: &Shape) -> Value {
    let Shape::Object(fields) = shape else { return Value::Null };
    let sent = fields.iter().filter_map(|field| {
        let text = call.query(&field.name)?;
        let value = match field.shape {
            Shape::Whole(..) => text.parse::<u64>().map(Value::from).ok(),
            Shape::Number(..) => text.parse::<f64>().map(Value::from).ok(),
            Shape::Flag => text.parse::<bool>().map(Value::from).ok(),
            _ => None,
        };
        Some((field.name.clone(), value.unwrap_or_else(|| Value::from(text))))
    });
    Value::Object(sent.collect::<Map<_, _>>())
}
