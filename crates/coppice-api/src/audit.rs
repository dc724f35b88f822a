//! The audit log: who changed what.
//!
//! No handler has to think of it. Where the credential of a request is known, a
//! line is begun if the operation changes something; the layer around the
//! handlers completes it with the answer.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use coppice_app::{App, AuditEnd, AuditQuery};
use coppice_core::audit::{AuditActor, AuditEntry, AuditResult};
use coppice_core::operation::{CREATE_ORGANIZATION, LIST_AUDIT_LOG};
use coppice_core::{AuditId, Error, Result};
use coppice_wire as wire;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use crate::error::{ApiError, ErrorId};
use crate::request::{Call, InOrganization};
use crate::time::check_range;
use crate::{BODY_LIMIT_BYTES, context};

/// Lines of an answer when nobody says how many.
const COUNT_DEFAULT: u32 = 100;
/// Most lines of an answer.
const COUNT_MAX: u32 = 200;

/// What is known of the line of a request while it is being answered.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    line: Option<AuditId>,
    organization: Option<String>,
    targets: Vec<String>,
    names: Vec<String>,
}

impl Notes {
    fn with<T>(&self, work: impl FnOnce(&mut Noted) -> T) -> T {
        work(&mut self.0.lock())
    }

    /// A line was begun.
    pub(crate) fn begin(&self, line: AuditId) {
        self.with(|noted| noted.line = Some(line));
    }

    /// Which organization it is about, where the path does not say.
    pub(crate) fn organization(&self, id: String) {
        self.with(|noted| noted.organization = Some(id));
    }

    /// What else it is about, where the path does not say.
    pub(crate) fn targets(&self, ids: Vec<String>) {
        self.with(|noted| noted.targets = ids);
    }

    /// What is gone now was called so.
    pub(crate) fn names(&self, names: Vec<String>) {
        self.with(|noted| noted.names = names);
    }

    fn take(&self) -> Noted {
        self.with(std::mem::take)
    }
}

/// Completes the line of a request that changes something. Such a request is
/// carried out to its end even when its client goes away, so that its line does
/// not stay open.
pub(crate) async fn recorded(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(operation) = context::operation().filter(|operation| operation.is_write) else {
        return next.run(request).await;
    };
    let work = async move {
        let response = next.run(request).await;
        let noted = context::audit_notes(Notes::take).unwrap_or_default();
        match noted.line {
            None => response,
            Some(ref line) => {
                let (response, mut end) = end_of(response).await;
                end.targets = noted.targets;
                end.names = noted.names;
                end.organization = match operation.id == CREATE_ORGANIZATION.id {
                    true => end.created.clone(),
                    false => noted.organization,
                };
                app.end_audit(line, &end).await;
                response
            }
        }
    };
    match context::detached(work).await {
        Ok(response) => response,
        Err(failed) => ApiError::from(Error::internal(failed)).into_response(),
    }
}

/// What an answer says about how it ended.
async fn end_of(response: Response) -> (Response, AuditEnd) {
    let status = response.status();
    let error = response.extensions().get::<ErrorId>().map(|id| id.0.to_string());
    let end = AuditEnd { status: status.as_u16(), error, ..AuditEnd::default() };
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

/// Which lines to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "says what queries look like; `Call` reads them")]
pub(crate) struct ListAuditLog {
    /// Only of this one: id of a user, an organization, a key or a session, address of a user, or `operator`.
    #[param(max_length = 254)]
    actor: Option<String>,
    /// Only this operation, by its operationId.
    #[param(max_length = 254, example = "createBranch")]
    action: Option<String>,
    /// Only from then on: an RFC 3339 date-time.
    #[param(example = "2026-01-02T03:04:05Z")]
    start: Option<String>,
    /// Only before then: an RFC 3339 date-time.
    #[param(example = "2027-01-02T03:04:05Z")]
    end: Option<String>,
    /// Goes on after the answer whose `next_cursor` it was.
    cursor: Option<String>,
    /// Most of them in this answer.
    #[param(minimum = 1, maximum = 200, default = 100)]
    limit: Option<u32>,
}

/// List who changed what in an organization
///
/// The newest first. Also changes that were refused. A change whose result is `unknown` is still being made,
/// or the platform was interrupted before it could write down how it ended.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/audit-log", operation_id = "listAuditLog",
    tag = "Organizations", params(InOrganization, ListAuditLog),
    responses((status = 200, description = "Lines of the log.", body = wire::AuditLog))
)]
pub(crate) async fn list_audit_log(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::AuditLog>, ApiError> {
    let access = call.authorize(&app, &LIST_AUDIT_LOG).await?;
    let page = app.list_audit_log(&access, &query_of(&call)?).await?;
    let entries = page.entries.into_iter().map(to_wire).collect();
    Ok(Json(wire::AuditLog { entries, next_cursor: page.next_cursor }))
}

fn query_of(call: &Call) -> Result<AuditQuery> {
    let query = AuditQuery {
        actor: call.query_text("actor")?,
        action: call.query_text("action")?,
        start: call.query_time("start")?,
        end: call.query_time("end")?,
        cursor: call.query("cursor").map(str::to_owned),
        count_max: call.query_number("limit", 1, COUNT_MAX)?.unwrap_or(COUNT_DEFAULT),
    };
    if let (Some(start), Some(end)) = (query.start, query.end) {
        check_range(start, end)?;
    }
    Ok(query)
}

fn to_wire(entry: AuditEntry) -> wire::AuditEntry {
    let result = match AuditResult::of_status(entry.status) {
        AuditResult::Succeeded => wire::AuditResult::Succeeded,
        AuditResult::Refused => wire::AuditResult::Refused,
        AuditResult::Failed => wire::AuditResult::Failed,
        AuditResult::Unknown => wire::AuditResult::Unknown,
    };
    let kind = match &entry.actor {
        AuditActor::User(_) => wire::AuditActorKind::User,
        AuditActor::Organization(_) => wire::AuditActorKind::Organization,
        AuditActor::Operator => wire::AuditActorKind::Operator,
    };
    let id = entry.actor.id().map(str::to_owned);
    wire::AuditEntry {
        id: entry.id.to_string(),
        began_at: wire::Timestamp(entry.began_at),
        ended_at: entry.ended_at.map(wire::Timestamp),
        actor: wire::AuditActor { kind, id, email: entry.actor_email },
        credential_id: entry.credential,
        action: entry.action,
        organization_id: entry.organization,
        project_id: entry.project,
        branch_id: entry.branch,
        target_ids: entry.targets,
        names: entry.names,
        created_id: entry.created,
        client_address: entry.client_address,
        user_agent: entry.user_agent,
        request_id: entry.request_id,
        result,
        status: entry.status,
        error_id: entry.error,
    }
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
