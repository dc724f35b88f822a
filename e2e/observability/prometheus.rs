//! The rules, the configuration and the dashboard in `deploy/`, with a real
//! Prometheus.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use coppice_test_support::wait_for;
use serde_json::Value;

use super::{families, page, repository};
use crate::http::Http;
use crate::setup::platform;

const PATIENCE: Duration = Duration::from_secs(60);

/// A program of Prometheus, as `make setup` unpacks it.
fn program(name: &str) -> PathBuf {
    let path = repository("target/prometheus/usr/bin").join(name);
    assert!(path.exists(), "{} is missing: run `make setup`", path.display());
    path
}

fn promtool(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(program("promtool"))
        .args(arguments)
        .current_dir(repository("deploy/prometheus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

#[track_caller]
fn assert_content(output: &Output) {
    let said = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", said(&output.stdout), said(&output.stderr));
    assert_eq!(said(&output.stderr), "", "it has something to say");
}

#[test]
fn each_rule_fires_when_it_should_and_only_then() {
    assert_content(&promtool(&["check", "rules", "rules.yml"], ""));
    assert_content(&promtool(&["check", "config", "prometheus.yml"], ""));
    assert_content(&promtool(&["test", "rules", "rules_test.yml"], ""));
    let rules = fs::read_to_string(repository("deploy/prometheus/rules.yml")).expect("rules");
    let tests = fs::read_to_string(repository("deploy/prometheus/rules_test.yml")).expect("tests");
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "no test has {alert} fire");
    }
}

/// A Prometheus in a directory of its own.
struct Prometheus {
    child: Child,
    url: String,
    directory: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// With the configuration of `deploy/`, which it scrapes the platform by.
    fn start(api: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let rules = repository("deploy/prometheus/rules.yml");
        fs::copy(rules, directory.path().join("rules.yml")).expect("rules");
        let config =
            fs::read_to_string(repository("deploy/prometheus/prometheus.yml")).expect("a configuration");
        let target = api.strip_prefix("http://").expect("an address");
        let config = config.replace("127.0.0.1:7070", target).replace("15s", "1s");
        assert!(config.contains(target));
        fs::write(directory.path().join("prometheus.yml"), config).expect("a file");
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port").port();
        let log = fs::File::create(directory.path().join("log")).expect("a file");
        let child = Command::new(program("prometheus"))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it runs");
        Self { child, url: format!("http://127.0.0.1:{port}/api/v1"), directory }
    }

    /// What its API says; none as long as it doesn't.
    fn ask(&self, http: &Http, path: &str, query: &[(&str, &str)]) -> Option<Value> {
        let url = reqwest::Url::parse_with_params(&format!("{}{path}", self.url), query).expect("a URL");
        let answer = http.try_send(reqwest::Client::new().get(url)).filter(|answer| answer.status == 200)?;
        Some(answer.json()["data"].clone())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

/// Names of series in a text of queries.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    words
        .filter(|word| word.starts_with("coppice_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

fn queries(dashboard: &Value, found: &mut Vec<String>) {
    match dashboard {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| queries(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

fn dashboard_queries() -> Vec<String> {
    let text = fs::read_to_string(repository("deploy/grafana/coppice.json")).expect("a dashboard");
    let mut found = vec![];
    queries(&serde_json::from_str(&text).expect("JSON"), &mut found);
    assert!(found.len() > 20, "{found:?}");
    found
}

#[test]
fn every_series_that_rules_and_dashboard_name_is_served() {
    let http = Http::new(platform());
    http.get("/organizations").expect(200);
    let page = page(&http);
    assert_content(&promtool(&["check", "metrics"], &page));
    let families = families(&page);
    let served: BTreeSet<_> = families
        .iter()
        .flat_map(|(name, kind)| match *kind {
            "histogram" => vec![format!("{name}_bucket"), format!("{name}_sum"), format!("{name}_count")],
            _ => vec![(*name).to_owned()],
        })
        .collect();
    let rules = fs::read_to_string(repository("deploy/prometheus/rules.yml")).expect("rules");
    // Texts for people name whole histograms.
    let rules: Vec<_> = rules.lines().filter(|line| !line.trim_start().starts_with("description:")).collect();
    for name in named(&rules.join("\n")).union(&named(&dashboard_queries().join("\n"))) {
        assert!(served.contains(name), "{name} is not served");
    }
}

#[test]
fn a_real_prometheus_scrapes_the_platform_and_loads_the_rules() {
    let http = Http::new(platform());
    let prometheus = Prometheus::start(http.platform.api());
    let up = |_: ()| {
        let targets = prometheus.ask(&http, "/targets", &[])?;
        let target = &targets["activeTargets"][0];
        (target["health"] == "up").then(|| target["lastError"].clone())
    };
    let error = wait_for("the target is up", PATIENCE, || up(()));
    assert_eq!(error, "", "{}", prometheus.log());

    let rules = wait_for("every rule was looked at", PATIENCE, || {
        let data = prometheus.ask(&http, "/rules", &[])?;
        let rules = data["groups"][0]["rules"].as_array()?.clone();
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    });
    assert!(rules.len() >= 15, "{rules:?}");
    for rule in &rules {
        assert_eq!((&rule["health"], &rule["lastError"]), (&"ok".into(), &Value::Null), "{rule}");
    }
    for query in dashboard_queries() {
        // Grafana fills its variables in.
        let query = query.replace("$__rate_interval", "1m").replace("$instance", ".*");
        let answer = prometheus.ask(&http, "/query", &[("query", &query)]);
        assert!(answer.is_some(), "no query: {query}");
    }
    let version = prometheus.ask(&http, "/query", &[("query", "coppice_build_info")]).expect("an answer");
    assert_eq!(version["result"][0]["metric"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(Path::new(&prometheus.directory.path().join("data")).exists());
}
