//! Owners that don't want to be measured, and servers that can't.

use std::time::Duration;

use chrono::Utc;
use coppice_test_support::{Platform, Signal, psql, signal, wait_for};
use serde_json::json;

use super::{Client, History, PATIENCE, measuring};
use crate::branches::{change, path, status};

const MIB: f64 = 1024.0 * 1024.0;

/// Makes the platform open its session anew.
fn end_platform_session(coppice: &Platform, branch: &str) {
    let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE usename = 'platform' AND pid <> pg_backend_pid()";
    let said = psql(&in_postgres(coppice, branch), sql);
    assert!(said.is_ok, "{}", said.err);
}

/// The superuser in a database that no owner can change.
fn in_postgres(coppice: &Platform, branch: &str) -> String {
    coppice.superuser_url(branch).replace("dbname=app", "dbname=postgres")
}

#[test]
fn settings_of_an_owner_change_nothing_of_what_is_measured() {
    let coppice = measuring();
    coppice.cli(&["branch", "create", "hostile"]);
    let hostile = [
        "ALTER DATABASE app SET search_path = evil, public",
        "ALTER DATABASE app SET statement_timeout = 1",
        "ALTER DATABASE app SET default_transaction_read_only = on",
        "ALTER DATABASE app SET enable_seqscan = off",
        "ALTER ROLE app SET statement_timeout = 1",
        "ALTER ROLE app SET search_path = evil",
    ];
    coppice.sql("hostile", "CREATE SCHEMA evil; CREATE VIEW evil.pg_stat_wal AS SELECT 1 AS nothing");
    // At once: those that were made already bite the next session.
    coppice.sql("hostile", &hostile.join(";"));
    let options = "?options=-cstatement_timeout%3D0%20-cdefault_transaction_read_only%3Doff";
    let url = coppice.connection_string("hostile") + options;
    let settings = psql(
        &in_postgres(&coppice, "hostile"),
        "SELECT count(*) FROM pg_db_role_setting WHERE (setdatabase, setrole) <> (0, 0)",
    );
    assert_eq!(settings.out, "2", "they were made: {}", settings.err);
    // Neither of these is an owner's to turn off.
    for refused in
        ["ALTER ROLE app SET track_activities = off", "ALTER DATABASE postgres SET statement_timeout = 1"]
    {
        let said = psql(&url, refused);
        assert!(said.err.contains("permission denied") || said.err.contains("must be owner"), "{}", said.err);
    }
    end_platform_session(&coppice, "hostile");
    let history = History::of(&coppice, "hostile");
    let _working = Client::start(&url, "SELECT pg_sleep(600)");
    history.wait_max("connections_active", |count| count == 1.0);
}

#[test]
fn a_branch_whose_connections_are_all_taken_is_measured() {
    let coppice = measuring();
    let main = path(&coppice, "main");
    let (branches, _) = main.rsplit_once('/').expect("a path");
    let configuration = json!({
        "region": "local",
        "instanceType": "micro",
        "image": "postgres:17",
        "postgresConfigurationParameters": { "max_connections": "8" },
    });
    let body = json!({ "name": "full", "mode": "custom", "configuration": configuration });
    let (made, answer) = coppice.call("POST", branches, Some(&body));
    assert_eq!(made, 201, "{answer}");
    let url = coppice.connection_string("full");
    let mut clients = vec![];
    wait_for("all connections are taken", PATIENCE, || {
        clients.push(Client::start(&url, "SELECT pg_sleep(600)"));
        assert!(clients.len() < 50, "there is no end to them");
        let said = psql(&url, "SELECT 1");
        said.err.contains("reserved").then_some(())
    });
    end_platform_session(&coppice, "full");
    // What that freed is taken by whoever comes first.
    for _ in 0..4 {
        clients.push(Client::start(&url, "SELECT pg_sleep(600)"));
    }
    let history = History::of(&coppice, "full");
    history.wait_max("connections_active", |count| count >= 3.0);
}

fn processes(coppice: &Platform, branch: &str) -> Vec<u32> {
    let postmaster = coppice.postmaster(&coppice.branch_id(branch));
    let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"));
    let children = children.expect("its children");
    let children = children.split_whitespace().map(|pid| pid.parse().expect("a pid"));
    std::iter::once(postmaster).chain(children).collect()
}

/// Lets them go on when it is dropped.
struct Stopped(Vec<u32>);

impl Drop for Stopped {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = signal(*pid, Signal::CONT);
        }
    }
}

#[test]
fn a_branch_that_does_not_answer_delays_no_other() {
    let coppice = measuring();
    coppice.cli(&["branch", "create", "stuck"]);
    let (main, stuck) = (History::of(&coppice, "main"), History::of(&coppice, "stuck"));
    stuck.wait_measured();
    let stopped = Stopped(processes(&coppice, "stuck"));
    for pid in &stopped.0 {
        signal(*pid, Signal::STOP).expect("a signal");
    }
    // What was asked just before may still be answered.
    wait_for("it is silent", PATIENCE, || {
        let from_now = History::of(&coppice, "stuck");
        main.wait_measured();
        from_now.max("connections_active").is_none().then_some(())
    });
    let silent = History::of(&coppice, "stuck");
    for _ in 0..5 {
        main.wait_measured();
    }
    assert_eq!(silent.max("connections_active"), None);
    drop(stopped);
    stuck.wait_measured();
    assert!(stuck.max("cpu").is_some_and(|percent| percent <= 100.0));
}

#[test]
fn a_server_that_starts_again_makes_no_spike() {
    let mut coppice = measuring();
    let main = path(&coppice, "main");
    let wait_healthy = |coppice: &Platform| {
        let is_healthy = || (status(coppice, &main) == "STATUS_TYPE_HEALTHY").then_some(());
        wait_for("it is healthy", PATIENCE, is_healthy);
    };
    coppice.sql("main", "CREATE TABLE t AS SELECT i, repeat('x', 1000) FROM generate_series(1, 100000) i");
    // A crash replays what was not checkpointed, which is work of its own.
    let said = psql(&coppice.superuser_url("main"), "CHECKPOINT");
    assert!(said.is_ok, "{}", said.err);
    History::of(&coppice, "main").wait_measured();
    History::of(&coppice, "main").wait_measured();
    let since = Utc::now();
    let counted = "SELECT sum(writes * op_bytes) + sum(extends * op_bytes) > 100000000 FROM pg_stat_io";
    assert_eq!(psql(&coppice.superuser_url("main"), counted).out, "t", "counters are large");

    // A clean stop keeps what was counted.
    change(&coppice, &main, &json!({ "hibernate": true }));
    wait_for("it sleeps", PATIENCE, || (status(&coppice, &main) == "STATUS_TYPE_HIBERNATED").then_some(()));
    change(&coppice, &main, &json!({ "hibernate": false }));
    wait_healthy(&coppice);
    History::of(&coppice, "main").wait_measured();
    History::of(&coppice, "main").wait_measured();
    // A crash of one process makes the others forget it.
    let victim = Client::start(&coppice.connection_string("main"), "SELECT pg_sleep(600)");
    let find = "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'";
    let backend = wait_for("a session", Duration::from_secs(60), || {
        let pid = psql(&coppice.superuser_url("main"), find).out.parse().ok()?;
        coppice.process(&coppice.branch_id("main"), pid)
    });
    signal(backend, Signal::KILL).expect("a signal");
    drop(victim);
    wait_for("it is back", PATIENCE, || coppice.psql("main", "SELECT 1").is_ok.then_some(()));
    History::of(&coppice, "main").wait_measured();
    // So does a crash of all of them.
    let postmaster = coppice.postmaster(&coppice.branch_id("main"));
    signal(postmaster, Signal::KILL).expect("a signal");
    wait_for("it is back", PATIENCE, || coppice.psql("main", "SELECT 1").is_ok.then_some(()));
    wait_healthy(&coppice);
    History::of(&coppice, "main").wait_measured();
    History::of(&coppice, "main").wait_measured();
    // The platform itself knows nothing of before.
    coppice.restart();
    wait_healthy(&coppice);
    let history = History { since, ..History::of(&coppice, "main") };
    history.wait_measured();
    history.wait_measured();

    for metric in ["cpu", "throughput_write", "iops_write", "throughput_read", "network_egress"] {
        assert!(history.min(metric).is_some_and(|value| value >= 0.0), "{metric}");
    }
    assert!(history.max("cpu").is_some_and(|percent| percent <= 100.0));
    let written = history.max("throughput_write").expect("a measurement");
    assert!(written < 50.0 * MIB, "{written} bytes/s while nothing was written");
    let moved = history.max("network_egress").expect("a measurement");
    assert!(moved < MIB, "{moved} bytes/s while next to nothing was moved");
}
