//! `coppice metrics`

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use clap_complete::ArgValueCandidates;
use comfy_table::{Cell, Color};
use coppice_wire::{
    BranchMetrics, BranchMetricsRequest, MetricAggregation, MetricName, MetricResult, MetricSeries,
};

use super::http::Client;
use super::output::{self, bytes};
use super::times::ago;
use super::{ProjectChoice, complete};

/// How often `--watch` looks again.
const WATCH: Duration = Duration::from_secs(5);
/// Columns of a drawing.
const COLUMNS: usize = 48;
/// From nothing to the largest value.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ALL: [MetricName; 15] = [
    MetricName::Cpu,
    MetricName::Memory,
    MetricName::Disk,
    MetricName::ConnectionsActive,
    MetricName::ConnectionsIdle,
    MetricName::NetworkIngress,
    MetricName::NetworkEgress,
    MetricName::IopsRead,
    MetricName::IopsWrite,
    MetricName::ThroughputRead,
    MetricName::ThroughputWrite,
    MetricName::LatencyRead,
    MetricName::LatencyWrite,
    MetricName::WalSyncTime,
    MetricName::ReplicationLagTime,
];

/// What to show.
#[derive(Args, Clone, Debug)]
pub(crate) struct MetricsArgs {
    /// Name or id of the branch [default: the only one]
    #[arg(add = ArgValueCandidates::new(complete::branches))]
    branch: Option<String>,
    #[command(flatten)]
    project: ProjectChoice,
    /// From how long ago: 30m, 6h, 2d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time_span)]
    since: TimeDelta,
    /// Only these metrics, for example cpu,disk [default: all that have values]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = metric)]
    metric: Vec<MetricName>,
    /// Look again every 5 seconds until interrupted
    #[arg(long)]
    watch: bool,
}

fn time_span(text: &str) -> Result<TimeDelta, String> {
    let span = ago(text).filter(|span| *span > TimeDelta::zero() && *span <= TimeDelta::days(3660));
    span.ok_or_else(|| format!("`{text}` is no time like 30m, 6h or 2d"))
}

fn metric(text: &str) -> Result<MetricName, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned()))
        .map_err(|_| format!("there is no such metric; there are {}", ALL.map(name).join(", ")))
}

fn name(metric: MetricName) -> String {
    let name = serde_json::to_value(metric).ok();
    name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Shows them once, or again and again.
pub(super) async fn run(arguments: &MetricsArgs, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let project = arguments.project.project.as_deref();
    let place = client.branch_or_only(arguments.branch.as_deref(), project).await?;
    let path = format!("{}/metrics", client.path_of(&place));
    let clears = arguments.watch && !as_json && std::io::stdout().is_terminal();
    loop {
        let now = Utc::now();
        let found = ask(arguments, client, &path, now).await?;
        if clears {
            crate::say::piece("\x1b[2J\x1b[H");
        }
        match (as_json, arguments.watch) {
            (true, true) => say!("{}", serde_json::to_string(&found)?),
            (true, false) => output::json(&found)?,
            (false, _) => show(&found, arguments, now),
        }
        if !arguments.watch {
            return Ok(());
        }
        tokio::time::sleep(WATCH).await;
    }
}

async fn ask(
    arguments: &MetricsArgs,
    client: &Client,
    path: &str,
    now: DateTime<Utc>,
) -> anyhow::Result<BranchMetrics> {
    let time = |time: DateTime<Utc>| time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let start = now.checked_sub_signed(arguments.since).context("that is too long ago")?;
    let request = BranchMetricsRequest {
        start: time(start),
        end: time(now),
        metrics: if arguments.metric.is_empty() { ALL.to_vec() } else { arguments.metric.clone() },
        instances: None,
        aggregations: Some(vec![MetricAggregation::Avg, MetricAggregation::Max]),
    };
    client.post(path, &request).await
}

fn show(found: &BranchMetrics, arguments: &MetricsArgs, now: DateTime<Utc>) {
    let start = now - arguments.since;
    let first = found.results.first().map(|result| result.series.as_slice()).unwrap_or_default();
    let mut instances: Vec<_> = first.iter().map(|series| series.instance_id.as_str()).collect();
    instances.dedup();
    for instance in &instances {
        let rows = found.results.iter().filter_map(|result| {
            let series = |aggregation| {
                let mut all = result.series.iter();
                all.find(|series| series.instance_id == *instance && series.aggregation == aggregation)
            };
            row(result, series(MetricAggregation::Avg)?, series(MetricAggregation::Max)?, start, now)
        });
        let rows: Vec<_> = rows.collect();
        let (first, last) = (start.format("%Y-%m-%d %H:%M"), now.format("%H:%M:%S"));
        say!("{instance}, from {first} to {last} UTC");
        if rows.is_empty() {
            note!("nothing was measured in this time: the branch slept, or is too new");
        } else {
            output::cells(&["METRIC", "SCALE", &axis(start, now), "NOW", "AVG", "MAX"], rows);
        }
    }
}

/// Where the drawings begin and end, as wide as they are.
fn axis(start: DateTime<Utc>, end: DateTime<Utc>) -> String {
    let form = if end - start > TimeDelta::days(1) { "%m-%d %H:%M" } else { "%H:%M" };
    let middle = start + (end - start) / 2;
    let [first, middle, last] = [start, middle, end].map(|time| time.format(form).to_string());
    let half = COLUMNS / 2;
    let gap = " ".repeat(half.saturating_sub(first.len() + middle.len() / 2));
    let begin = format!("{first}{gap}{middle}");
    let rest = " ".repeat(COLUMNS.saturating_sub(begin.len() + last.len()));
    format!("{begin}{rest}{last}")
}

/// One line; none when nothing was measured.
fn row(
    result: &MetricResult,
    avg: &MetricSeries,
    max: &MetricSeries,
    start: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Option<Vec<Cell>> {
    let last = avg.values.last()?;
    let mean = avg.values.iter().map(|point| point.value).sum::<f64>() / avg.values.len() as f64;
    let most = max.values.iter().map(|point| point.value).fold(f64::MIN, f64::max);
    // What was measured long ago is not so now: the branch may sleep.
    let is_now = now - last.timestamp.0 <= ((now - start) / 24).max(TimeDelta::minutes(3));
    let unit = result.unit.as_str();
    let least_top = if unit == "percentage" { 100.0 } else { 0.0 };
    let (drawn, top) = draw(avg, start, now, least_top);
    Some(vec![
        Cell::new(name(result.metric)),
        Cell::new(format!("0–{}", amount(top, unit))),
        Cell::new(drawn).fg(colour(unit, most)),
        Cell::new(if is_now { amount(last.value, unit) } else { "-".to_owned() }),
        Cell::new(amount(mean, unit)),
        Cell::new(amount(most, unit)),
    ])
}

/// What is a share of something says by its colour how much is left.
fn colour(unit: &str, most: f64) -> Color {
    match (unit, most) {
        ("percentage", 90.0..) => Color::Red,
        ("percentage", 70.0..) => Color::Yellow,
        _ => Color::Green,
    }
}

/// A bar for each part of the time; blanks where nothing was measured. The
/// largest bar is the largest value, or `top` if that is more; returns it too.
fn draw(series: &MetricSeries, start: DateTime<Utc>, end: DateTime<Utc>, top: f64) -> (String, f64) {
    let length = (end - start).num_milliseconds().max(1) as f64;
    let mut parts = [(0_u32, 0_f64); COLUMNS];
    for point in &series.values {
        let place = (point.timestamp.0 - start).num_milliseconds() as f64 / length;
        let column = ((place * COLUMNS as f64) as usize).min(COLUMNS - 1);
        parts[column].0 += 1;
        parts[column].1 += point.value;
    }
    // Fewer points than columns: each is drawn up to the next one.
    let gap = COLUMNS.div_ceil(series.values.len().max(1));
    let mut values = parts.map(|(count, sum)| (count > 0).then(|| sum / f64::from(count)));
    for column in 0..COLUMNS {
        if values[column].is_none() {
            let from = column.saturating_sub(gap);
            let before = (from..column).rev().find(|before| parts[*before].0 > 0);
            values[column] = before.and_then(|before| values[before]);
        }
    }
    let top = values.iter().flatten().copied().fold(top, f64::max);
    let bar = |value: Option<f64>| match value {
        None => ' ',
        Some(value) if top <= 0.0 || value <= 0.0 => BARS[0],
        Some(value) => BARS[((value / top * (BARS.len() - 1) as f64).round() as usize).min(BARS.len() - 1)],
    };
    (values.map(bar).iter().collect(), top)
}

/// A value for people.
fn amount(value: f64, unit: &str) -> String {
    match unit {
        "percentage" => format!("{value:.1} %"),
        "bytes" => bytes(value),
        "bytes/s" => format!("{}/s", bytes(value)),
        "connections" => format!("{}", (value * 10.0).round() / 10.0),
        "ms" => format!("{value:.2} ms"),
        "iops" => format!("{value:.1} /s"),
        unit => format!("{value:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use coppice_wire::{MetricValue, Timestamp};

    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).expect("a time")
    }

    fn series(values: impl IntoIterator<Item = (i64, f64)>) -> MetricSeries {
        let value = |(second, value)| MetricValue { timestamp: Timestamp(at(second)), value };
        MetricSeries {
            instance_id: "b-1".to_owned(),
            aggregation: MetricAggregation::Avg,
            values: values.into_iter().map(value).collect(),
        }
    }

    #[test]
    fn a_drawing_goes_from_nothing_to_the_largest_value() {
        let (drawn, top) = draw(&series((0..48).map(|second| (second, second as f64))), at(0), at(48), 0.0);
        assert!((top - 47.0).abs() < 0.01, "{top}");
        assert_eq!(
            (drawn.chars().count(), drawn.chars().next(), drawn.chars().last()),
            (48, Some('▁'), Some('█'))
        );
        let (half, _) = draw(&series([(0, 50.0)]), at(0), at(48), 100.0);
        assert!(half.starts_with('▅'), "{half}");
    }

    #[test]
    fn a_time_in_which_nothing_was_measured_stays_empty() {
        let values = (0..12).map(|second| (second, 1.0)).chain((36..48).map(|second| (second, 1.0)));
        let (drawn, _) = draw(&series(values), at(0), at(48), 0.0);
        assert!(drawn.contains("     "), "{drawn}");
        assert!(drawn.ends_with('█') && drawn.starts_with('█'), "{drawn}");
    }

    #[test]
    fn the_axis_is_as_wide_as_a_drawing() {
        for length in [60, 3600 * 30] {
            let axis = axis(at(0), at(length));
            assert_eq!(axis.len(), COLUMNS, "{axis}");
        }
        assert!(axis(at(0), at(3600)).starts_with("00:00") && axis(at(0), at(3600)).ends_with("01:00"));
    }

    #[test]
    fn times_are_written_with_their_unit() {
        assert_eq!(time_span("30m"), Ok(TimeDelta::minutes(30)));
        assert_eq!(time_span("2d"), Ok(TimeDelta::days(2)));
        for wrong in ["", "1w", "-1h", "0m", "3661d"] {
            assert!(time_span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn amounts_are_short() {
        assert_eq!(amount(1536.0, "bytes"), "1.5 KiB");
        assert_eq!(amount(12.0, "bytes/s"), "12 B/s");
        assert_eq!(amount(2.0, "connections"), "2");
        assert_eq!(amount(99.97, "percentage"), "100.0 %");
    }

    #[test]
    fn every_metric_can_be_named() {
        for one in ALL {
            assert_eq!(metric(&name(one)), Ok(one));
        }
        assert!(metric("load").is_err());
    }
}
