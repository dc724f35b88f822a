//! What servers write is read where they write it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use coppice_test_support::{Options, Platform, Signal, psql, signal, wait_for};
use serde_json::{Value, json};

use crate::branches::{change, path, status};
use crate::setup::{PROGRAM, every_release, options, platform};

/// How long an entry may take to be seen on a machine that does much else.
const SOON: Duration = Duration::from_secs(60);

/// How long after somebody was told of an error a query may begin and not show it.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

const MAJORS: [&str; 4] = ["15", "16", "17", "18"];

/// A page of everything a branch has logged, with more in the question.
fn page(coppice: &Platform, path: &str, more: &Value) -> Value {
    let mut body = json!({ "start": "2020-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z" });
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let (status, answer) = coppice.call("POST", &format!("{path}/logs"), Some(&body));
    assert_eq!(status, 200, "{answer}");
    answer
}

fn entries(coppice: &Platform, path: &str, filters: &Value) -> Vec<Value> {
    let page = page(coppice, path, &json!({ "filters": filters, "limit": 200 }));
    page["logs"].as_array().expect("entries").clone()
}

/// Waits for an entry with this text.
fn entry_with(coppice: &Platform, path: &str, text: &str) -> Value {
    let filters = json!([{ "value": text, "op": "contains" }]);
    wait_for("the entry is there", SOON, || entries(coppice, path, &filters).first().cloned())
}

/// Runs SQL that is logged; the entry with this text, and how long after the
/// client had its answer the first query began that shows it.
fn logged(coppice: &Platform, path: &str, url: &str, sql: &str, text: &str) -> (Value, Duration) {
    drop(psql(url, sql));
    let answered = Instant::now();
    let filters = json!([{ "value": text, "op": "contains" }]);
    wait_for("the entry is there", SOON, || {
        let began = answered.elapsed();
        Some((entries(coppice, path, &filters).first()?.clone(), began))
    })
}

fn log_directory(coppice: &Platform, branch: &str) -> PathBuf {
    coppice.data_dir().join(format!("instances/{}-1/log", coppice.branch_id(branch)))
}

/// The process that writes what the others of a server log.
fn logger(postmaster: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"));
    let children = children.expect("a server");
    let is_logger = |pid: &&str| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|title| title.contains("logger"))
    };
    let pid = children.split_whitespace().find(is_logger).expect("a logger");
    pid.parse().expect("a pid")
}

#[test]
fn what_is_raised_is_in_the_log_of_every_release_within_a_second() {
    let coppice = every_release();
    let mut delays = vec![];
    for major in MAJORS {
        let name = format!("v{major}");
        coppice.cli(&["branch", "create", &name, "--image", &format!("postgres:{major}")]);
        let (path, url) = (path(&coppice, &name), coppice.connection_string(&name));
        let mut logged = |sql: &str, text: &str| {
            let (entry, delay) = logged(&coppice, &path, &url, sql, text);
            delays.push(delay);
            entry
        };
        let entry = logged(
            "DO $$ BEGIN RAISE EXCEPTION 'wrong \"näher\" % ', 1 USING DETAIL = E'one\ntwo', HINT = 'retry'; END $$",
            "näher",
        );
        assert_eq!(
            (&entry["level"], &entry["process"]),
            (&json!("error"), &json!("client backend")),
            "{major}"
        );
        assert_eq!(entry["instanceID"], format!("{}-1", coppice.branch_id(&name)));
        let message = entry["message"].as_str().expect("a message");
        let expected = "wrong \"näher\" 1 \nDETAIL: one\ntwo\nHINT: retry\nCONTEXT: PL/pgSQL function";
        assert!(message.starts_with(expected), "{message}");
        assert!(message.contains("\nSTATEMENT: DO $$ BEGIN RAISE"), "{message}");

        let entry = logged("DO $$ BEGIN RAISE WARNING 'careful now'; END $$", "careful now");
        assert_eq!(entry["level"], "warning");
        let entry = logged("ALTER ROLE app PASSWORD 's3cret-word' oops", "ALTER ROLE app PASSWORD");
        let message = entry["message"].as_str().expect("a message");
        assert!(message.contains("'********' oops") && !message.contains("s3cret"), "{message}");
        let started = entries(&coppice, &path, &json!([{ "field": "process", "values": ["postmaster"] }]));
        assert!(started.iter().any(|entry| entry["level"] == "info"), "{major}: {started:?}");
        pages_follow_each_other(&coppice, &name);
    }
    // A machine that does much else may hold up one of them; a log that lags holds up all.
    delays.sort_unstable();
    assert!(delays[delays.len() / 2] < SHOWN_AFTER, "{delays:?}");
}

#[test]
fn a_sleeping_branch_tells_its_log_and_sleeps_on() {
    let coppice = platform();
    let path = path(&coppice, "main");
    coppice.psql("main", "SELECT * FROM nowhere");
    entry_with(&coppice, &path, "nowhere");
    // What a logger that is late did not write is not lost.
    let logger = logger(coppice.postmaster(&coppice.branch_id("main")));
    signal(logger, Signal::STOP).expect("a signal");
    change(&coppice, &path, &json!({ "hibernate": true }));
    wait_for("it sleeps", Duration::from_secs(120), || {
        (status(&coppice, &path) == "STATUS_TYPE_HIBERNATED").then_some(())
    });
    entry_with(&coppice, &path, "relation \"nowhere\" does not exist");
    entry_with(&coppice, &path, "database system is shut down");
    assert_eq!(status(&coppice, &path), "STATUS_TYPE_HIBERNATED");

    // A copy begins a log of its own.
    coppice.cli(&["branch", "create", "copy", "--parent", "main"]);
    let copy = crate::branches::path(&coppice, "copy");
    entry_with(&coppice, &copy, "ready to accept connections");
    assert_eq!(entries(&coppice, &copy, &json!([{ "value": "nowhere" }])), [] as [Value; 0]);
}

/// Pages of a log, while lines arrive and the server begins another file.
fn pages_follow_each_other(coppice: &Platform, branch: &str) {
    let path = path(coppice, branch);
    let raise = |count: u32, word: &str| {
        let statement =
            format!("DO $$ BEGIN FOR i IN 1..{count} LOOP RAISE WARNING '{word} %', i; END LOOP; END $$");
        coppice.psql(branch, &statement);
        entry_with(coppice, &path, &format!("{word} {count}"));
    };
    raise(500, "first");
    let question = |cursor: &Value, limit: u32| {
        let level =
            json!([{ "field": "level", "values": ["warning"] }, { "op": "regex", "value": "^(first|then)" }]);
        page(coppice, &path, &json!({ "filters": level, "limit": limit, "cursor": cursor }))
    };
    let (mut seen, mut cursor, mut limit) = (vec![], Value::Null, 7);
    loop {
        let answer = question(&cursor, limit);
        let logs = answer["logs"].as_array().expect("entries").clone();
        seen.extend(logs.iter().map(|entry| entry["message"].as_str().expect("a message").to_owned()));
        cursor = answer["nextCursor"].clone();
        match limit {
            7 => raise(20, "then"),
            // The server is told to begin another file.
            8 => drop(psql(&coppice.superuser_url(branch), "SELECT pg_rotate_logfile()")),
            _ => {}
        }
        // How many entries are asked for is no part of the question.
        limit += 1;
        if cursor.is_null() {
            break;
        }
    }
    let shown = |message: &String| message.split('\n').next().expect("a line").to_owned();
    let seen: Vec<_> = seen.iter().map(shown).collect();
    let expected: Vec<_> = (1..=500).rev().map(|number| format!("first {number}")).collect();
    assert_eq!(seen, expected, "{branch}");
}

#[test]
fn what_a_server_puts_among_its_logs_harms_nobody() {
    let coppice = platform();
    let path = path(&coppice, "main");
    coppice.psql("main", "SELECT * FROM nowhere");
    entry_with(&coppice, &path, "nowhere");
    let logs = log_directory(&coppice, "main");
    let secret = coppice.data_dir().join("secret.txt");
    let line =
        "{\"timestamp\":\"2026-01-02 03:04:05.678 UTC\",\"error_severity\":\"LOG\",\"message\":\"stolen\"}\n";
    fs::write(&secret, line).expect("written");
    symlink(&secret, logs.join("postgresql-20300101-000000.json")).expect("a link");
    symlink(&logs, logs.join("postgresql-20300101-000001.json")).expect("a link");
    let fifo = logs.join("postgresql-20300101-000002.json");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).expect("a pipe");
    fs::create_dir(logs.join("postgresql-20300101-000003.json")).expect("a directory");
    fs::write(logs.join("postgresql-20200101-000004.json"), [0, 159, b'\n', b'{', 255, b'\n'])
        .expect("written");
    // A line that is longer than any, and takes no space.
    let hole = fs::File::create(logs.join("postgresql-20200101-000005.json")).expect("a file");
    hole.set_len(64 << 20).expect("a hole");
    entry_with(&coppice, &path, "nowhere");
    assert_eq!(entries(&coppice, &path, &json!([{ "value": "stolen" }])), [] as [Value; 0]);
    assert!(!entries(&coppice, &path, &json!([])).is_empty());
    assert!(secret.exists());
}

#[test]
fn logs_are_kept_as_long_and_as_many_as_the_operator_says() {
    let flags = ["--logs-retention-days", "2", "--logs-size-mib", "32"].map(str::to_owned).to_vec();
    let mut coppice = Platform::start(PROGRAM, Options { flags, ..options() });
    let path = path(&coppice, "main");
    coppice.psql("main", "SELECT * FROM nowhere");
    entry_with(&coppice, &path, "nowhere");
    let logs = log_directory(&coppice, "main");
    let days_ago = |days: u64| std::time::SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
    let write = |name: &str, mib: usize, days: u64| {
        let path = logs.join(name);
        fs::write(&path, vec![b'x'; mib << 20]).expect("written");
        fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_modified(days_ago(days)))
            .expect("a time");
        path
    };
    let old = write("postgresql-20200101-000000.json", 1, 3);
    let surplus = write("postgresql-20200102-000000.json", 20, 1);
    let kept = write("postgresql-20200103-000000.json", 20, 0);
    coppice.restart();
    wait_for("they are gone", SOON, || (!old.exists() && !surplus.exists()).then_some(()));
    assert!(kept.exists());
    // What the server writes to is among what is kept.
    coppice.psql("main", "SELECT * FROM elsewhere");
    entry_with(&coppice, &path, "elsewhere");
    entry_with(&coppice, &path, "nowhere");
}

#[test]
fn the_command_line_shows_and_follows_a_log() {
    let coppice = platform();
    let path = path(&coppice, "main");
    for name in ["one", "two", "three"] {
        coppice.psql("main", &format!("SELECT * FROM {name}"));
        entry_with(&coppice, &path, &format!("\"{name}\""));
    }
    let run = |arguments: &[&str]| {
        let output = coppice.run(&[&["logs"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let text = run(&["main", "--level", "error", "-n", "2", "--since", "1h"]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].ends_with("ERROR   client backend: relation \"two\" does not exist"), "{text}");
    assert_eq!(lines[3], "    STATEMENT: SELECT * FROM three");
    let found = run(&["--grep", "^relation .(one|three)", "--json"]);
    let found: Vec<Value> = found.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let tables: Vec<_> =
        found.iter().map(|entry| entry["message"].as_str().expect("a message")[9..14].to_owned()).collect();
    assert_eq!(tables, ["\"one\"", "\"thre"]);
    assert_eq!(run(&["--since", "2099-01-01T00:00:00Z"]), "");
    let refused = coppice.run(&["logs", "--grep", "("]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("unclosed group"), "{why}");

    let file = coppice.data_dir().with_extension("followed");
    let mut following = Follower::start(&coppice, &file);
    wait_for("what is there is shown", SOON, || following.shown(&file, "\"three\"").then_some(()));
    coppice.psql("main", "SELECT * FROM four");
    wait_for("what comes is shown", SOON, || following.shown(&file, "\"four\"").then_some(()));
    assert_eq!(following.text(&file).matches("relation \"four\"").count(), 1);
    following.stop();
    let _ = fs::remove_file(&file);
}

/// `coppice logs --follow`, writing to a file; ends with the test.
struct Follower(std::process::Child);

impl Follower {
    fn start(coppice: &Platform, file: &std::path::Path) -> Self {
        let out = fs::File::create(file).expect("a file");
        let child = std::process::Command::new(PROGRAM)
            .args(["logs", "--follow", "--level", "error", "--data-dir"])
            .arg(coppice.data_dir())
            .env("COPPICE_URL", coppice.api())
            .stdout(out)
            .spawn();
        Self(child.expect("the executable runs"))
    }

    fn text(&self, file: &std::path::Path) -> String {
        fs::read_to_string(file).expect("its output")
    }

    fn shown(&mut self, file: &std::path::Path, text: &str) -> bool {
        assert!(self.0.try_wait().expect("a child").is_none(), "it goes on: {}", self.text(file));
        self.text(file).contains(text)
    }

    fn stop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop();
    }
}
