//! Branches become what others are, or what they were, with their id, URL and
//! password.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::Utc;
use coppice_test_support::{Leftovers, Platform, psql, wait_for};
use serde_json::{Value, json};

use crate::branches::{change, path, status};
use crate::http::text_of;
use crate::setup::{arm, platform};

const PATIENCE: Duration = Duration::from_secs(60);

fn rows(coppice: &Platform, branch: &str) -> String {
    coppice.sql(branch, "SELECT string_agg(i::text, ' ' ORDER BY i) FROM t WHERE i < 1000")
}

fn versions(coppice: &Platform, branch: &str) -> Vec<Value> {
    coppice.cli(&["branch", "history", branch])["versions"].as_array().expect("versions").clone()
}

/// Writes rows of its own until it is told to stop; returns those that it wrote
/// once `is_reset` was said, and how many that it wrote before.
fn write_on(url: &str, is_reset: &AtomicBool, is_over: &AtomicBool) -> (usize, Vec<u32>) {
    let (mut before, mut after) = (0, vec![]);
    for row in 1000.. {
        let was_reset = is_reset.load(Ordering::Relaxed);
        // Sessions end; whoever comes anew is let in.
        let is_written = psql(url, &format!("INSERT INTO t VALUES ({row})")).is_ok;
        match (is_written, was_reset) {
            (true, false) => before += 1,
            (true, true) => after.push(row),
            (false, true) => panic!("a client is refused after the reset"),
            (false, false) => {}
        }
        if is_over.load(Ordering::Relaxed) && !after.is_empty() {
            break;
        }
    }
    (before, after)
}

#[test]
fn a_branch_becomes_what_its_parent_is_under_a_writing_client_and_can_go_back() {
    let mut coppice = platform();
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (1)");
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    coppice.sql("kid", "INSERT INTO t VALUES (100)");
    coppice.sql("main", "INSERT INTO t VALUES (2)");
    let url = coppice.connection_string("kid");
    let (is_reset, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (before, after) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_on(&url, &is_reset, &is_over));
        let written = "SELECT count(*) > 2 FROM t WHERE i >= 1000";
        wait_for("it writes", PATIENCE, || (coppice.sql("kid", written) == "t").then_some(()));
        let shown = coppice.cli(&["branch", "reset", "kid", "--yes"]);
        assert_eq!(shown["status"]["statusType"], "STATUS_TYPE_HEALTHY");
        is_reset.store(true, Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("a writer")
    });
    assert!(before > 2);
    assert_eq!((coppice.connection_string("kid"), rows(&coppice, "kid")), (url, "1 2".to_owned()));
    let there = after.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let found = coppice.sql("kid", &format!("SELECT count(*) FROM t WHERE i IN ({there})"));
    assert_eq!(found, after.len().to_string(), "what was written after it stays");

    let version = versions(&coppice, "kid").remove(0);
    assert_eq!(version["reason"], "reset to branch main");
    coppice.cli(&["branch", "reset", "kid", "--version", &text_of(&version["id"]), "--yes"]);
    assert_eq!(rows(&coppice, "kid"), "1 100", "it is what it was");

    // One that sleeps is not woken.
    coppice.cli(&["branch", "hibernate", "kid", "--yes"]);
    let shown = coppice.cli(&["branch", "reset", "kid", "--from", "main", "--yes"]);
    assert_eq!(shown["status"]["statusType"], "STATUS_TYPE_HIBERNATED");
    coppice.cli(&["branch", "wake", "kid"]);
    assert_eq!((rows(&coppice, "kid").as_str(), versions(&coppice, "kid").len()), ("1 2", 3));

    // And without `coppice`, a moment of its own.
    let place = "BEGIN; INSERT INTO t VALUES (3); COMMIT; SELECT pg_current_wal_insert_lsn()";
    let place = coppice.sql("main", place).lines().last().expect("a place").to_owned();
    coppice.sql("main", "DROP TABLE t");
    what_can_not_be_is_refused(&coppice, &place);
    coppice.cli(&["branch", "reset", "main", "--lsn", &place, "--yes"]);
    assert_eq!(rows(&coppice, "main"), "1 2 3");
    assert_eq!(rows(&coppice, "kid"), "1 2", "others are what they were");
    // What it was until then has a history, too.
    coppice.sql("main", "INSERT INTO t VALUES (4)");
    let version = text_of(&versions(&coppice, "main")[0]["id"]);
    coppice.cli(&["branch", "reset", "main", "--version", &version, "--lsn", &place, "--yes"]);
    assert_eq!(rows(&coppice, "main"), "1 2 3");
    a_branch_takes_the_place_of_its_parent(&coppice);
    // All of it goes with the branch.
    coppice.cli(&["branch", "delete", "kid", "main", "grandkid", "--purge", "--yes"]);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

/// Whether what pgbench keeps in three places and in a history is the same everywhere.
const BALANCED: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = coalesce(d, 0) AND
    (SELECT sum(tbalance) FROM pgbench_tellers) = coalesce(d, 0) AND
    (SELECT sum(bbalance) FROM pgbench_branches) = coalesce(d, 0) FROM (SELECT sum(delta) d FROM pgbench_history) h";

#[test]
fn a_branch_is_reset_again_and_again_under_pgbench_and_each_time_is_what_its_parent_was() {
    let mut coppice = platform();
    let url = coppice.connection_string("main");
    let filled = Command::new("pgbench").args(["-iq", &url]).output().expect("pgbench runs");
    assert!(filled.status.success(), "{}", String::from_utf8_lossy(&filled.stderr));
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    let (parent, kid) = (url, coppice.connection_string("kid"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for url in [&parent, &kid] {
            let is_over = &is_over;
            // Its sessions end with each reset.
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = Command::new("pgbench").args(["-nc2", "-T2", url]).output();
                }
            });
        }
        let count = |branch: &str| -> u64 {
            let counted = || coppice.psql(branch, "SELECT count(*) FROM pgbench_history").out.parse().ok();
            wait_for("it is counted", PATIENCE, counted)
        };
        for _ in 0..3 {
            let before = wait_for("the parent goes on", PATIENCE, || Some(count("main")).filter(|n| *n > 0));
            wait_for("the child goes on", PATIENCE, || (count("kid") > 0).then_some(()));
            coppice.cli(&["branch", "reset", "kid", "--yes"]);
            assert!(count("kid") >= before, "what was there before is there");
            assert_eq!(coppice.sql("kid", BALANCED), "t", "and nothing by half");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(coppice.sql("main", BALANCED), "t");
    assert_eq!(versions(&coppice, "kid").len(), 3);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

fn a_branch_takes_the_place_of_its_parent(coppice: &Platform) {
    let id = |branch: &str| json!(coppice.branch_id(branch));
    coppice.cli(&["branch", "create", "grandkid", "--parent", "kid"]);
    let promoted = coppice.cli(&["branch", "promote", "kid"]);
    assert_eq!(promoted["parentID"], Value::Null);
    let parent = |branch: &str| coppice.cli(&["branch", "show", branch])["parentID"].clone();
    assert_eq!((parent("main"), parent("grandkid")), (id("kid"), id("kid")));
    coppice.cli(&["branch", "promote", "grandkid"]);
    assert_eq!((parent("grandkid"), parent("kid"), parent("main")), (Value::Null, id("grandkid"), id("kid")));
    let (code, answer) = coppice.call("POST", &format!("{}/promote", path(coppice, "grandkid")), None);
    assert_eq!((code, &answer["id"]), (400, &json!("invalid_field")));
    coppice.cli(&["branch", "detach", "main"]);
    assert_eq!((parent("main"), rows(coppice, "main")), (Value::Null, "1 2 3".to_owned()));
    // Not even one that comes back from the trash is its parent again.
    coppice.cli(&["branch", "delete", "kid", "--yes"]);
    coppice.cli(&["trash", "restore", "kid"]);
    assert_eq!((parent("main"), parent("kid")), (Value::Null, id("grandkid")));
    assert_eq!(versions(coppice, "kid").len(), 3, "its versions come back with it");
}

fn what_can_not_be_is_refused(coppice: &Platform, place: &str) {
    let main = path(coppice, "main");
    let reset = |body: Value| coppice.call("POST", &format!("{main}/reset"), Some(&body));
    change(coppice, &main, &json!({ "protected": true }));
    for (body, code, id) in [
        (json!({ "from": { "targetLsn": place } }), 409, "branch_protected"),
        (json!({}), 400, "invalid_field"),
        (json!({ "from": { "branchID": coppice.branch_id("main") } }), 400, "invalid_field"),
        (json!({ "from": { "targetLsn": "F0000000/0" } }), 400, "invalid_restore_target"),
        (
            json!({ "from": { "targetLsn": place, "targetTime": "2026-01-01T00:00:00Z" } }),
            400,
            "invalid_field",
        ),
    ] {
        let (status, answer) = reset(body.clone());
        assert_eq!((status, &answer["id"]), (code, &json!(id)), "{body}");
    }
    let time = "2026-01-01T00:00:00Z";
    let (status, answer) = reset(json!({ "from": { "versionID": "..", "targetTime": time } }));
    assert_eq!((status, &answer["id"]), (400, &json!("invalid_field")), "no path of the host");
    let foreign = &versions(coppice, "kid")[0]["id"];
    let (_, answer) = reset(json!({ "from": { "versionID": foreign, "targetTime": time } }));
    let message = answer["message"].as_str().expect("a message");
    assert!(message.contains("has no version"), "nothing of its history is told: {message}");
    change(coppice, &main, &json!({ "protected": false }));
    let stranger = reset(json!({ "from": { "branchID": "unknown" } }));
    assert_eq!((stranger.0, &stranger.1["id"]), (404, &json!("branch_not_found")));
    let unknown = reset(json!({ "from": { "versionID": "vol_unknown" } }));
    assert_eq!((unknown.0, &unknown.1["id"]), (400, &json!("invalid_restore_target")));
}

#[test]
#[ignore = "takes long, see `make long`"]
fn an_abort_while_a_branch_is_reset_is_made_up_for() {
    let mut coppice = platform();
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (0)");
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    let kid = path(&coppice, "kid");
    let url = |coppice: &Platform| coppice.connection_string("kid").split('@').next().map(str::to_owned);
    let password = url(&coppice);
    let steps = [
        "volume.publish.before_rename",
        "reconciler.volume_made",
        "reconciler.stopped_to_replace",
        "reconciler.replaced",
        "first_start.detached",
    ];
    for (round, step) in (1..).zip(steps) {
        coppice.sql("main", &format!("INSERT INTO t VALUES ({round})"));
        coppice.sql("kid", "INSERT INTO t VALUES (100)");
        arm(&mut coppice, step);
        coppice.restart();
        wait_for("it is up", PATIENCE, || (status(&coppice, &kid) == "STATUS_TYPE_HEALTHY").then_some(()));
        // The process ends before it answers.
        let _ = coppice.client().call("POST", &format!("{kid}/reset"), Some(&json!({})));
        wait_for(step, PATIENCE, || coppice.has_ended().then_some(()));
        arm(&mut coppice, "");
        coppice.restart();
        wait_for("it is reset", PATIENCE, || {
            (versions(&coppice, "kid").len() == round && status(&coppice, &kid) == "STATUS_TYPE_HEALTHY")
                .then_some(())
        });
        let expected: Vec<_> = (0..=round).map(|row| row.to_string()).collect();
        assert_eq!(rows(&coppice, "kid"), expected.join(" "), "{step}");
        assert_eq!(url(&coppice), password, "{step}");
    }
    assert!(!coppice.log().contains("is in no row"), "{}", coppice.log());
}

/// Makes the files that a server makes for its log if it begins in one of the next
/// seconds, of the account that the logs are of.
fn begin_logs_of_the_next_seconds(coppice: &Platform, branch: &str, seconds: i64) {
    let logs = coppice.data_dir().join(format!("instances/{}-1/log", coppice.branch_id(branch)));
    let account = fs::metadata(&logs).expect("a directory").uid();
    for second in 0..seconds {
        let name = (Utc::now() + chrono::Duration::seconds(second)).format("postgresql-%Y%m%d-%H%M%S");
        for ending in ["log", "json"] {
            let options = OpenOptions::new().create(true).append(true).mode(0o600).to_owned();
            let file = options.open(logs.join(format!("{name}.{ending}"))).expect("a file");
            fchown(&file, Some(account), Some(account)).expect("given away");
        }
    }
}

#[test]
fn a_server_under_the_account_of_another_volume_writes_to_a_log_that_the_one_of_before_began() {
    let mut coppice = platform();
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    // As if each reset took no second.
    begin_logs_of_the_next_seconds(&coppice, "kid", 300);
    coppice.cli(&["branch", "reset", "kid", "--yes"]);
    assert_eq!(coppice.sql("kid", "SELECT 1"), "1");
    let log = coppice.log();
    assert!(!log.contains("could not open log file"), "{log}");
    assert_eq!(coppice.stop_all(), Leftovers::default());
}
