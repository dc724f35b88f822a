//! The audit log: who changed what.
//!
//! No handler has to think of it. Where the credential of a request is known, a
//! line is begun if the operation is one that is recorded; the layer around the
//! handlers completes it with the answer.

pub(crate) mod notes;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use coppice_app::{App, AuditEnd};
use coppice_core::Error;
use coppice_core::audit::AuditOutcome;
use coppice_core::operation::{CREATE_ORGANIZATION, Operation};
use serde_json::Value;

use self::notes::Notes;
use crate::error::{ApiError, ErrorId};
use crate::{BODY_LIMIT_BYTES, context};

/// Completes the line of a request that has one. Such a request is
/// carried out to its end even when its client goes away, so that its line does
/// not stay open.
pub(crate) async fn recorded(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(operation) = context::operation().filter(|operation| operation.is_recorded) else {
        return next.run(request).await;
    };
    let work = async move {
        let response = next.run(request).await;
        complete(&app, operation, response).await
    };
    match context::detached(work).await {
        Ok(response) => response,
        Err(failed) => ApiError::from(Error::internal(failed)).into_response(),
    }
}

/// Completes the line of a request that is answered, if it has one.
pub(crate) async fn complete(app: &App, operation: &Operation, response: Response) -> Response {
    let noted = context::audit_notes(Notes::take).unwrap_or_default();
    let Some(line) = noted.line else { return response };
    let (response, mut end) = end_of(response).await;
    end.targets = noted.targets;
    end.names = noted.names;
    end.organization = match operation.id == CREATE_ORGANIZATION.id {
        true => end.created.clone(),
        false => noted.organization,
    };
    app.audit.end(&line, &end).await;
    response
}

/// What an answer says about how it ended.
async fn end_of(response: Response) -> (Response, AuditEnd) {
    let status = response.status();
    let error = response.extensions().get::<ErrorId>().map(|id| id.0.to_string());
    let end = AuditEnd { error, ..AuditEnd::new(AuditOutcome::Answered(status.as_u16())) };
    if status != StatusCode::CREATED {
        return (response, end);
    }
    let (parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, BODY_LIMIT_BYTES).await else {
        let lost = Error::internal("an answer is too large to be read again");
        return (ApiError::from(lost).into_response(), end);
    };
    let created = id_of(&bytes);
    (Response::from_parts(parts, Body::from(bytes)), AuditEnd { created, ..end })
}

/// The id of what an answer shows as made. Nothing else of it is kept.
fn id_of(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let id = body.get("id").or_else(|| body.get("key")?.get("id"))?;
    id.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_was_made_only_the_id_is_kept() {
        assert_eq!(id_of(br#"{"id": "prj_1", "name": "x"}"#).as_deref(), Some("prj_1"));
        assert_eq!(id_of(br#"{"key": {"id": "key_1", "token": "pku_secret"}}"#).as_deref(), Some("key_1"));
        for other in [&b""[..], b"[]", b"{}", br#"{"id": 1}"#, br#"{"key": "pku_secret"}"#] {
            assert_eq!(id_of(other), None);
        }
    }
}
