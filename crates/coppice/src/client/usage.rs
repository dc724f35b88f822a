//! `coppice usage`

use chrono::{DateTime, SecondsFormat, Utc};
use clap::{Args, ValueEnum};
use coppice_wire::{Usage, UsageGroup, UsageMeter, UsageRow};

use super::http::Client;
use super::output;
use super::people::in_query;
use super::settings::labels_in_words;
use super::times::{moment, since};

/// How usage is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Table,
    /// For spreadsheets and cost tools, with the columns of FOCUS
    Csv,
}

/// What to show of what was used.
#[derive(Args, Debug)]
pub(crate) struct UsageArgs {
    /// From then on: a time like 2026-01-01T00:00:00Z, or how long ago: 12h, 30d [default: this month]
    #[arg(long, value_name = "TIME", value_parser = since)]
    from: Option<DateTime<Utc>>,
    /// Until then [default: now]
    #[arg(long, value_name = "TIME", value_parser = since)]
    to: Option<DateTime<Utc>>,
    /// What to tell apart, with commas between: project, branch, labels, label:KEY, type, and one of hour, day and month
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "project", value_parser = group)]
    by: Vec<UsageGroup>,
    /// How to print it
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    format: Format,
}

/// Whether a column is shown, its name, and what it has of a row.
type Column = (bool, &'static str, fn(&UsageRow) -> String);

/// Shows what the organization used.
pub(super) async fn run(arguments: UsageArgs, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let names = arguments.by.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mut path = client.here(&format!("/usage?groupBy={}", in_query(&names)));
    for (name, time) in [("from", arguments.from), ("to", arguments.to)] {
        if let Some(time) = time {
            path += &format!("&{name}={}", in_query(&time.to_rfc3339_opts(SecondsFormat::Secs, true)));
        }
    }
    if arguments.format == Format::Csv {
        crate::say::whole(&client.text(&format!("{path}&format=csv")).await?);
        return Ok(());
    }
    let usage: Usage = client.get(&path).await?;
    if as_json {
        return output::json(&usage);
    }
    let has_time = usage
        .group_by
        .iter()
        .any(|group| matches!(group, UsageGroup::Hour | UsageGroup::Day | UsageGroup::Month));
    let has_labels =
        usage.group_by.iter().any(|group| matches!(group, UsageGroup::Label(_) | UsageGroup::Labels));
    let columns: [Column; 8] = [
        (has_time, "SINCE", |row| row.began_at.map(|time| moment(time.0)).unwrap_or_default()),
        (
            usage.group_by.contains(&UsageGroup::Project) || usage.group_by.contains(&UsageGroup::Branch),
            "PROJECT",
            |row| row.project_name.clone().unwrap_or_default(),
        ),
        (usage.group_by.contains(&UsageGroup::Branch), "BRANCH", |row| {
            row.branch_name.clone().unwrap_or_default()
        }),
        (has_labels, "LABELS", |row| row.labels.as_ref().map(labels_in_words).unwrap_or_default()),
        (true, "WHAT", what),
        (true, "QUANTITY", |row| row.quantity.clone()),
        (true, "UNIT", |row| row.unit.clone()),
        (usage.currency.is_some(), "COST", |row| row.cost.clone().unwrap_or_default()),
    ];
    let shown: Vec<_> = columns.into_iter().filter(|(is_shown, ..)| *is_shown).collect();
    let header: Vec<_> = shown.iter().map(|(_, name, _)| *name).collect();
    let rows = usage.rows.iter().map(|row| shown.iter().map(|(.., cell)| cell(row)).collect());
    output::table(&header, rows.collect());
    if let (Some(total), Some(currency)) = (&usage.total, &usage.currency) {
        say!("{total} {currency}");
    }
    Ok(())
}

fn group(text: &str) -> Result<UsageGroup, &'static str> {
    text.parse()
}

fn what(row: &UsageRow) -> String {
    let what = match row.meter {
        UsageMeter::Awake => "awake",
        UsageMeter::Asleep => "asleep",
        UsageMeter::Storage => "storage",
        UsageMeter::Shared => "shared",
        UsageMeter::Egress => "egress",
    };
    row.instance_type.as_ref().map_or_else(|| what.to_owned(), |kind| format!("{what} {kind}"))
}
