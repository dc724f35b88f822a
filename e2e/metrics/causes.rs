//! Causes and effects.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};

use chrono::Utc;
use coppice_test_support::{Platform, wait_for};
use serde_json::{Value, json};

use super::{Client, History, PATIENCE, bytes_moved, measuring, measuring_every_release, time};
use crate::branches::{change, path, status};
use crate::setup::PROGRAM;

const MAJORS: [&str; 4] = ["15", "16", "17", "18"];
const METRICS: [&str; 15] = [
    "cpu",
    "memory",
    "disk",
    "connections_active",
    "connections_idle",
    "network_ingress",
    "network_egress",
    "iops_read",
    "iops_write",
    "latency_read",
    "latency_write",
    "throughput_read",
    "throughput_write",
    "wal_sync_time",
    "replication_lag_time",
];
const BURN: &str = "DO $$ BEGIN LOOP END LOOP; END $$";
const MIB: f64 = 1024.0 * 1024.0;
/// What a server that nobody uses takes of its CPU at most, in percent: it is
/// looked after and measured each second.
const IDLE_CPU_MAX: f64 = 2.0;
/// What one that computes takes at least, also of a machine that does much else.
const BUSY_CPU_MIN: f64 = 10.0;

/// What a branch writes is in each metric that it should be in.
fn shows_what_it_writes(coppice: &Platform, branch: &str) {
    let history = History::of(coppice, branch);
    let before = history.wait_max("disk", |bytes| bytes > 0.0);
    coppice.sql(branch, "CREATE TABLE t AS SELECT i, repeat('x', 1000) FROM generate_series(1, 40000) i");
    let grown = history.wait_max("disk", |bytes| bytes > before + 40.0 * MIB);
    assert!(grown < before + 400.0 * MIB, "{branch}: {before} became {grown}");
    let written = history.wait_max("throughput_write", |rate| rate > 5.0 * MIB);
    assert!(written < 4000.0 * MIB, "{branch}: {written} bytes/s");
    history.wait_max("iops_write", |rate| rate > 100.0);
    for latency in ["latency_write", "wal_sync_time"] {
        let took = history.wait_max(latency, |took| took > 0.0);
        assert!(took < 60_000.0, "{branch}: {latency} {took}");
    }
    // What a server has in memory is gone when it sleeps.
    let path = path(coppice, branch);
    for (hibernate, wanted) in [(true, "STATUS_TYPE_HIBERNATED"), (false, "STATUS_TYPE_HEALTHY")] {
        change(coppice, &path, &json!({ "hibernate": hibernate }));
        wait_for(wanted, PATIENCE, || (status(coppice, &path) == wanted).then_some(()));
    }
    let history = History::of(coppice, branch);
    history.wait_measured();
    history.wait_measured();
    coppice.sql(branch, "SELECT count(*) FROM t");
    history.wait_max("iops_read", |rate| rate > 10.0);
    history.wait_max("throughput_read", |rate| rate > 8192.0);
    history.wait_max("latency_read", |took| took > 0.0);
}

/// Sessions count by what they do.
fn shows_its_sessions(coppice: &Platform, branch: &str) {
    let history = History::of(coppice, branch);
    let url = coppice.connection_string(branch);
    let working: Vec<_> = (0..2).map(|_| Client::start(&url, "SELECT pg_sleep(600)")).collect();
    let idle: Vec<_> = (0..3).map(|_| Client::start(&url, "")).collect();
    history.wait_max("connections_active", |count| count == 2.0);
    history.wait_max("connections_idle", |count| count == 3.0);
    // PostgreSQL does not look after its client while it executes something.
    coppice.sql(
        branch,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'",
    );
    drop((working, idle));
    let afterwards = History::of(coppice, branch);
    for metric in ["connections_active", "connections_idle"] {
        wait_for("they are gone", PATIENCE, || afterwards.min(metric).filter(|count| *count == 0.0));
    }
}

/// Who computes takes what the machine has left for it, at most all of its share.
fn shows_that_it_computes(coppice: &Platform, branch: &str) {
    let history = History::of(coppice, branch);
    let url = coppice.connection_string(branch);
    let _burner = Client::start(&url, BURN);
    let used = history.wait_max("cpu", |percent| percent > BUSY_CPU_MIN);
    assert!(used <= 100.0, "{branch}: {used}");
    coppice.sql(
        branch,
        &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = '{BURN}'"),
    );
}

fn is_close(moved: f64, known: usize) -> bool {
    (0.95..1.05).contains(&(moved / known as f64))
}

/// No minute of a branch was taken up by computing.
fn is_idle(history: &History<'_>) {
    let of_minutes = history.values("cpu", "avg");
    let is_little = |percent: &f64| *percent < IDLE_CPU_MAX;
    assert!(!of_minutes.is_empty() && of_minutes.iter().all(is_little), "{of_minutes:?}");
}

/// Counts what clients send with their statements, and get as their results.
fn shows_bytes_of_clients(coppice: &Platform, branch: &str, statements: usize) {
    let history = History::of(coppice, branch);
    history.wait_measured();
    let since = Utc::now();
    let (url, sent, received) = (coppice.connection_string(branch), statements * 100_000, 20_000_000);
    let run = |sql: &str| {
        let said = coppice_test_support::psql(&url, sql);
        assert!(said.is_ok, "{branch}: {}", said.err);
        said.out
    };
    run("CREATE TABLE sent (x text)");
    for _ in 0..statements {
        run(&format!("INSERT INTO sent VALUES ('{}')", "x".repeat(100_000)));
    }
    let copy = format!("SELECT repeat('y', 1000) FROM generate_series(1, {})", received / 1000);
    assert_eq!(run(&copy).len(), received + received / 1000 - 1);
    let mut last = (0.0, 0.0);
    wait_for("the bytes", PATIENCE, || {
        last = bytes_moved(coppice, branch, since);
        (last.0 > 0.9 * sent as f64 && last.1 > 0.9 * received as f64).then_some(())
    });
    history.wait_measured();
    last = bytes_moved(coppice, branch, since);
    // Each row of a result has eleven bytes around it.
    assert!(is_close(last.0, sent) && is_close(last.1, received), "{branch}: {last:?}");
    assert!(history.max("network_egress").is_some_and(|rate| rate > received as f64 / 60.0));
}

#[test]
fn every_release_shows_what_its_branch_does() {
    let coppice = measuring_every_release();
    let quiet = History::of(&coppice, "main");
    for major in MAJORS {
        let name = format!("v{major}");
        coppice.cli(&["branch", "create", &name, "--image", &format!("postgres:{major}")]);
        let history = History::of(&coppice, &name);
        shows_what_it_writes(&coppice, &name);
        shows_its_sessions(&coppice, &name);
        shows_that_it_computes(&coppice, &name);
        shows_bytes_of_clients(&coppice, &name, 10);
        assert!(history.max("memory").is_some_and(|bytes| (4.0 * MIB..2048.0 * MIB).contains(&bytes)));
        for metric in METRICS {
            let values = history.values(metric, "min");
            assert!(values.iter().all(|value| *value >= 0.0), "{major}: {metric} {values:?}");
            // There are no replicas.
            assert_eq!(values.is_empty(), metric == "replication_lag_time", "{major}: {metric}");
        }
        coppice.cli(&["branch", "delete", &name, "--yes"]);
    }
    // All that was elsewhere.
    let written = quiet.values("throughput_write", "avg");
    assert!(!written.is_empty() && written.iter().all(|rate| *rate < 5.0 * MIB), "{written:?}");
    assert_eq!(quiet.max("connections_active"), Some(0.0));
    assert_eq!((quiet.max("network_ingress"), quiet.max("network_egress")), (Some(0.0), Some(0.0)));
    is_idle(&quiet);
}

#[test]
fn a_branch_that_computes_shows_in_its_own_cpu_and_in_no_other() {
    let coppice = measuring();
    coppice.cli(&["branch", "create", "other", "--parent", "main"]);
    History::of(&coppice, "other").wait_measured();
    let (busy, quiet) = (History::of(&coppice, "main"), History::of(&coppice, "other"));
    let _burner = Client::start(&coppice.connection_string("main"), BURN);
    // What the machine has left for it, at most all of its share.
    let used = busy.wait_max("cpu", |percent| percent > BUSY_CPU_MIN);
    assert!(used <= 100.0, "{used}");
    for _ in 0..3 {
        quiet.wait_measured();
    }
    is_idle(&quiet);
}

#[test]
fn bytes_of_clients_are_counted_for_their_branch() {
    let mut coppice = measuring();
    shows_bytes_of_clients(&coppice, "main", 30);

    // A process that only serves its last sessions tells what they move.
    let history = History::of(&coppice, "main");
    let mut session = Client::start(&coppice.connection_string("main"), "");
    history.wait_max("connections_idle", |count| count > 0.0);
    coppice.take_over();
    // Not before the new process has asked the old one, which it does every second.
    let asked = Utc::now();
    for _ in 0..3 {
        History::of(&coppice, "main").wait_measured();
    }
    let input = session.0.stdin.as_mut().expect("its input");
    for _ in 0..10 {
        std::io::Write::write_all(input, b"SELECT repeat('z', 1000000);\n").expect("it listens");
    }
    std::io::Write::flush(input).expect("it listens");
    wait_for("bytes of an earlier process", PATIENCE, || {
        let (_, moved) = bytes_moved(&coppice, "main", asked);
        is_close(moved, 10_000_000).then_some(())
    });
}

#[test]
fn a_sleeping_branch_tells_what_it_did_and_goes_on_sleeping() {
    let coppice = measuring();
    let main = path(&coppice, "main");
    let history = History::of(&coppice, "main");
    history.wait_measured();
    change(&coppice, &main, &json!({ "hibernate": true }));
    let wait_status = |wanted: &str| {
        wait_for(wanted, PATIENCE, || (status(&coppice, &main) == wanted).then_some(()));
    };
    wait_status("STATUS_TYPE_HIBERNATED");
    coppice.cli(&["branch", "create", "witness"]);
    let asleep = Utc::now();
    History::of(&coppice, "witness").wait_measured();
    History::of(&coppice, "witness").wait_measured();
    assert!(history.max("memory").is_some(), "what was measured is still told");
    let sleeping = History { since: asleep, ..history };
    assert_eq!(sleeping.max("memory"), None, "nothing is measured while it sleeps");
    assert_eq!(status(&coppice, &main), "STATUS_TYPE_HIBERNATED");
    let shown = coppice.run(&["metrics", "main", "--since", "5m"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("memory") && shown.contains("MiB"), "{shown}");
    assert_eq!(status(&coppice, &main), "STATUS_TYPE_HIBERNATED");
}

/// `coppice metrics --watch`, writing to a file; ends with the test.
struct Watching(Child);

impl Watching {
    fn start(coppice: &Platform, file: &Path) -> Self {
        let child = Command::new(PROGRAM)
            .args(["metrics", "--watch", "--json", "--metric", "memory", "--data-dir"])
            .arg(coppice.data_dir())
            .env("COPPICE_URL", coppice.api())
            .stdout(File::create(file).expect("a file"))
            .spawn();
        Self(child.expect("the executable runs"))
    }

    /// What was told so far, an object for each look.
    fn told(&mut self, file: &Path) -> Vec<Value> {
        assert!(self.0.try_wait().expect("a child").is_none(), "it goes on");
        let text = fs::read_to_string(file).expect("its output");
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// When a look saw the newest value.
fn newest(look: &Value) -> &str {
    let values = look["results"][0]["series"][0]["values"].as_array();
    values.and_then(|values| values.last()?["timestamp"].as_str()).unwrap_or_default()
}

#[test]
#[ignore = "takes long, see `make long`"]
fn the_command_line_looks_again_and_again() {
    let coppice = measuring();
    History::of(&coppice, "main").wait_max("memory", |_| true);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("watched");
    let mut watching = Watching::start(&coppice, &file);
    let first = wait_for("a first look", PATIENCE, || watching.told(&file).into_iter().next());
    assert_eq!(first["results"][0]["metric"], "memory");
    wait_for("a later look sees what was measured since", PATIENCE, || {
        watching.told(&file).iter().any(|look| newest(look) > newest(&first)).then_some(())
    });
}

#[test]
fn the_command_line_draws_and_tells_programs() {
    let coppice = measuring();
    // Rates need two looks.
    History::of(&coppice, "main").wait_max("cpu", |_| true);
    let output = coppice.run(&["metrics"]);
    let drawn = String::from_utf8_lossy(&output.stdout);
    for word in ["cpu", "memory", "disk", "NOW", "MAX", "%", "MiB"] {
        assert!(drawn.contains(word), "{word}: {drawn}");
    }
    let told = coppice.cli(&["metrics", "main", "--metric", "disk,cpu", "--since", "2m"]);
    let names: Vec<_> =
        told["results"].as_array().expect("results").iter().map(|one| &one["metric"]).collect();
    assert_eq!(names, ["disk", "cpu"]);
    let series: BTreeMap<&str, &Value> = told["results"][0]["series"]
        .as_array()
        .expect("series")
        .iter()
        .map(|series| (series["aggregation"].as_str().expect("a name"), series))
        .collect();
    assert_eq!(series.keys().copied().collect::<Vec<_>>(), ["avg", "max"]);
    for wrong in
        [&["metrics", "--since", "soon"][..], &["metrics", "--metric", "load"], &["metrics", "nowhere"]]
    {
        assert!(!coppice.run(wrong).status.success(), "{wrong:?}");
    }
    // What is asked for comes back as it was written.
    let history = History::of(&coppice, "main");
    let (start, end) = (time(history.since), time(Utc::now()));
    let answer = history.ask(&json!({ "start": start, "end": end, "metrics": ["cpu"] }));
    assert_eq!((&answer["start"], &answer["end"]), (&json!(start), &json!(end)));
}
