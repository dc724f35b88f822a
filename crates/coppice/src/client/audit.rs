//! `coppice audit`

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use clap::Args;
use coppice_wire::{AuditActorKind, AuditEntry, AuditLog, AuditResult};

use super::http::Client;
use super::output;
use super::people::in_query;
use super::times::{moment, since};

/// Most lines of one answer.
const PAGE: u32 = 200;
/// How often new lines are asked for.
const POLL: Duration = Duration::from_secs(2);
/// A change that takes longer is shown before it has ended.
const PATIENCE: TimeDelta = TimeDelta::seconds(30);

/// What to show of the audit log.
#[derive(Args, Debug)]
pub(crate) struct AuditArgs {
    /// Only of this one: address or id of a user, id of a key, or operator
    #[arg(long)]
    actor: Option<String>,
    /// Only this operation, like createBranch
    #[arg(long)]
    action: Option<String>,
    /// Only since then: a time like 2026-01-02T03:04:05Z, or how long ago: 30s, 15m, 1h, 2d
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<DateTime<Utc>>,
    /// The newest so many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    limit: u32,
    /// Go on with new ones as they come
    #[arg(long, short)]
    follow: bool,
}

/// Shows the log, the newest last.
pub(super) async fn run(arguments: AuditArgs, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let mut shown = newest(&arguments, client, arguments.since, arguments.limit).await?;
    shown.reverse();
    if !arguments.follow {
        if as_json {
            return output::json(&serde_json::json!({ "entries": shown }));
        }
        shown.iter().for_each(|entry| say!("{}", line(entry)));
        return Ok(());
    }
    follow(&arguments, client, as_json, shown).await
}

/// The newest lines since a time, the newest first.
async fn newest(
    arguments: &AuditArgs,
    client: &Client,
    since: Option<DateTime<Utc>>,
    count_max: u32,
) -> anyhow::Result<Vec<AuditEntry>> {
    let mut found: Vec<AuditEntry> = vec![];
    let mut cursor: Option<String> = None;
    while (found.len() as u32) < count_max {
        let wanted = PAGE.min(count_max - found.len() as u32);
        let mut path = client.here(&format!("/audit-log?limit={wanted}"));
        let since = since.map(|time| time.to_rfc3339_opts(SecondsFormat::Millis, true));
        let parameters = [
            ("actor", &arguments.actor),
            ("action", &arguments.action),
            ("start", &since),
            ("cursor", &cursor),
        ];
        for (name, value) in parameters {
            if let Some(value) = value {
                path += &format!("&{name}={}", in_query(value));
            }
        }
        let page: AuditLog = client.get(&path).await?;
        found.extend(page.entries);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(found)
}

/// Prints lines as they end, for ever.
async fn follow(
    arguments: &AuditArgs,
    client: &Client,
    as_json: bool,
    shown: Vec<AuditEntry>,
) -> anyhow::Result<()> {
    // By id, with the time: what was shown and might come again.
    let mut printed = BTreeMap::<String, DateTime<Utc>>::new();
    let mut fresh = shown;
    let begin = Utc::now();
    loop {
        for entry in fresh {
            let is_ready = entry.result != AuditResult::Unknown || entry.began_at.0 < Utc::now() - PATIENCE;
            if is_ready && printed.insert(entry.id.clone(), entry.began_at.0).is_none() {
                match as_json {
                    true => say!("{}", serde_json::to_string(&entry)?),
                    false => say!("{}", line(&entry)),
                }
            }
        }
        tokio::time::sleep(POLL).await;
        // What had not ended when it was last looked for is not older than this.
        let window = (Utc::now() - PATIENCE * 2).max(begin - PATIENCE);
        let since = arguments.since.map_or(window, |since| since.max(window));
        printed.retain(|_, began| *began >= since);
        fresh = newest(arguments, client, Some(since), u32::MAX).await?;
        fresh.reverse();
    }
}

/// A line for people.
fn line(entry: &AuditEntry) -> String {
    let time = moment(entry.began_at.0);
    let result = entry.result.as_str();
    let why = entry.error_id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    let actor = match entry.actor.kind {
        AuditActorKind::Operator => "operator".to_owned(),
        AuditActorKind::User | AuditActorKind::Organization => {
            let name = entry.actor.email.clone().or_else(|| entry.actor.id.clone());
            let credential = entry.credential_id.as_ref().map(|id| format!(" by {id}")).unwrap_or_default();
            name.unwrap_or_default() + &credential
        }
    };
    let about = [&entry.project_id, &entry.branch_id].into_iter().flatten().chain(&entry.target_ids);
    let about: Vec<_> = about.chain(&entry.created_id).map(String::as_str).collect();
    let from = entry.client_address.as_ref().map(|address| format!(" from {address}")).unwrap_or_default();
    let names = match entry.names.is_empty() {
        true => String::new(),
        false => format!("  ({})", entry.names.join(", ")),
    };
    format!("{time}  {}  {result}{why}  {actor}{from}  {}{names}", entry.action, about.join(" "))
        .trim_end()
        .to_owned()
}
