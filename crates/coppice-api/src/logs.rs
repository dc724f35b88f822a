//! What a branch's servers have logged.

use axum::Json;
use axum::extract::State;
use chrono::DateTime;
use coppice_app::{App, BodyMatch, LogFilter, LogLevel, LogRequest};
use coppice_core::operation::BRANCH_LOGS;
use coppice_core::{Error, ErrorCode, Result};
use coppice_wire as wire;

use crate::body::{BodyError, Fields, RawBody};
use crate::request::{Call, InBranch};
use crate::time::{AskedTime, check_range};

/// Filters of one question.
const FILTERS_MAX: usize = 20;
/// Texts of one filter.
const VALUES_MAX: usize = 100;
/// Characters of one of them.
const VALUES_LENGTH_MAX: usize = 256;
/// Characters of the text that may be longer.
const VALUE_LENGTH_MAX: usize = 1024;
/// Characters of all texts that a question looks for in messages: to make them
/// ready takes time.
const TEXTS_LENGTH_MAX: usize = 32 << 10;
const LIMIT_MAX: u32 = 200;
const LIMIT_DEFAULT: u32 = 100;

/// Read the log of a branch
///
/// Newest entries first. A sleeping branch is not woken. Entries are kept for 14 days, unless the operator
/// chose otherwise.
#[utoipa::path(
    post, path = "/organizations/{organizationID}/projects/{projectID}/branches/{branchID}/logs",
    operation_id = "branchLogs", tag = "Logs", params(InBranch), request_body = wire::BranchLogsRequest,
    responses((status = 200, description = "A page of entries.", body = wire::BranchLogs))
)]
pub(crate) async fn branch_logs(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Json<wire::BranchLogs>, BodyError> {
    let access = call.authorize(&app, &BRANCH_LOGS).await?;
    let (request, start, end) = body.read(log_request).await?;
    let found = app.branch_logs(&access, request).await?;
    let logs = found.entries.into_iter().map(|entry| wire::LogEntry {
        timestamp: wire::Timestamp(DateTime::from_timestamp_millis(entry.timestamp_ms).unwrap_or_default()),
        instance_id: entry.instance,
        message: entry.message,
        level: match entry.level {
            LogLevel::Debug => wire::LogLevel::Debug,
            LogLevel::Info => wire::LogLevel::Info,
            LogLevel::Warning => wire::LogLevel::Warning,
            LogLevel::Error => wire::LogLevel::Error,
        },
        process: entry.process,
    });
    Ok(Json(wire::BranchLogs {
        start: start.said,
        end: end.said,
        logs: logs.collect(),
        next_cursor: found.next_cursor,
    }))
}

/// The request, and its times as they were said.
fn log_request(fields: &Fields) -> Result<(LogRequest, AskedTime, AskedTime)> {
    let (start, end) = (fields.required_time("start")?, fields.required_time("end")?);
    let filters = fields.list("filters", FILTERS_MAX)?.unwrap_or_default().iter().enumerate();
    let filters = filters.map(|(index, value)| filter(&fields.item("filters", index, value)?));
    let filters = filters.collect::<Result<Vec<_>>>()?;
    let sought = filters.iter().flat_map(|filter| match filter {
        LogFilter::Body(_, texts) => texts.as_slice(),
        LogFilter::Instance(_) | LogFilter::Level(_) | LogFilter::Process(_) => &[],
    });
    if sought.map(|text| text.chars().count()).sum::<usize>() > TEXTS_LENGTH_MAX {
        let why = format!("all filters of body together must have at most {TEXTS_LENGTH_MAX} characters");
        return Err(invalid(&why));
    }
    let limit = fields.integer("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let cursor = fields.text("cursor")?.filter(|text| !text.is_empty()).map(str::to_owned);
    check_range(start.at, end.at)?;
    Ok((LogRequest { start: start.at, end: end.at, filters, limit, cursor }, start, end))
}

fn is_level(text: &str) -> bool {
    LogLevel::ALL.iter().any(|level| level.as_str() == text)
}

fn invalid(why: &str) -> Error {
    Error::invalid(ErrorCode::InvalidFilter, format!("invalid filter: {why}"))
}

fn filter(fields: &Fields) -> Result<LogFilter> {
    let field = fields.text("field")?.unwrap_or("body");
    let mut texts = fields.texts("values", VALUES_MAX)?.unwrap_or_default();
    if texts.iter().any(|text| !(1..=VALUES_LENGTH_MAX).contains(&text.chars().count())) {
        return Err(invalid(&format!("values must have 1 to {VALUES_LENGTH_MAX} characters each")));
    }
    match fields.text("value")? {
        None => {}
        // It is in everything, so nothing else matters.
        Some("") => texts.clear(),
        Some(text) if text.chars().count() > VALUE_LENGTH_MAX => {
            return Err(invalid(&format!("value must have at most {VALUE_LENGTH_MAX} characters")));
        }
        Some(text) => texts.push(text.to_owned()),
    }
    let how = match (field, fields.text("op")?) {
        ("instance", None | Some("in")) => return Ok(LogFilter::Instance(texts)),
        ("level", None | Some("in")) if texts.iter().all(|text| is_level(text)) => {
            return Ok(LogFilter::Level(texts));
        }
        ("level", None | Some("in")) => {
            let names = LogLevel::ALL.map(LogLevel::as_str).join(", ");
            return Err(invalid(&format!("levels are {names}")));
        }
        ("process", None | Some("in")) => return Ok(LogFilter::Process(texts)),
        ("body", None | Some("icontains")) => BodyMatch::ContainsInAnyCase,
        ("body", Some("contains")) => BodyMatch::Contains,
        ("body", Some("regex")) => BodyMatch::Regex,
        ("body", Some("iregex")) => BodyMatch::RegexInAnyCase,
        ("body", Some(_)) => {
            return Err(invalid("op of body must be icontains, contains, regex or iregex"));
        }
        ("instance" | "level" | "process", Some(_)) => {
            return Err(invalid(&format!("op of {field} must be in")));
        }
        (_, _) => {
            return Err(invalid("field must be instance, level, process or body"));
        }
    };
    Ok(LogFilter::Body(how, texts))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(filters: Value) -> Result<LogRequest> {
        let body =
            json!({ "start": "2026-01-02T03:04:05Z", "end": "2026-01-02T04:04:05Z", "filters": filters });
        let Value::Object(fields) = body else { unreachable!("it is an object") };
        Ok(log_request(&Fields::new(fields))?.0)
    }

    #[test]
    fn filters_share_the_characters_they_may_have() {
        let filter = json!({ "op": "icontains", "values": vec!["x".repeat(256); 100] });
        assert!(asked(json!([filter])).is_ok(), "one of them may be as long as it can");
        let error = asked(json!([filter, filter])).expect_err("two are too long");
        assert_eq!(error.code(), "invalid_filter");
        let why = "invalid filter: all filters of body together must have at most 32768 characters";
        assert_eq!(error.to_string(), why);
    }
}
