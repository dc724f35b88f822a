//! Showing who changed what.

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use coppice_app::{Access, App, AuditQuery};
use coppice_core::Result;
use coppice_core::audit::{AuditActor, AuditEntry, AuditOutcome};
use coppice_core::operation::LIST_AUDIT_LOG;
use coppice_wire as wire;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::endpoint::{Endpoint, Query, Shown, get};
use crate::error::status_of;
use crate::time::check_range;

/// Lines of an answer when nobody says how many.
const COUNT_DEFAULT: u32 = 100;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Organizations";
    vec![
        get("/audit-log", &LIST_AUDIT_LOG)
            .says(AREA, "List who changed what in an organization", "The newest first. Also changes that were refused. A change whose result is `unknown` is still being made,\nor the platform was interrupted before it could write down how it ended.")
            .answers("Lines of the log.")
            .runs(list_audit_log),
    ]
}

/// Which lines to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListAuditLog {
    /// Only of this one: id of a user, an organization, a key or a session, address of a user, or `operator`.
    #[param(max_length = 254, format = "sought")]
    actor: Option<String>,
    /// Only this operation, by its operationId.
    #[param(max_length = 254, example = "createBranch", format = "sought")]
    action: Option<String>,
    /// Only from then on: an RFC 3339 date-time.
    #[param(value_type = Option<String>, example = "2026-01-02T03:04:05Z", format = "time")]
    start: Option<DateTime<Utc>>,
    /// Only before then: an RFC 3339 date-time.
    #[param(value_type = Option<String>, example = "2027-01-02T03:04:05Z", format = "time")]
    end: Option<DateTime<Utc>>,
    /// Goes on after the answer whose `next_cursor` it was.
    #[param(format = "looked-up")]
    cursor: Option<String>,
    /// Most of them in this answer.
    #[param(minimum = 1, maximum = 200, default = 100)]
    limit: Option<u32>,
}

async fn list_audit_log(
    app: App,
    access: Access,
    Query(asked): Query<ListAuditLog>,
) -> Result<Shown<wire::AuditLog>> {
    let page = app.audit.list(&access, &query_of(asked)?).await?;
    let entries = page.entries.into_iter().map(to_wire).collect();
    Ok(Shown(wire::AuditLog { entries, next_cursor: page.next_cursor }))
}

fn query_of(asked: ListAuditLog) -> Result<AuditQuery> {
    let query = AuditQuery {
        actor: asked.actor,
        action: asked.action,
        start: asked.start,
        end: asked.end,
        cursor: asked.cursor,
        count_max: asked.limit.unwrap_or(COUNT_DEFAULT),
    };
    if let (Some(start), Some(end)) = (query.start, query.end) {
        check_range(start, end)?;
    }
    Ok(query)
}

/// How a line says that it ended, with the status of the answer. Where the API gave none, it is the status that it
/// would have given.
pub fn shown_outcome(outcome: Option<AuditOutcome>) -> (wire::AuditResult, Option<u16>) {
    let status = outcome.map(|outcome| match outcome {
        AuditOutcome::Answered(status) => status,
        AuditOutcome::Succeeded => StatusCode::OK.as_u16(),
        AuditOutcome::Failed(kind) => status_of(kind).as_u16(),
    });
    let result = match status {
        None => wire::AuditResult::Unknown,
        Some(..400) => wire::AuditResult::Succeeded,
        Some(400..500) => wire::AuditResult::Refused,
        Some(500..) => wire::AuditResult::Failed,
    };
    (result, status)
}

fn to_wire(entry: AuditEntry) -> wire::AuditEntry {
    let (result, status) = shown_outcome(entry.outcome);
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
        status,
        error_id: entry.error,
    }
}

#[cfg(test)]
mod tests {
    use coppice_core::ErrorKind;

    use super::*;

    #[test]
    fn a_line_shows_the_status_of_the_answer_or_that_of_its_error() {
        for (outcome, expected) in [
            (None, (wire::AuditResult::Unknown, None)),
            (Some(AuditOutcome::Answered(204)), (wire::AuditResult::Succeeded, Some(204))),
            (Some(AuditOutcome::Answered(409)), (wire::AuditResult::Refused, Some(409))),
            (Some(AuditOutcome::Answered(503)), (wire::AuditResult::Failed, Some(503))),
            (Some(AuditOutcome::Succeeded), (wire::AuditResult::Succeeded, Some(200))),
            (Some(AuditOutcome::Failed(ErrorKind::Forbidden)), (wire::AuditResult::Refused, Some(403))),
            (Some(AuditOutcome::Failed(ErrorKind::Internal)), (wire::AuditResult::Failed, Some(500))),
        ] {
            assert_eq!(shown_outcome(outcome), expected);
        }
    }
}
