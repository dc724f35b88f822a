//! Why there is no result, as drivers read it: the fields of a PostgreSQL
//! error, which they look for where the status is 400.

use std::borrow::Cow;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use coppice_gateway::Reason;
use coppice_pgwire::sqlstate;
use coppice_sql::{BadRequest, Failure, ServerError, Wrong};
use serde_json::{Map, Value};

use crate::arrival::Unread;
use crate::context::request_id;

/// Largest body of a request.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
/// Seconds after which a request may find room.
const RETRY_SECONDS: u16 = 1;

/// See the module.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    fields: Vec<(&'static str, Cow<'static, str>)>,
}

impl Refused {
    /// With a code of ours, or an SQLSTATE.
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, fields: vec![("message", message.into()), ("code", code.into())] }
    }

    pub(super) fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BAD_REQUEST", message)
    }

    pub(super) fn unauthorized(message: &'static str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", message)
    }

    pub(super) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, sqlstate::INTERNAL_ERROR, "internal error")
    }

    pub(super) fn too_late() -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "CONNECT_TIMEOUT", "no connection to the branch in time")
    }

    fn no_room() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "UNAVAILABLE",
            "other requests take all the memory there is",
        )
    }

    /// The gateway is full: that is known before it is asked, and nobody's fault whom to tell in the log.
    fn full() -> Self {
        let message = "sorry, too many clients already";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", message)
    }

    /// What a server said, or the gateway.
    fn of_server(status: StatusCode, error: &ServerError) -> Self {
        let fields = error.fields().into_iter().map(|(name, text)| (name, Cow::from(text)));
        Self { status, fields: fields.collect() }
    }

    /// Why there is no session; `reason` is the gateway's, if it was the gateway who refused.
    pub(super) fn without_session(failure: Failure, reason: Option<Reason>) -> Self {
        let error = match (&failure, reason) {
            (Failure::Server(error), _) => error,
            (_, Some(Reason::TooMany)) => return Self::full(),
            _ => return failure.into(),
        };
        let (status, code) = match reason {
            Some(Reason::NotAllowed) => (StatusCode::FORBIDDEN, Some("FORBIDDEN")),
            Some(Reason::NoBranch) => (StatusCode::BAD_REQUEST, Some("INVALID_HOST")),
            Some(Reason::Unsupported) if error.code() == sqlstate::CANNOT_CONNECT_NOW => {
                (StatusCode::BAD_REQUEST, Some("NO_REPLICA"))
            }
            Some(Reason::Asleep) => (StatusCode::CONFLICT, Some("BRANCH_HIBERNATED")),
            Some(Reason::NotReady | Reason::Timeout) => {
                (StatusCode::GATEWAY_TIMEOUT, Some("CONNECT_TIMEOUT"))
            }
            Some(Reason::Internal) => (StatusCode::INTERNAL_SERVER_ERROR, Some(sqlstate::INTERNAL_ERROR)),
            Some(
                Reason::Authentication
                | Reason::Throttled
                | Reason::TooMany
                | Reason::Protocol
                | Reason::Unsupported
                | Reason::Server
                | Reason::Gone
                | Reason::NoStartup,
            )
            | None => (StatusCode::BAD_REQUEST, None),
        };
        let mut refused = Self::of_server(status, error);
        if let Some(code) = code {
            for (_, text) in refused.fields.iter_mut().filter(|(name, _)| *name == "code") {
                *text = code.into();
            }
        }
        refused
    }

    /// The body, without what an answer adds to it.
    #[cfg(test)]
    pub(super) fn told(&self) -> Value {
        self.body(|message| message.to_owned())
    }

    fn body(&self, complete: impl Fn(&str) -> String) -> Value {
        let fields = self.fields.iter().map(|(name, text)| {
            let text = if *name == "message" { complete(text) } else { text.to_string() };
            ((*name).to_owned(), Value::from(text))
        });
        Value::Object(fields.collect::<Map<_, _>>())
    }
}

impl From<BadRequest> for Refused {
    fn from(BadRequest(message): BadRequest) -> Self {
        Self::bad_request(message)
    }
}

impl From<Wrong> for Refused {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Request(request) => request.into(),
            Wrong::Failure(failure) => failure.into(),
        }
    }
}

impl From<Unread> for Refused {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLarge => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "BODY_TOO_LARGE",
                format!("request body is larger than {} bytes", BODY_BYTES_MAX),
            ),
            Unread::Broken => Self::bad_request("request body did not arrive whole"),
            Unread::Slow => {
                Self::new(StatusCode::REQUEST_TIMEOUT, "BODY_TOO_SLOW", "request body took too long")
            }
            Unread::NoRoom => Self::no_room(),
        }
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        let message = failure.to_string();
        match failure {
            Failure::Server(error) => Self::of_server(StatusCode::BAD_REQUEST, &error),
            Failure::TooLarge(_) => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "RESPONSE_TOO_LARGE", message)
            }
            Failure::NoRoom => Self::no_room(),
            Failure::TooLong => {
                let mut refused = Self::new(StatusCode::BAD_REQUEST, sqlstate::QUERY_CANCELED, message);
                refused.fields.push(("severity", "ERROR".into()));
                refused
            }
            Failure::Copy | Failure::Iterations(_) => {
                Self::new(StatusCode::BAD_REQUEST, sqlstate::FEATURE_NOT_SUPPORTED, message)
            }
            Failure::TransactionEnded => Self::bad_request(message),
            Failure::Lost(error) => {
                tracing::warn!("a server was lost while it answered a request: {error}");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, sqlstate::INTERNAL_ERROR, message)
            }
            Failure::Protocol(what) => {
                tracing::warn!("what a server answered makes no sense: {what}");
                Self::internal()
            }
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let id = request_id();
        let body = self.body(|message| match self.status.is_server_error() {
            true => format!("{message} (request {id})"),
            false => message.to_owned(),
        });
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_SECONDS));
        }
        response
    }
}
