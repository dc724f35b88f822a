//! `GET /metrics`.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use coppice_test_support::{Options, Platform, Signal, psql, signal, wait_for};
use reqwest::RequestBuilder;

use super::{families, page, repository, value};
use crate::http::{Http, Shared};
use crate::setup::{PROGRAM, options, platform};

const PATIENCE: Duration = Duration::from_secs(60);

static SHARED: Shared = Shared::new();

/// The rows of the table in the documentation: names with their kinds.
fn documented(text: &str) -> BTreeMap<&str, &str> {
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.strip_suffix('`')?;
        let is_series = name.starts_with("coppice_") || name.starts_with("process_");
        is_series.then(|| (name, cells.next().unwrap_or_default()))
    });
    rows.collect()
}

#[test]
fn every_series_is_documented_and_every_documented_one_is_served() {
    let http = SHARED.get(platform);
    http.get("/organizations").expect(200);
    wait_for("everything was counted once", PATIENCE, || {
        let is_success = |line: &str| line.starts_with("coppice_task_last_success_timestamp_seconds{");
        page(&http).lines().any(|line| is_success(line) && line.contains("metrics_counting")).then_some(())
    });
    let text = std::fs::read_to_string(repository("docs/operations.md")).expect("the documentation");
    assert_eq!(families(&page(&http)), documented(&text), "left: served, right: docs/operations.md");
}

#[test]
fn what_happens_is_counted() {
    let http = SHARED.get(platform);
    let (before, url) = (page(&http), http.platform.connection_string("main"));
    let moved = |series: &str| {
        let after = page(&http);
        let at = |page: &str| value(page, series).unwrap_or_default();
        at(&after) - at(&before)
    };
    let said = psql(&url, "SELECT repeat('x', 100000)");
    assert!(said.is_ok, "{}", said.err);
    let (start, rest) = url.split_once("://").expect("a URL");
    let (user, rest) = rest.split_once(':').expect("a password");
    let (_, place) = rest.split_once('@').expect("a host");
    let said = psql(&format!("{start}://{user}:wrong@{place}"), "SELECT 1");
    assert!(said.err.contains("password authentication failed"), "{}", said.err);
    http.send(http.anonymous("GET", "/user")).expect_error(401, "missing_token");
    http.get("/organizations").expect(200);

    for (series, least) in [
        ("coppice_gateway_connections_total", 2.0),
        ("coppice_gateway_startup_duration_seconds_count", 1.0),
        ("coppice_gateway_bytes_total{direction=\"to_clients\"}", 100_000.0),
        ("coppice_gateway_refused_total{reason=\"authentication\"}", 1.0),
        ("coppice_http_authentication_failures_total", 1.0),
        (
            "coppice_http_requests_total{operation=\"getOrganizationsList\",method=\"GET\",status=\"2xx\"}",
            1.0,
        ),
        ("coppice_http_request_duration_seconds_count{operation=\"getUser\",status=\"4xx\"}", 1.0),
        ("coppice_metastore_read_duration_seconds_count", 1.0),
    ] {
        wait_for(series, PATIENCE, || (moved(series) >= least).then_some(()));
    }
    let now = page(&http);
    for series in ["coppice_metastore_up", "coppice_instances_running", "coppice_branches{state=\"ready\"}"] {
        assert_eq!(value(&now, series), Some(1.0), "{series}");
    }
}

#[test]
fn a_sleep_and_a_wake_are_counted() {
    let coppice = platform();
    coppice.cli(&["branch", "update", "main", "--scale-to-zero", "on"]);
    let url = coppice.connection_string("main");
    coppice.cli(&["branch", "hibernate", "main", "--yes"]);
    let http = Http::new(coppice);
    let is_asleep = || value(&page(&http), "coppice_branches{state=\"hibernated\"}") == Some(1.0);
    wait_for("the branch sleeps", PATIENCE, || is_asleep().then_some(()));
    assert_eq!(value(&page(&http), "coppice_branch_hibernations_total"), Some(1.0));
    assert_eq!(psql(&url, "SELECT 1").out, "1");
    let after = page(&http);
    assert_eq!(value(&after, "coppice_branch_starts_total{cause=\"wake\"}"), Some(1.0));
    assert_eq!(value(&after, "coppice_gateway_wake_duration_seconds_count"), Some(1.0));
    assert_eq!(value(&after, "coppice_branch_starts_total{cause=\"recovery\"}"), Some(0.0));
}

/// Names and labels of everything on the page.
fn series(page: &str) -> Vec<String> {
    let lines = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
}

#[test]
fn what_strangers_send_makes_no_labels() {
    let http = Http::new(platform());
    let send = |round: usize| {
        let method = format!("M{round}");
        let requests: Vec<_> = (0..50)
            .flat_map(|n| {
                let id = format!("{round}x{n}");
                [
                    http.anonymous("GET", &format!("/{id}")),
                    http.anonymous(&method, &format!("/organizations/{id}")),
                    http.request("GET", &format!("/organizations/{id}/projects/{id}")),
                    http.anonymous("OPTIONS", &format!("/organizations/{id}")),
                ]
            })
            .collect();
        http.send_together(requests);
    };
    send(1);
    let before = series(&page(&http));
    assert!(before.iter().any(|series| series.contains("operation=\"unknown\"")));
    for round in 2..6 {
        send(round);
    }
    let mut more = series(&page(&http));
    more.retain(|series| !before.contains(series));
    // Only what shows up because of the time that has gone by.
    more.retain(|series| series.starts_with("coppice_http"));
    let limited = |series: &String| series.contains("status=\"4xx\"") || series.contains("/metrics");
    assert!(more.iter().all(limited) && more.len() < 60, "{more:?}");
    assert!(!page(&http).contains("1x1"), "an id became a label");
}

fn behind_proxies() -> Platform {
    let flags = ["--listen", "0.0.0.0:0", "--trusted-proxies", "127.0.0.1"].map(str::to_owned).to_vec();
    Platform::start(PROGRAM, Options { flags, ..options() })
}

/// An address of this machine that others can reach; nothing is sent.
fn address_of_this_machine() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect("192.0.2.1:9").expect("a route to other machines");
    socket.local_addr().expect("an address").ip().to_string()
}

#[test]
fn without_a_token_only_programs_on_this_machine_read_it() {
    let http = Http::new(behind_proxies());
    let port = http.platform.api().rsplit_once(':').expect("a port").1.to_owned();
    let at = |host: &str| format!("http://{host}:{port}/metrics");
    let client = reqwest::Client::new();
    let status = |request: RequestBuilder| http.send(request);
    let refused = |request: RequestBuilder| status(request).expect_error(403, "loopback_required");

    assert_eq!(status(client.get(at("127.0.0.1"))).status, 200);
    refused(client.get(at(&address_of_this_machine())));
    for (name, value) in [
        // A trusted proxy on this machine, and one that nobody told about.
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-for", "127.0.0.1"),
        ("forwarded", "for=203.0.113.7"),
        ("x-forwarded-proto", "https"),
        ("x-real-ip", "203.0.113.7"),
        ("via", "1.1 proxy"),
        // A page that somebody looks at here.
        ("origin", "https://example.org"),
    ] {
        let message = refused(client.get(at("127.0.0.1")).header(name, value));
        assert!(message.contains("--metrics-token-file"), "{message}");
    }
}

#[test]
fn with_a_token_whoever_has_it_reads_it_from_anywhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").expect("a file");
    let mut platform = Platform::prepare(PROGRAM, options());
    let file = file.display().to_string();
    platform.add_flags(&["--listen", "0.0.0.0:0", "--metrics-token-file", &file]);
    platform.spawn();
    platform.wait_ready();
    let http = Http::new(platform);
    let port = http.platform.api().rsplit_once(':').expect("a port").1.to_owned();
    let client = reqwest::Client::new();
    for host in ["127.0.0.1", &address_of_this_machine()] {
        let get = || client.get(format!("http://{host}:{port}/metrics"));
        http.send(get()).expect_error(401, "missing_token");
        http.send(get().bearer_auth("0123456789abcdef")).expect_error(401, "invalid_token");
        http.send(get().bearer_auth(http.admin())).expect_error(401, "invalid_token");
        let answer = http.send(get().bearer_auth("0123456789abcdef0123456789abcdef"));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let all =
        (0..300).map(|n| client.get(format!("http://127.0.0.1:{port}/metrics")).bearer_auth(n)).collect();
    let answers = http.send_together(all);
    assert!(answers.iter().any(|answer| answer.status == 429), "who guesses has to wait");
}

#[test]
fn a_token_that_is_none_ends_the_start_and_says_what_to_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, "short-secret\n").expect("a file");
    let output = std::process::Command::new(PROGRAM)
        .args(["serve", "--data-dir", "/nonexistent/coppice", "--metrics-token-file"])
        .arg(&file)
        .output()
        .expect("the executable runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("holds no token for /metrics: write at least 16 letters"), "{said}");
    assert!(!said.contains("short-secret"), "{said}");
}

/// Processes that stand still until it is dropped.
pub(super) struct Stopped(Vec<u32>);

impl Stopped {
    /// A process and its children.
    pub(super) fn with_children(pid: u32) -> Self {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
        let pids = children.split_whitespace().map(|child| child.parse().expect("a pid"));
        let all: Vec<_> = pids.chain([pid]).collect();
        for pid in &all {
            // One that has just ended is fine.
            let _ = signal(*pid, Signal::STOP);
        }
        Self(all)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = signal(*pid, Signal::CONT);
        }
    }
}

#[test]
fn a_metastore_that_hangs_costs_its_numbers_and_not_the_page() {
    let http = Http::new(platform());
    let stopped = Stopped::with_children(http.platform.metastore_postmaster());
    let began = Instant::now();
    let hanging = page(&http);
    assert!(began.elapsed() < Duration::from_secs(9), "Prometheus waits ten seconds");
    assert_eq!(value(&hanging, "coppice_metastore_up"), Some(0.0));
    assert!(!hanging.contains("coppice_branches{"), "better no number than a wrong one");
    assert!(value(&hanging, "coppice_volumes_free_bytes") > Some(0.0));
    drop(stopped);
    wait_for("the metastore is back", PATIENCE, || {
        (value(&page(&http), "coppice_metastore_up") == Some(1.0)).then_some(())
    });
}
