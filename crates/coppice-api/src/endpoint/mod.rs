//! An operation of the API is one thing: a row that says where it is and what
//! it is for, and its handler, whose types say all the rest.
//!
//! A handler is given the proof that its caller may call it on what the path
//! names ([`Authorized`]), and the body or query ([`Asked`]), checked by the
//! schema in the document. The route, the document with every status, the audit
//! log and the treatment of repetitions come from the same row, and from the
//! row of the table of operations that it names.

mod access;
mod answer;
mod asked;
mod handler;
mod told;

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{MethodRouter, on};
use coppice_app::App;
use coppice_core::Error;
use coppice_core::operation::Operation;
use utoipa::ToSchema;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, PathItem, Paths};
use utoipa::openapi::{RefOr, Response, ResponseBuilder, Schema};
use utoipa_axum::PathItemExt;
use utoipa_axum::router::UtoipaMethodRouter;

use access::Authorized;
pub(crate) use answer::{Answer, Begun, Done, Forms, Made, Shown, Tagged, Written};
use asked::{Asked, Form};
pub(crate) use asked::{Body, BodyAs, Query, SentBody, SentQuery, Waiting};
use handler::{Handler, Pending, Run};

use crate::body::{BodyError, RawBody};
use crate::error::ApiError;
use crate::openapi::errors;
use crate::request::Call;
use crate::waited::and_whether_it_waited;

/// Schemas of the document by name.
pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;

/// Adds the schema of a type, and those that it refers to.
pub(crate) fn add<T: ToSchema>(schemas: &mut Schemas) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// What is said of an operation beside its handler.
pub(crate) struct Row {
    operation: &'static Operation,
    method: HttpMethod,
    below: &'static str,
    area: &'static str,
    summary: &'static str,
    description: &'static str,
    answer: &'static str,
    refusals: Vec<(u16, &'static str)>,
    forbidden: fn(Error) -> ApiError,
    refused: fn(Error) -> Error,
    is_forbidden_documented: bool,
}

/// An operation: its route and what the document says of it.
pub(crate) struct Endpoint {
    method: HttpMethod,
    path: String,
    documented: utoipa::openapi::path::Operation,
    schemas: Schemas,
    route: MethodRouter<App>,
}

impl Row {
    fn new(method: HttpMethod, below: &'static str, operation: &'static Operation) -> Self {
        Self {
            operation,
            method,
            below,
            area: "",
            summary: "",
            description: "",
            answer: "",
            refusals: vec![],
            forbidden: ApiError::from,
            refused: std::convert::identity,
            is_forbidden_documented: true,
        }
    }

    /// Where the document lists it, what it does, and what to know besides.
    pub(crate) fn says(self, area: &'static str, summary: &'static str, description: &'static str) -> Self {
        Self { area, summary, description, ..self }
    }

    /// What the answer is when all goes well.
    pub(crate) fn answers(self, answer: &'static str) -> Self {
        Self { answer, ..self }
    }

    /// Why else it may answer with a status of an error.
    pub(crate) fn refuses(mut self, status: u16, why: &'static str) -> Self {
        self.refusals.push((status, why));
        self
    }

    /// What is said of a body or query that has another shape.
    pub(crate) fn refuses_bodies_by(self, refused: fn(Error) -> Error) -> Self {
        Self { refused, ..self }
    }

    /// How callers are told that they may not.
    pub(crate) fn forbids_by(self, forbidden: fn(Error) -> ApiError) -> Self {
        Self { forbidden, ..self }
    }

    /// A forbidden caller gets the same answer as one without a credential.
    pub(crate) fn hides_forbidden(self, forbidden: fn(Error) -> ApiError) -> Self {
        Self { forbidden, is_forbidden_documented: false, ..self }
    }

    /// With what carries it out.
    ///
    /// # Panics
    /// When something of its body or query has no bound.
    pub(crate) fn runs<H: Handler<T>, T>(self, handler: H) -> Endpoint
    where
        H::Future: Send,
    {
        self.carried_out_by::<H::Access, H::Asked, H::Answer>(Box::new(move |app, access, asked| {
            Box::pin(handler.call(app, access, asked))
        }))
    }

    fn carried_out_by<A: Authorized, Q: Asked, O: Answer>(self, run: Run<A, Q, O>) -> Endpoint {
        let shape = Q::shape().unwrap_or_else(|why| panic!("{}: {why}", self.operation.id));
        let path = format!("{}{}", A::PATH, self.below);
        let mut schemas = vec![];
        let documented = self.document::<A, Q, O>(&path, &mut schemas);
        let steps = Arc::new(Steps {
            operation: self.operation,
            form: Form { shape, refused: self.refused },
            forbidden: self.forbidden,
            may_hold_secrets: told::may_hold_secrets::<O>(),
            run,
        });
        let answer = move |State(app): State<App>, call: Call, body: RawBody| -> Pending<_> {
            let steps = steps.clone();
            Box::pin(async move { steps.answer(app, call, body).await })
        };
        let route = on(self.method.to_method_filter(), answer);
        Endpoint { route, method: self.method, path, documented, schemas }
    }

    fn document<A: Authorized, Q: Asked, O: Answer>(
        &self,
        path: &str,
        schemas: &mut Schemas,
    ) -> utoipa::openapi::path::Operation {
        let response = ResponseBuilder::new().description(self.answer);
        let operation = OperationBuilder::new()
            .tag(self.area)
            .summary(Some(self.summary))
            .description(Some(self.description))
            .operation_id(Some(self.operation.id))
            .response(O::STATUS.as_str(), O::document(response, schemas).build());
        let operation = access::parameters(path).into_iter().fold(operation, OperationBuilder::parameter);
        let operation = match O::IS_TAGGED {
            true => operation
                .response("304", Response::new("Nothing has changed since the answer with this `ETag`.")),
            false => operation,
        };
        let mut documented = Q::document(operation, schemas).build();
        let errors = errors::Facts {
            operation: self.operation,
            has_body: Q::IS_BODY,
            is_post: self.method == HttpMethod::Post,
            not_found: A::NOT_FOUND,
            refusals: &self.refusals,
            is_forbidden_documented: self.is_forbidden_documented,
        };
        errors.complete(&mut documented);
        documented
    }
}

/// From a request to its answer.
struct Steps<A, Q, O> {
    operation: &'static Operation,
    form: Form,
    forbidden: fn(Error) -> ApiError,
    may_hold_secrets: bool,
    run: Run<A, Q, O>,
}

impl<A: Authorized, Q: Asked, O: Answer> Steps<A, Q, O> {
    async fn answer(
        &self,
        app: App,
        call: Call,
        body: RawBody,
    ) -> Result<axum::response::Response, BodyError> {
        let (operation, forbidden) = (self.operation, self.forbidden);
        let mut access = A::authorize(&call, &app, operation).await.map_err(forbidden)?;
        let (asked, has_waited) = and_whether_it_waited(Q::read(&call, body, &self.form)).await;
        let (asked, call) = (asked?, call.again());
        if has_waited {
            // Who sends a body slowly may do what it may when that is there.
            access = A::authorize(&call, &app, operation).await.map_err(forbidden)?;
        }
        let answer = (self.run)(app.clone(), access, asked).await?.send(call.wishes()).await;
        Ok(match self.may_hold_secrets {
            true => told::as_of_now(&app, &call, operation, answer).await.map_err(forbidden)?,
            false => answer,
        })
    }
}

impl From<Endpoint> for UtoipaMethodRouter<App> {
    fn from(endpoint: Endpoint) -> Self {
        let Endpoint { method, path, documented, schemas, route } = endpoint;
        let mut paths = Paths::new();
        paths.paths.insert(path, PathItem::new(method, documented));
        (schemas, paths, route)
    }
}

/// An operation that looks at something.
pub(crate) fn get(below: &'static str, operation: &'static Operation) -> Row {
    Row::new(HttpMethod::Get, below, operation)
}

/// An operation that makes or does something.
pub(crate) fn post(below: &'static str, operation: &'static Operation) -> Row {
    Row::new(HttpMethod::Post, below, operation)
}

/// An operation that replaces something.
pub(crate) fn put(below: &'static str, operation: &'static Operation) -> Row {
    Row::new(HttpMethod::Put, below, operation)
}

/// An operation that changes something.
pub(crate) fn patch(below: &'static str, operation: &'static Operation) -> Row {
    Row::new(HttpMethod::Patch, below, operation)
}

/// An operation that removes something.
pub(crate) fn delete(below: &'static str, operation: &'static Operation) -> Row {
    Row::new(HttpMethod::Delete, below, operation)
}
