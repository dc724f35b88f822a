//! Kills at every step, and what is there afterwards.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Leftovers, Options, Platform, Signal, signal, wait_for};

use crate::orphans::wait_until_explained;
use crate::setup::{PROGRAM, arm, environment_with, options, platform, postgres_dir, some_of};

const PATIENCE: Duration = Duration::from_secs(60);

fn answers(coppice: &Platform, branch: &str, sql: &str) -> String {
    let ask = || Some(coppice.psql(branch, sql)).filter(|said| said.is_ok);
    wait_for("the branch answers", PATIENCE, ask).out
}

#[test]
fn servers_outlive_a_killed_control_plane() {
    let mut coppice = platform();
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (7)");
    let id = coppice.branch_id("main");
    let before = coppice.server_record(&id);
    let mut busy = Command::new("psql")
        .args([
            &coppice.connection_string("main"),
            "-XAtc",
            "SELECT count(*) FROM generate_series(1, 1000000000)",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("psql runs");
    coppice.kill();
    coppice.spawn();
    coppice.wait_ready();
    assert_eq!(coppice.server_record(&id), before, "the same process");
    assert_eq!(answers(&coppice, "main", "SELECT i FROM t"), "7");
    let _ = busy.kill();
    let _ = busy.wait();
}

#[test]
fn a_killed_postmaster_comes_back_although_a_backend_is_busy() {
    let coppice = platform();
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (7)");
    let id = coppice.branch_id("main");
    let url = coppice.connection_string("main");
    let mut busy = Command::new("psql")
        .args([&url, "-XAtc", "SELECT count(*) FROM generate_series(1, 1000000000)"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("psql runs");
    wait_for("the backend is busy", PATIENCE, || {
        let active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%1000000000%' AND pid <> pg_backend_pid()";
        (coppice.sql("main", active) == "1").then_some(())
    });
    let first = coppice.postmaster(&id);
    end_server(&coppice, &id);
    assert_eq!(answers(&coppice, "main", "SELECT i FROM t"), "7");
    assert_ne!(coppice.postmaster(&id), first);
    let _ = busy.wait();
    one_that_ends_again_and_again_rests_and_says_so(&coppice, &id);
}

fn end_server(coppice: &Platform, id: &str) {
    let pid = coppice.postmaster(id);
    signal(pid, Signal::KILL).expect("a signal");
}

fn one_that_ends_again_and_again_rests_and_says_so(coppice: &Platform, id: &str) {
    let rests = || coppice.cli(&["branch", "show", "main"]).to_string().contains("ended again and again");
    let has_rested = (0..12).any(|_| {
        let (before, mut has_rested) = (coppice.server_record(id), false);
        end_server(coppice, id);
        wait_for("it is started again", PATIENCE, || {
            has_rested |= rests();
            (coppice.server_record(id) != before).then_some(())
        });
        answers(coppice, "main", "SELECT 1");
        has_rested
    });
    assert!(has_rested, "it is started at once however often it ends");
    assert!(!rests(), "and is well again");
}

#[test]
fn a_lock_file_with_the_pid_of_another_branch_does_not_block_a_start() {
    let mut coppice = platform();
    coppice.cli(&["branch", "create", "other", "--parent", "main"]);
    let (main, other) = (coppice.branch_id("main"), coppice.branch_id("other"));
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (7)");
    let lock_file = crate::branches::data_of(&coppice, "main").join("postmaster.pid");
    coppice.kill();
    let pid = coppice.postmaster(&main);
    let stranger = coppice.postmaster(&other);
    signal(pid, Signal::KILL).expect("a signal");
    let text = std::fs::read_to_string(&lock_file).expect("a lock file");
    let (_, rest) = text.split_once('\n').expect("several lines");
    std::fs::write(&lock_file, format!("{stranger}\n{rest}")).expect("writable");
    coppice.spawn();
    coppice.wait_ready();
    assert_eq!(answers(&coppice, "main", "SELECT i FROM t"), "7");
    assert_eq!(coppice.postmaster(&other), stranger, "the other branch was left alone");
}

#[test]
fn everything_comes_back_after_a_reboot() {
    let mut coppice = platform();
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    coppice.sql("kid", "CREATE TABLE t (i int); INSERT INTO t VALUES (7)");
    coppice.cut_power();
    coppice.spawn();
    coppice.wait_ready();
    assert_eq!(answers(&coppice, "kid", "SELECT i FROM t"), "7");
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

/// The life that is interrupted everywhere: a branch, a child, their end.
fn live(coppice: &Platform) {
    let _ = coppice.run(&["branch", "create", "kid", "--parent", "main"]);
    let _ = coppice.run(&["branch", "delete", "kid", "--purge", "--yes"]);
}

/// Waits until the platform has done everything it owes.
fn converge(coppice: &Platform) {
    wait_for("every branch is as it should be", PATIENCE, || {
        let list = coppice.cli(&["branch", "list"]);
        let mut names =
            list["branches"].as_array()?.iter().map(|branch| branch["name"].as_str().unwrap_or_default());
        names.all(|name| coppice.psql(name, "SELECT 1").out == "1").then_some(())
    });
}

#[test]
fn an_abort_at_any_step_is_finished_or_cleaned_away_at_the_next_start() {
    let postgres = postgres_dir().join("17.10").display().to_string();
    let mut coppice = Platform::prepare(PROGRAM, options());
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let trace_path = trace.path().display().to_string();
    coppice.set_environment(&environment_with(&postgres, &[("COPPICE_FAILPOINT_TRACE", &trace_path)]));
    coppice.spawn();
    coppice.wait_ready();
    live(&coppice);
    wait_until_explained(&coppice);
    let reached = std::fs::read_to_string(trace.path()).expect("a trace");
    let steps: BTreeSet<&str> = reached.lines().collect();
    assert!(steps.len() > 15, "{steps:?}");

    for step in some_of(steps) {
        coppice.kill();
        arm(&mut coppice, step);
        coppice.spawn();
        // Some steps happen at the start, some in the life of a branch, some
        // only at the very first start.
        let is_up = wait_for("it is up or has ended", PATIENCE, || {
            if coppice.has_ended() {
                return Some(false);
            }
            coppice.log().contains("coppice is ready").then_some(true)
        });
        if is_up {
            coppice.wait_ready();
            live(&coppice);
        }
        arm(&mut coppice, "");
        coppice.restart();
        converge(&coppice);
        let _ = coppice.run(&["branch", "delete", "kid", "--purge", "--yes"]);
        wait_until_explained(&coppice);
    }
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

#[test]
fn an_abort_at_any_step_of_the_first_start_is_made_up_for() {
    let steps = [
        "image.copied",
        "image.marked",
        "template.initialised",
        "template.filled",
        "metastore.made",
        "metastore.in_place",
        "template.named",
        "server.spawned",
        "server.recorded",
        "engine.volume_copied",
        "first_start.detached",
        "first_start.marked",
        "gateway.certificate_key_written",
    ];
    let mut coppice = Platform::prepare(PROGRAM, Options { begins_with_nothing: true, ..options() });
    for step in steps {
        arm(&mut coppice, step);
        coppice.spawn();
        wait_for("it is up or has ended", PATIENCE, || {
            (coppice.has_ended() || coppice.log().contains("coppice is ready")).then_some(())
        });
        coppice.kill();
    }
    arm(&mut coppice, "");
    coppice.spawn();
    coppice.wait_ready();
    converge(&coppice);
    wait_until_explained(&coppice);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}
