//! What a branch's servers have logged.

use chrono::DateTime;
use coppice_app::{Access, App, BodyMatch, LogFilter, LogLevel, LogRequest};
use coppice_core::operation::BRANCH_LOGS;
use coppice_core::target::InBranch;
use coppice_core::{Error, ErrorCode, Result};
use coppice_wire as wire;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::endpoint::{BodyAs, Endpoint, Shown, Waiting, post};
use crate::time::{AskedTime, check_range};

/// Characters of one of them.
const VALUES_LENGTH_MAX: usize = 256;
/// Characters of the text that may be longer.
const VALUE_LENGTH_MAX: usize = 1024;
/// Characters of all texts that a question looks for in messages: to make them
/// ready takes time.
const TEXTS_LENGTH_MAX: usize = 32 << 10;
const LIMIT_DEFAULT: u32 = 100;

/// Body of branchLogs. What is wrong with a filter has an id of its own.
#[derive(Debug, Deserialize, ToSchema)]
struct AskedLogs {
    #[schema(format = "date-time")]
    start: String,
    #[schema(format = "date-time")]
    end: String,
    #[schema(max_items = 20)]
    filters: Option<Vec<AskedFilter>>,
    #[schema(minimum = 1, maximum = 200)]
    limit: Option<u32>,
    #[schema(format = "looked-up")]
    cursor: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct AskedFilter {
    #[schema(format = "looked-up")]
    field: Option<String>,
    #[schema(max_items = 100, format = "looked-up")]
    values: Option<Vec<String>>,
    #[schema(format = "looked-up")]
    value: Option<String>,
    #[schema(format = "looked-up")]
    op: Option<String>,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Logs";
    vec![
        post("/logs", &BRANCH_LOGS)
            .says(AREA, "Read the log of a branch", "Newest entries first. A sleeping branch is not woken. Entries are kept for 14 days, unless the operator\nchose otherwise.")
            .answers("A page of entries.")
            .runs(branch_logs),
    ]
}

async fn branch_logs(
    app: App,
    access: Access<InBranch>,
    Waiting(BodyAs(asked, _), call): Waiting<BodyAs<wire::BranchLogsRequest, AskedLogs>>,
) -> Result<Shown<wire::BranchLogs>> {
    let (request, start, end) = log_request(asked)?;
    let found = app.logs.of_branch(&access, request).await?;
    // It may have waited long for its turn, and lines of meanwhile are in it.
    let _: Access<InBranch> = call.authorize(&app, &BRANCH_LOGS).await?;
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
    Ok(Shown(wire::BranchLogs {
        start: start.said,
        end: end.said,
        logs: logs.collect(),
        next_cursor: found.next_cursor,
    }))
}

/// The request, and its times as they were said.
fn log_request(asked: AskedLogs) -> Result<(LogRequest, AskedTime, AskedTime)> {
    let (start, end) = (AskedTime::of(asked.start)?, AskedTime::of(asked.end)?);
    let filters = asked.filters.unwrap_or_default().into_iter().map(filter);
    let filters = filters.collect::<Result<Vec<_>>>()?;
    let sought = filters.iter().flat_map(|filter| match filter {
        LogFilter::Body(_, texts) => texts.as_slice(),
        LogFilter::Instance(_) | LogFilter::Level(_) | LogFilter::Process(_) => &[],
    });
    if sought.map(|text| text.chars().count()).sum::<usize>() > TEXTS_LENGTH_MAX {
        let why = format!("all filters of body together must have at most {TEXTS_LENGTH_MAX} characters");
        return Err(invalid(&why));
    }
    let limit = asked.limit.unwrap_or(LIMIT_DEFAULT);
    let cursor = asked.cursor.filter(|text| !text.is_empty());
    check_range(start.at, end.at)?;
    Ok((LogRequest { start: start.at, end: end.at, filters, limit, cursor }, start, end))
}

fn is_level(text: &str) -> bool {
    LogLevel::ALL.iter().any(|level| level.as_str() == text)
}

fn invalid(why: &str) -> Error {
    Error::invalid(ErrorCode::InvalidFilter, format!("invalid filter: {why}"))
}

fn filter(asked: AskedFilter) -> Result<LogFilter> {
    let field = asked.field.as_deref().unwrap_or("body");
    let mut texts = asked.values.unwrap_or_default();
    if texts.iter().any(|text| !(1..=VALUES_LENGTH_MAX).contains(&text.chars().count())) {
        return Err(invalid(&format!("values must have 1 to {VALUES_LENGTH_MAX} characters each")));
    }
    match asked.value {
        None => {}
        // It is in everything, so nothing else matters.
        Some(text) if text.is_empty() => texts.clear(),
        Some(text) if text.chars().count() > VALUE_LENGTH_MAX => {
            return Err(invalid(&format!("value must have at most {VALUE_LENGTH_MAX} characters")));
        }
        Some(text) => texts.push(text),
    }
    let how = match (field, asked.op.as_deref()) {
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
        Ok(log_request(serde_json::from_value(body).expect("a question"))?.0)
    }

    #[test]
    fn filters_share_the_characters_they_may_have() {
        let filter = json!({ "op": "icontains", "values": vec!["x".repeat(256); 100] });
        assert!(asked(json!([filter])).is_ok(), "one of them may be as long as it can");
        let error = asked(json!([filter, filter])).expect_err("two are too long");
        assert_eq!(error.code(), ErrorCode::InvalidFilter);
        let why = "invalid filter: all filters of body together must have at most 32768 characters";
        assert_eq!(error.to_string(), why);
    }
}
