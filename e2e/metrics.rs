//! What branches did: a cause is made, and its effect is seen in the API.

mod causes;
mod trouble;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use coppice_test_support::{Options, Platform, psql, wait_for};
use serde_json::{Value, json};

use crate::branches::path;
use crate::setup::{PROGRAM, options, postgres_dir};

const PATIENCE: Duration = Duration::from_secs(120);

fn every_second(options: Options) -> Platform {
    let flags = ["--metrics-interval", "1"].map(str::to_owned).to_vec();
    Platform::start(PROGRAM, Options { flags, ..options })
}

/// A platform that measures every second.
fn measuring() -> Platform {
    every_second(options())
}

/// The same with every release of PostgreSQL.
fn measuring_every_release() -> Platform {
    let environment = vec![("COPPICE_POSTGRES_DIRS".to_owned(), postgres_dir().display().to_string())];
    every_second(Options { environment, ..Options::default() })
}

fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The history of a branch from one time on.
struct History<'a> {
    coppice: &'a Platform,
    path: String,
    since: DateTime<Utc>,
}

impl<'a> History<'a> {
    /// From now on.
    fn of(coppice: &'a Platform, branch: &str) -> Self {
        Self { coppice, path: format!("{}/metrics", path(coppice, branch)), since: Utc::now() }
    }

    fn ask(&self, body: &Value) -> Value {
        let (status, answer) = self.coppice.call("POST", &self.path, Some(body));
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The values of a metric, oldest first.
    fn values(&self, metric: &str, aggregation: &str) -> Vec<f64> {
        let body = json!({
            "start": time(self.since), "end": time(Utc::now()),
            "metrics": [metric], "aggregations": [aggregation],
        });
        let answer = self.ask(&body);
        let values = answer["results"][0]["series"][0]["values"].as_array().expect("values").clone();
        values.iter().map(|value| value["value"].as_f64().expect("a number")).collect()
    }

    /// The largest value of a metric.
    fn max(&self, metric: &str) -> Option<f64> {
        self.values(metric, "max").into_iter().reduce(f64::max)
    }

    /// The smallest value of a metric.
    fn min(&self, metric: &str) -> Option<f64> {
        self.values(metric, "min").into_iter().reduce(f64::min)
    }

    /// Waits until the largest value is as wanted.
    #[track_caller]
    fn wait_max(&self, metric: &str, is_wanted: impl Fn(f64) -> bool) -> f64 {
        wait_for(metric, PATIENCE, || self.max(metric).filter(|value| is_wanted(*value)))
    }

    /// Waits until something was measured after this call.
    fn wait_measured(&self) {
        let from_now = History { since: Utc::now(), path: self.path.clone(), ..*self };
        wait_for("a measurement", PATIENCE, || from_now.max("connections_active"));
    }
}

/// A psql that runs something; gone with the value.
struct Client(Child);

impl Client {
    fn start(url: &str, sql: &str) -> Self {
        let mut command = Command::new("psql");
        command.args([url, "-XAtq"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        if !sql.is_empty() {
            command.args(["-c", sql]);
        }
        Self(command.spawn().expect("psql runs"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes that clients moved, as the platform wrote it down: from and to them.
fn bytes_moved(coppice: &Platform, branch: &str, since: DateTime<Utc>) -> (f64, f64) {
    let sql = format!(
        "SELECT coalesce(sum(ingress * seconds), 0), coalesce(sum(egress * seconds), 0)
         FROM (SELECT readings[6] AS ingress, readings[7] AS egress, at,
                      extract(epoch FROM at - lag(at) OVER (ORDER BY at)) AS seconds
               FROM metric_samples JOIN metric_series ON id = series_id
               WHERE branch_id = '{}') samples WHERE at >= '{}'",
        coppice.branch_id(branch),
        time(since)
    );
    let said = psql(&coppice.metastore_url(), &sql);
    assert!(said.is_ok, "{}", said.err);
    let (from, to) = said.out.split_once('|').expect("two numbers");
    (from.parse().expect("a number"), to.parse().expect("a number"))
}
