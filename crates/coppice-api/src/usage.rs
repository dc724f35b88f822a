//! Showing what an organization used.

use std::fmt::Write as _;

use chrono::{DateTime, Datelike, Days, Months, TimeDelta, Utc};
use coppice_app::{Access, App, ByLabels, UsageGrouping, UsageLine, UsageRequest, UsageStep};
use coppice_core::amount::Decimal;
use coppice_core::labels::{KEY_RULE, LABELS_MAX, is_key};
use coppice_core::operation::GET_USAGE;
use coppice_core::usage::Meter;
use coppice_core::{Error, Result};
use coppice_wire::{self as wire, UsageGroup};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use crate::endpoint::{Endpoint, Forms, Query, Waiting, Written, get};
use crate::progress;

/// Another form of a report.
const CSV: &str = "text/csv";

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Billing";
    vec![
        get("/usage", &GET_USAGE)
            .says(AREA, "Show what an organization used", "Also of branches and projects that are deleted. Hours are sealed some minutes after their end; those after `sealedUntil` may still change a little.\n\nThe text/csv has the columns of FOCUS; ask for it with `format=csv`, or name it first in `Accept`.")
            .answers("What was used.")
            .runs(get_usage),
    ]
}

/// Which usage to show.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
struct GetUsage {
    /// From the hour on that this is in: an RFC 3339 date-time. Without it from the beginning of the month in UTC.
    #[param(value_type = Option<String>, example = "2026-01-01T00:00:00Z", format = "time")]
    from: Option<DateTime<Utc>>,
    /// Up to the end of the hour that this is in, at most 400 days later: an RFC 3339 date-time. Without it until now.
    #[param(value_type = Option<String>, example = "2026-02-01T00:00:00Z", format = "time")]
    to: Option<DateTime<Utc>>,
    /// What is told apart, with commas between: project, branch, type, one of hour, day and month, and labels that the
    /// branch had then: all (`labels`), or those with some keys (`label:KEY`, at most 16).
    #[param(max_length = 1024, format = "sought", example = "project,day")]
    group_by: Option<String>,
    /// How the answer looks. Without it `Accept` decides.
    #[param(inline)]
    format: Option<wire::UsageFormat>,
}

async fn get_usage(
    app: App,
    access: Access,
    Waiting(Query(asked), call): Waiting<Query<GetUsage>>,
) -> Result<Written<wire::Usage>> {
    let group_by = groups(asked.group_by.as_deref().unwrap_or_default())?;
    let has = |group| group_by.contains(&group);
    let now = Utc::now();
    let to = asked.to.unwrap_or(now);
    let request = UsageRequest {
        from: asked.from.unwrap_or_else(|| beginning(to, UsageStep::Month)),
        to,
        grouping: UsageGrouping {
            by_project: has(UsageGroup::Project),
            by_branch: has(UsageGroup::Branch),
            by_labels: by_labels(&group_by)?,
            by: step(&group_by)?,
        },
        by_instance_type: has(UsageGroup::Type),
    };
    let report = progress::report(app.usage.report(&access, &request)).await?;
    let _: Access = call.authorize(&app, &GET_USAGE).await?;
    let costs = report.lines.iter().filter_map(|line| line.cost.as_ref());
    let total = report.currency.as_ref().map(|_| costs.sum::<Decimal>().with_scale(6).to_plain_string());
    let shown = wire::Usage {
        from: wire::Timestamp(report.from),
        to: wire::Timestamp(report.to),
        sealed_until: wire::Timestamp(report.sealed_until),
        group_by,
        rows: report.lines.into_iter().map(to_wire).collect(),
        currency: report.currency,
        total,
    };
    let kind = asked.format.map(|format| match format {
        wire::UsageFormat::Json => "application/json",
        wire::UsageFormat::Csv => CSV,
    });
    Ok(Written { shown, kind })
}

fn groups(text: &str) -> Result<Vec<UsageGroup>> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let mut groups = vec![];
    for word in words {
        let group: UsageGroup = word.parse().map_err(|why| {
            Error::invalid_query("groupBy", format_args!("{why}, or several with commas between"))
        })?;
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    Ok(groups)
}

fn by_labels(groups: &[UsageGroup]) -> Result<Option<ByLabels>> {
    let keys = groups.iter().filter_map(|group| match group {
        UsageGroup::Label(key) => Some(key.clone()),
        _ => None,
    });
    let keys: Vec<_> = keys.collect();
    let has_all = groups.contains(&UsageGroup::Labels);
    match &keys[..] {
        [] => Ok(has_all.then_some(ByLabels::All)),
        _ if has_all => Err(Error::invalid_query("groupBy", "must have either labels or some of label:KEY")),
        keys if keys.len() > LABELS_MAX => {
            let why = format_args!("must have at most {LABELS_MAX} of label:KEY");
            Err(Error::invalid_query("groupBy", why))
        }
        some if !some.iter().all(|key| is_key(key)) => Err(Error::invalid_query("groupBy", KEY_RULE)),
        _ => Ok(Some(ByLabels::Of(keys))),
    }
}

fn step(groups: &[UsageGroup]) -> Result<Option<UsageStep>> {
    let mut steps = groups.iter().filter_map(|group| match group {
        UsageGroup::Hour => Some(UsageStep::Hour),
        UsageGroup::Day => Some(UsageStep::Day),
        UsageGroup::Month => Some(UsageStep::Month),
        UsageGroup::Project
        | UsageGroup::Branch
        | UsageGroup::Label(_)
        | UsageGroup::Labels
        | UsageGroup::Type => None,
    });
    match (steps.next(), steps.next()) {
        (_, Some(_)) => Err(Error::invalid_query("groupBy", "must have only one of hour, day and month")),
        (step, None) => Ok(step),
    }
}

/// When the day or month began that holds a time.
fn beginning(time: DateTime<Utc>, step: UsageStep) -> DateTime<Utc> {
    let date = time.date_naive();
    let date = if step == UsageStep::Month { date.with_day(1).unwrap_or(date) } else { date };
    date.and_time(chrono::NaiveTime::MIN).and_utc()
}

fn to_wire(line: UsageLine) -> wire::UsageRow {
    let (project_id, project_name) = line.project.unzip();
    let (branch_id, branch_name) = line.branch.unzip();
    wire::UsageRow {
        project_id: project_id.map(|id| id.to_string()),
        project_name,
        branch_id: branch_id.map(|id| id.to_string()),
        branch_name,
        labels: line.labels,
        began_at: line.began_at.map(wire::Timestamp),
        instance_type: line.instance_type,
        meter: match line.meter {
            Meter::Awake => wire::UsageMeter::Awake,
            Meter::Asleep => wire::UsageMeter::Asleep,
            Meter::Storage => wire::UsageMeter::Storage,
            Meter::Shared => wire::UsageMeter::Shared,
            Meter::Egress => wire::UsageMeter::Egress,
        },
        quantity: line.quantity.to_plain_string(),
        unit: line.meter.unit().to_owned(),
        cost: line.cost.map(|cost| cost.to_plain_string()),
    }
}

/// Columns of the FinOps Open Cost and Usage Specification that say something here.
const COLUMNS: &str = "ChargePeriodStart,ChargePeriodEnd,ServiceCategory,ServiceName,ChargeCategory,\
    ChargeDescription,SubAccountId,SubAccountName,ResourceId,ResourceName,SkuId,ConsumedQuantity,ConsumedUnit,\
    BilledCost,EffectiveCost,ContractedCost,ListCost,BillingCurrency,Tags";

impl Forms for wire::Usage {
    const KINDS: &'static [&'static str] = &[CSV];

    async fn form(self, _: &str) -> Result<Vec<u8>> {
        let mut text = format!("{COLUMNS}\r\n");
        for row in &self.rows {
            let (start, end) = self.period_of(row);
            let (what, sku) = match row.meter {
                wire::UsageMeter::Awake => ("Compute", row.instance_type.as_deref().unwrap_or("compute")),
                wire::UsageMeter::Asleep => ("Asleep", "asleep"),
                wire::UsageMeter::Storage => ("Storage", "storage"),
                wire::UsageMeter::Shared => ("Storage that branches share", "shared"),
                wire::UsageMeter::Egress => ("Data sent to clients", "egress"),
            };
            let id = |id: &Option<String>| cell(id.as_deref().unwrap_or_default());
            let tags = row.labels.as_ref().map(|labels| cell(&json!(labels).to_string()));
            let cost = row.cost.clone().unwrap_or_default();
            let cells = [
                time(start),
                time(end),
                "Databases".to_owned(),
                "PostgreSQL".to_owned(),
                "Usage".to_owned(),
                what.to_owned(),
                id(&row.project_id),
                id(&row.project_name),
                id(&row.branch_id),
                id(&row.branch_name),
                cell(sku),
                row.quantity.clone(),
                row.unit.clone(),
                cost.clone(),
                cost.clone(),
                cost.clone(),
                cost,
                self.currency.clone().unwrap_or_default(),
                tags.unwrap_or_default(),
            ];
            // Writing to a text does not fail.
            let _ = write!(text, "{}\r\n", cells.join(","));
        }
        Ok(text.into_bytes())
    }
}

trait Periods {
    fn period_of(&self, row: &wire::UsageRow) -> (DateTime<Utc>, DateTime<Utc>);
}

impl Periods for wire::Usage {
    /// The part of the row's hour, day or month that was asked for.
    fn period_of(&self, row: &wire::UsageRow) -> (DateTime<Utc>, DateTime<Utc>) {
        let Some(wire::Timestamp(began)) = row.began_at else { return (self.from.0, self.to.0) };
        let has = |group| self.group_by.contains(&group);
        let end = match (has(UsageGroup::Hour), has(UsageGroup::Day)) {
            (true, _) => began.checked_add_signed(TimeDelta::hours(1)),
            (_, true) => began.checked_add_days(Days::new(1)),
            _ => began.checked_add_months(Months::new(1)),
        };
        (began.max(self.from.0), end.unwrap_or(self.to.0).min(self.to.0))
    }
}

fn time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What formulas begin with, also where East Asian signs are typed.
const BEGINS_FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// A cell that no program takes for more than a text: a name that begins as a
/// formula does, also after what programs leave out, gets an apostrophe before it.
fn cell(text: &str) -> String {
    let is_left_out = |character: char| character.is_whitespace() || character.is_control();
    let is_formula =
        text.starts_with(['\t', '\r']) || text.trim_start_matches(is_left_out).starts_with(BEGINS_FORMULA);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    match text.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn no_program_takes_a_name_for_a_formula() {
        for name in ["=1", "+1", "-1", "@x", " =1", "\u{3000}=1", "\u{a0}@x", "\t1", "\u{b}=1", "＝1", " ＠x"]
        {
            assert!(cell(name).starts_with('\''), "{name:?}");
        }
        assert_eq!(cell("\r\n=1,\"2\""), "\"'\r\n=1,\"\"2\"\"\"");
        for name in ["shop", "a=b", " shop", "1-1", "ä"] {
            assert_eq!(cell(name), name);
        }
    }
}
