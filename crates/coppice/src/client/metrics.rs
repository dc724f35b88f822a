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
use super::words::harmless;
use super::{ProjectChoice, complete};

/// How often `--watch` looks again.
const WATCH: Duration = Duration::from_secs(5);
/// Columns of a drawing for programs, and where a terminal has room for everything.
const COLUMNS: usize = 48;
/// Fewest and most columns of a drawing in a terminal.
const COLUMNS_MIN: usize = 18;
const COLUMNS_MAX: usize = 96;
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
        let lines = found.results.iter().filter_map(|result| {
            let series = |aggregation| {
                let mut all = result.series.iter();
                all.find(|series| series.instance_id == *instance && series.aggregation == aggregation)
            };
            Line::of(result, series(MetricAggregation::Avg)?, series(MetricAggregation::Max)?, start, now)
        });
        let lines: Vec<_> = lines.collect();
        let (first, last) = (start.format("%Y-%m-%d %H:%M"), now.format("%H:%M:%S"));
        say!("{instance}, from {first} to {last} UTC");
        if lines.is_empty() {
            note!("nothing was measured in this time: the branch slept, or is too new");
            continue;
        }
        let (columns, has_average) = room(&lines, output::width());
        let axis = axis(start, now, columns);
        let mut header = vec!["METRIC", "SCALE", &axis, "NOW", "MAX"];
        if has_average {
            header.insert(4, "AVG");
        }
        let rows = lines.iter().map(|line| line.cells(start, now, columns, has_average));
        output::cells(&header, rows.collect());
    }
}

/// How wide the drawings are, and whether there is room for averages, too.
fn room(lines: &[Line], width: Option<usize>) -> (usize, bool) {
    let Some(width) = width else { return (COLUMNS, true) };
    let column = |header, text: for<'a> fn(&'a Line<'_>) -> &'a str| {
        output::column_width(lines.iter().map(text).chain([header]))
    };
    let texts = column("METRIC", |line| &line.name) + column("SCALE", |line| &line.scale);
    let texts = texts + column("NOW", |line| &line.now) + column("MAX", |line| &line.most);
    let texts = texts + output::column_width([""]);
    let average = column("AVG", |line| &line.average);
    let left = width.saturating_sub(texts);
    match left.checked_sub(average).filter(|left| *left >= COLUMNS) {
        Some(left) => (left.min(COLUMNS_MAX), true),
        None => (left.clamp(COLUMNS_MIN, COLUMNS_MAX), false),
    }
}

/// Where the drawings begin and end, as wide as they are.
fn axis(start: DateTime<Utc>, end: DateTime<Utc>, columns: usize) -> String {
    let form = match end - start > TimeDelta::days(1) {
        false => "%H:%M",
        true if columns < COLUMNS => "%m-%d",
        true => "%m-%d %H:%M",
    };
    let middle = start + (end - start) / 2;
    let [first, middle, last] = [start, middle, end].map(|time| time.format(form).to_string());
    let gap = " ".repeat((columns / 2).saturating_sub(first.len() + middle.len() / 2));
    let begin = format!("{first}{gap}{middle}");
    let rest = " ".repeat(columns.saturating_sub(begin.len() + last.len()));
    format!("{begin}{rest}{last}")
}

/// What is shown of one metric.
struct Line<'a> {
    name: String,
    scale: String,
    now: String,
    average: String,
    most: String,
    series: &'a MetricSeries,
    /// Where the scale ends.
    top: f64,
    colour: Color,
}

impl<'a> Line<'a> {
    /// None when nothing was measured.
    fn of(
        result: &MetricResult,
        avg: &'a MetricSeries,
        max: &MetricSeries,
        start: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Option<Self> {
        let last = avg.values.last()?;
        let mean = avg.values.iter().map(|point| point.value).sum::<f64>() / avg.values.len() as f64;
        let most = max.values.iter().map(|point| point.value).fold(f64::MIN, f64::max);
        // What was measured long ago is not so now: the branch may sleep.
        let is_now = now - last.timestamp.0 <= ((now - start) / 24).max(TimeDelta::minutes(3));
        let unit = result.unit.as_str();
        let least_top = if unit == "percentage" { 100.0 } else { 0.0 };
        let top = avg.values.iter().map(|point| point.value).fold(least_top, f64::max);
        Some(Self {
            name: name(result.metric),
            scale: format!("0–{}", amount(top, unit)),
            now: if is_now { amount(last.value, unit) } else { "-".to_owned() },
            average: amount(mean, unit),
            most: amount(most, unit),
            series: avg,
            top,
            colour: colour(unit, most),
        })
    }

    fn cells(
        &self,
        start: DateTime<Utc>,
        now: DateTime<Utc>,
        columns: usize,
        has_average: bool,
    ) -> Vec<Cell> {
        let drawn = draw(self.series, start, now, self.top, columns);
        let mut cells = vec![
            Cell::new(&self.name),
            Cell::new(&self.scale),
            Cell::new(drawn).fg(self.colour),
            Cell::new(&self.now),
            Cell::new(&self.most),
        ];
        if has_average {
            cells.insert(4, Cell::new(&self.average));
        }
        cells
    }
}

/// What is a share of something says by its colour how much is left.
fn colour(unit: &str, most: f64) -> Color {
    match (unit, most) {
        ("percentage", 90.0..) => Color::Red,
        ("percentage", 70.0..) => Color::Yellow,
        _ => Color::Green,
    }
}

/// A bar for each part of the time, as high as its share of `top`; blanks
/// where nothing was measured.
fn draw(series: &MetricSeries, start: DateTime<Utc>, end: DateTime<Utc>, top: f64, columns: usize) -> String {
    let length = (end - start).num_milliseconds().max(1) as f64;
    let mut parts = vec![(0_u32, 0_f64); columns];
    for point in &series.values {
        let place = (point.timestamp.0 - start).num_milliseconds() as f64 / length;
        let column = ((place * columns as f64) as usize).min(columns - 1);
        parts[column].0 += 1;
        parts[column].1 += point.value;
    }
    // Fewer points than columns: each is drawn up to the next one.
    let gap = columns.div_ceil(series.values.len().max(1));
    let measured = |column: usize| {
        let (count, sum) = parts[column];
        (count > 0).then(|| sum / f64::from(count))
    };
    let value = |column: usize| (column.saturating_sub(gap)..=column).rev().find_map(measured);
    let bar = |value: Option<f64>| match value {
        None => ' ',
        Some(value) if top <= 0.0 || value <= 0.0 => BARS[0],
        Some(value) => BARS[((value / top * (BARS.len() - 1) as f64).round() as usize).min(BARS.len() - 1)],
    };
    (0..columns).map(|column| bar(value(column))).collect()
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
        unit => format!("{value:.1} {}", harmless(unit)),
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
        let drawn = draw(&series((0..48).map(|second| (second, second as f64))), at(0), at(48), 47.0, 48);
        assert_eq!(
            (drawn.chars().count(), drawn.chars().next(), drawn.chars().last()),
            (48, Some('▁'), Some('█'))
        );
        let half = draw(&series([(0, 50.0)]), at(0), at(48), 100.0, 20);
        assert_eq!(half.chars().count(), 20);
        assert!(half.starts_with('▅'), "{half}");
    }

    #[test]
    fn a_time_in_which_nothing_was_measured_stays_empty() {
        let values = (0..12).map(|second| (second, 1.0)).chain((36..48).map(|second| (second, 1.0)));
        let drawn = draw(&series(values), at(0), at(48), 1.0, 48);
        assert!(drawn.contains("     "), "{drawn}");
        assert!(drawn.ends_with('█') && drawn.starts_with('█'), "{drawn}");
    }

    #[test]
    fn the_axis_is_as_wide_as_a_drawing() {
        for length in [60, 3600 * 30] {
            for columns in [COLUMNS_MIN, COLUMNS_MIN + 1, COLUMNS, COLUMNS_MAX] {
                let axis = axis(at(0), at(length), columns);
                assert_eq!(axis.len(), columns, "{axis}");
            }
        }
        let hour = axis(at(0), at(3600), COLUMNS);
        assert!(hour.starts_with("00:00") && hour.ends_with("01:00"), "{hour}");
    }

    #[test]
    fn drawings_fit_the_terminal() {
        let values = series((0..60).map(|minute| (minute * 60, 9_999_999.0)));
        let result = |metric, unit: &str| MetricResult { metric, unit: unit.to_owned(), series: vec![] };
        let results = [
            result(MetricName::ConnectionsActive, "connections"),
            result(MetricName::ThroughputWrite, "bytes/s"),
            result(MetricName::Memory, "bytes"),
        ];
        let lines =
            results.iter().map(|one| Line::of(one, &values, &values, at(0), at(3600)).expect("values"));
        let lines: Vec<_> = lines.collect();
        assert_eq!(room(&lines, None), (COLUMNS, true));
        assert_eq!(room(&lines, Some(200)).0, COLUMNS_MAX);
        for width in [80, 100, 120, 200] {
            let (columns, has_average) = room(&lines, Some(width));
            let texts = |line: &Line| [&line.name, &line.scale, &line.now, &line.most].map(String::clone);
            let rows: Vec<_> = lines.iter().map(texts).collect();
            let average = output::column_width(lines.iter().map(|line| line.average.as_str()));
            let all = (0..4).map(|index| output::column_width(rows.iter().map(|row| row[index].as_str())));
            let all = all.sum::<usize>() + columns + 2 + if has_average { average } else { 0 };
            assert!(all <= width, "{all} of {width}");
        }
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
