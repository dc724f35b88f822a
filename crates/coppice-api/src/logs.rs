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
    let fields = body.object().await?;
    let (start, end) = (fields.required_time("start")?, fields.required_time("end")?);
    let request = log_request(&fields, &start, &end)?;
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

fn log_request(fields: &Fields, start: &AskedTime, end: &AskedTime) -> Result<LogRequest> {
    let filters = fields.list("filters", FILTERS_MAX)?.unwrap_or_default().iter().enumerate();
    let filters = filters.map(|(index, value)| filter(&fields.item("filters", index, value)?));
    let filters = filters.collect::<Result<Vec<_>>>()?;
    let limit = fields.integer("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let cursor = fields.text("cursor")?.filter(|text| !text.is_empty()).map(str::to_owned);
    check_range(start.at, end.at)?;
    Ok(LogRequest { start: start.at, end: end.at, filters, limit, cursor })
}

fn is_level(text: &str) -> bool {
    LogLevel::ALL.iter().any(|level| level.as_str() == text)
}

fn filter(fields: &Fields) -> Result<LogFilter> {
    let invalid = |why: String| Error::invalid(ErrorCode::InvalidFilter, format!("invalid filter: {why}"));
    let field = fields.text("field")?.unwrap_or("body");
    let mut texts = fields.texts("values", VALUES_MAX)?.unwrap_or_default();
    if texts.iter().any(|text| !(1..=VALUES_LENGTH_MAX).contains(&text.chars().count())) {
        return Err(invalid(format!("values must have 1 to {VALUES_LENGTH_MAX} characters each")));
    }
    match fields.text("value")? {
        None => {}
        // It is in everything, so nothing else matters.
        Some("") => texts.clear(),
        Some(text) if text.chars().count() > VALUE_LENGTH_MAX => {
            return Err(invalid(format!("value must have at most {VALUE_LENGTH_MAX} characters")));
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
            return Err(invalid(format!("levels are {names}")));
        }
        ("process", None | Some("in")) => return Ok(LogFilter::Process(texts)),
        ("body", None | Some("icontains")) => BodyMatch::ContainsInAnyCase,
        ("body", Some("contains")) => BodyMatch::Contains,
        ("body", Some("regex")) => BodyMatch::Regex,
        ("body", Some("iregex")) => BodyMatch::RegexInAnyCase,
        ("body", Some(_)) => {
            return Err(invalid("op of body must be icontains, contains, regex or iregex".to_owned()));
        }
        ("instance" | "level" | "process", Some(_)) => {
            return Err(invalid(format!("op of {field} must be in")));
        }
        (_, _) => {
            return Err(invalid("field must be instance, level, process or body".to_owned()));
        }
    };
    Ok(LogFilter::Body(how, texts))
}
