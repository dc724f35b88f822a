//! `coppice logs`

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCandidates;
use coppice_wire::{
    BranchLogs, BranchLogsRequest, LogEntry, LogField, LogFilter, LogLevel, LogOperator, Timestamp,
};

use super::http::Client;
use super::times::since;
use super::words::harmless;
use super::{ProjectChoice, complete, output};

/// Most entries of one answer.
const PAGE: u32 = 200;
/// How often new entries are asked for.
const POLL: Duration = Duration::from_secs(1);
/// How late an entry may turn up in the log.
const LATE: TimeDelta = TimeDelta::seconds(5);

/// What to show of a log.
#[derive(Args, Debug)]
pub(crate) struct LogsArgs {
    /// Name or id of the branch [default: the only one]
    #[arg(add = ArgValueCandidates::new(complete::branches))]
    branch: Option<String>,
    #[command(flatten)]
    project: ProjectChoice,
    /// Go on with new entries as they come
    #[arg(long, short)]
    follow: bool,
    /// Only entries that are at least this serious
    #[arg(long)]
    level: Option<LevelName>,
    /// Only entries whose message matches this regular expression
    #[arg(long, value_name = "REGEX")]
    grep: Option<String>,
    /// Only entries since then: a time like 2026-01-02T03:04:05Z, or how long ago: 30s, 15m, 1h, 2d
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<DateTime<Utc>>,
    /// The newest so many entries
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
    limit: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum LevelName {
    Debug,
    Info,
    Warning,
    Error,
}

impl LevelName {
    /// The names of this level and of those that are more serious.
    fn and_above(self) -> Vec<String> {
        let levels = [
            (Self::Debug, LogLevel::Debug),
            (Self::Info, LogLevel::Info),
            (Self::Warning, LogLevel::Warning),
            (Self::Error, LogLevel::Error),
        ];
        let wanted = levels.into_iter().filter(|(name, _)| *name >= self);
        wanted.map(|(_, level)| level.as_str().to_owned()).collect()
    }
}

/// Shows the log.
pub(super) async fn run(arguments: LogsArgs, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let project = arguments.project.project.as_deref();
    let place = client.branch_or_only(arguments.branch.as_deref(), project).await?;
    let path = format!("{}/logs", client.path_of(&place));
    let log = Log { client, path, filters: filters(&arguments) };
    let since = arguments.since.unwrap_or(DateTime::UNIX_EPOCH);
    let printer = Printer::new(as_json);
    let shown = log.newest(since, arguments.limit).await?;
    printer.print(&shown)?;
    if !arguments.follow {
        if shown.is_empty() && !as_json {
            note!("nothing was logged that fits");
        }
        return Ok(());
    }
    log.follow(shown, arguments.limit, &printer).await
}

fn filters(arguments: &LogsArgs) -> Vec<LogFilter> {
    let level = arguments.level.map(|level| LogFilter {
        field: Some(LogField::Level),
        op: Some(LogOperator::In),
        values: Some(level.and_above()),
        value: None,
    });
    let body = arguments.grep.as_ref().map(|expression| LogFilter {
        field: Some(LogField::Body),
        op: Some(LogOperator::Regex),
        values: None,
        value: Some(expression.clone()),
    });
    level.into_iter().chain(body).collect()
}

struct Log<'a> {
    client: &'a Client,
    path: String,
    filters: Vec<LogFilter>,
}

impl Log<'_> {
    /// The newest entries since a time, oldest first.
    async fn newest(&self, since: DateTime<Utc>, limit: u32) -> anyhow::Result<Vec<LogEntry>> {
        let mut request = BranchLogsRequest {
            start: Timestamp(since),
            // Machines' clocks differ a little.
            end: Timestamp(since.max(Utc::now() + TimeDelta::minutes(10))),
            filters: Some(self.filters.clone()),
            limit: None,
            cursor: None,
        };
        let mut entries = vec![];
        while entries.len() < limit as usize {
            request.limit = Some(PAGE.min(limit - entries.len() as u32));
            let page: BranchLogs = self.client.ask(&self.path, &request).await?;
            entries.extend(page.logs);
            request.cursor = page.next_cursor;
            if request.cursor.is_none() {
                break;
            }
        }
        entries.reverse();
        Ok(entries)
    }

    /// Asks again and again for the last few seconds and prints what was not
    /// among them before.
    async fn follow(&self, mut shown: Vec<LogEntry>, limit: u32, printer: &Printer) -> anyhow::Result<()> {
        // What is older than the first entry and was left out stays so.
        let mut earliest = match shown.first() {
            Some(first) if shown.len() >= limit as usize => first.timestamp.0,
            Some(_) | None => DateTime::UNIX_EPOCH,
        };
        if shown.is_empty() {
            earliest = Utc::now() - LATE;
        }
        loop {
            tokio::time::sleep(POLL).await;
            let newest = shown.last().map_or(earliest, |entry| entry.timestamp.0);
            let from = earliest.max(newest - LATE);
            let found = self.newest(from, u32::MAX).await?;
            printer.print(&unseen(&shown, &found))?;
            if !found.is_empty() {
                shown = found;
            }
        }
    }
}

/// What is in `found` and not in `shown`; alike entries are counted.
fn unseen(shown: &[LogEntry], found: &[LogEntry]) -> Vec<LogEntry> {
    let key = |entry: &LogEntry| {
        (entry.timestamp.0, entry.instance_id.clone(), entry.process.clone(), entry.message.clone())
    };
    let mut counts = HashMap::new();
    for entry in shown {
        *counts.entry(key(entry)).or_insert(0u32) += 1;
    }
    let is_new = |entry: &&LogEntry| match counts.get_mut(&key(entry)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    found.iter().filter(is_new).cloned().collect()
}

struct Printer {
    as_json: bool,
    in_colour: bool,
}

impl Printer {
    fn new(as_json: bool) -> Self {
        Self { as_json, in_colour: output::has_colour() }
    }

    fn print(&self, entries: &[LogEntry]) -> anyhow::Result<()> {
        let mut text = String::new();
        for entry in entries {
            match self.as_json {
                true => text.push_str(&serde_json::to_string(entry)?),
                false => text.push_str(&self.line(entry)),
            }
            text.push('\n');
        }
        match self.as_json {
            true => crate::say::whole(&text),
            // Its colours command the terminal; what is in it was made harmless.
            false => crate::say::piece(&text),
        }
        Ok(())
    }

    fn line(&self, entry: &LogEntry) -> String {
        let time = entry.timestamp.0.format("%Y-%m-%d %H:%M:%S%.3fZ");
        let level = entry.level.as_str().to_uppercase();
        let message = harmless(&entry.message).replace('\n', "\n    ");
        if !self.in_colour {
            return format!("{time} {level:<7} {}: {message}", harmless(&entry.process));
        }
        let colour = match entry.level {
            LogLevel::Debug => 90,
            LogLevel::Info => 32,
            LogLevel::Warning => 33,
            LogLevel::Error => 31,
        };
        let process = harmless(&entry.process);
        format!("\x1b[2m{time}\x1b[0m \x1b[{colour}m{level:<7}\x1b[0m \x1b[2m{process}:\x1b[0m {message}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(second: i64, message: &str) -> LogEntry {
        LogEntry {
            timestamp: Timestamp(DateTime::from_timestamp(second, 0).expect("a time")),
            instance_id: "b-1".to_owned(),
            message: message.to_owned(),
            level: LogLevel::Error,
            process: "client backend".to_owned(),
        }
    }

    #[test]
    fn entries_that_are_alike_are_shown_as_often_as_they_come() {
        let (a, b, c) = (entry(1, "a"), entry(2, "b"), entry(3, "c"));
        let shown = [a.clone(), b.clone(), b.clone()];
        let found = [b.clone(), b.clone(), b.clone(), c.clone()];
        assert_eq!(unseen(&shown, &found), [b, c]);
        assert_eq!(unseen(&found, &found), []);
    }

    #[test]
    fn a_message_can_not_command_the_terminal() {
        let printer = Printer { as_json: false, in_colour: false };
        let line = printer.line(&entry(0, "\x1b[2Jone\ntwo\u{9b}"));
        assert_eq!(line, "1970-01-01 00:00:00.000Z ERROR   client backend: \u{fffd}[2Jone\n    two\u{fffd}");
    }
}
