//! Going back: branches as of moments of the past.

use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use coppice_test_support::{Leftovers, Options, Platform, wait_for};
use serde_json::{Value, json};

use crate::branches::path;
use crate::setup::{PROGRAM, postgres_dir};

const PATIENCE: Duration = Duration::from_secs(60);
/// Marks are further apart than a second where the machine is busy; more than
/// this would be told as a gap.
const MARKS_APART: TimeDelta = TimeDelta::seconds(10);

/// A row, when it was begun and when it was acknowledged, and where the log was
/// by then.
struct Written {
    row: i64,
    begun: DateTime<Utc>,
    acknowledged: DateTime<Utc>,
    lsn: String,
}

fn write(coppice: &Platform, branch: &str, row: i64) -> Written {
    let begun = Utc::now();
    let insert = format!("BEGIN; INSERT INTO t VALUES ({row}, repeat('x', 20000)); COMMIT");
    let said = coppice.sql(branch, &format!("{insert}; SELECT pg_current_wal_insert_lsn()"));
    let lsn = said.lines().last().expect("a place").to_owned();
    Written { row, begun, acknowledged: Utc::now(), lsn }
}

fn history(coppice: &Platform, branch: &str) -> Value {
    coppice.cli(&["branch", "history", branch])
}

fn time(value: &Value) -> DateTime<Utc> {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no time: {value}"))
}

fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Waits until there are marks from before and after what was done between.
fn wait_for_marks(coppice: &Platform, branch: &str, count: u64) {
    let marked = || history(coppice, branch)["marks"].as_u64().filter(|marks| *marks >= count);
    wait_for("the log is looked at", PATIENCE, marked);
}

/// Makes a branch as of a time and tells its last row.
fn last_row_as_of(coppice: &Platform, parent: &str, at: DateTime<Utc>) -> i64 {
    coppice.cli(&["branch", "create", "then", "--parent", parent, "--at", &rfc3339(at)]);
    let last = coppice.sql("then", "SELECT coalesce(max(n), 0) FROM t").parse().expect("a number");
    // Every row is whole, and none before it is missing.
    assert_eq!(
        coppice.sql("then", "SELECT count(*) = coalesce(max(n), 0) FROM t WHERE length(v) = 20000"),
        "t"
    );
    coppice.cli(&["branch", "delete", "then", "--yes"]);
    last
}

fn compare(coppice: &Platform, parent: &str, written: &[Written], at: DateTime<Utc>) {
    let gaps = history(coppice, parent)["gaps"].as_array().cloned().unwrap_or_default();
    if gaps.iter().any(|gap| time(&gap["from"]) < at && at < time(&gap["to"])) {
        // The machine was too busy to start `coppice` in time.
        return;
    }
    let last = last_row_as_of(coppice, parent, at);
    let settled = written.iter().filter(|row| row.acknowledged <= at - MARKS_APART).map(|row| row.row).max();
    let begun = written.iter().filter(|row| row.begun <= at).map(|row| row.row).max();
    assert!(settled.unwrap_or(0) <= last, "{at}: {last}, and {settled:?} was acknowledged long before");
    assert!(last <= begun.unwrap_or(0), "{at}: {last}, and {begun:?} was not even begun");
}

/// A platform with PostgreSQL 18, and the system's 15.
fn oldest_and_newest() -> Platform {
    let newest = postgres_dir().join("18.4").display().to_string();
    let environment = vec![("COPPICE_POSTGRES_DIRS".to_owned(), newest)];
    Platform::start(PROGRAM, Options { environment, ..Options::default() })
}

#[test]
fn a_branch_goes_back_to_any_second_that_was_kept() {
    let mut coppice = oldest_and_newest();
    coppice.cli(&["branch", "create", "old", "--image", "postgres:15"]);
    for branch in ["main", "old"] {
        // Stored as it is: each row takes more than two pages.
        coppice.sql(
            branch,
            "CREATE TABLE t (n bigint PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE EXTERNAL",
        );
        let written = rows_go_in_while_coppice_is_killed(&mut coppice, branch);
        let (first, last) = (&written[0], &written[written.len() - 1]);
        for part in [3, 7] {
            let span = (last.acknowledged - first.acknowledged) * part / 8;
            compare(&coppice, branch, &written, first.acknowledged + span);
        }
        exactly_what_was_there_at_a_place(&coppice, branch, &written);
    }
    a_record_that_is_written_over_several_files_is_seen_when_it_is_whole(&coppice);
    a_backup_is_restored_to_exactly_the_first_rows(&coppice);
    what_was_dropped_is_back(&coppice);
    moments_that_were_not_kept_are_refused(&mut coppice);
    a_sleeping_branch_goes_back_too(&coppice);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

fn rows_go_in_while_coppice_is_killed(coppice: &mut Platform, branch: &str) -> Vec<Written> {
    wait_for_marks(coppice, branch, 1);
    let mut written: Vec<_> = (1..=12).map(|row| write(coppice, branch, row)).collect();
    coppice.kill();
    coppice.spawn();
    coppice.wait_ready();
    written.extend((13..=24).map(|row| write(coppice, branch, row)));
    written
}

fn exactly_what_was_there_at_a_place(coppice: &Platform, branch: &str, written: &[Written]) {
    let middle = &written[written.len() / 2];
    coppice.cli(&["branch", "create", "place", "--parent", branch, "--lsn", &middle.lsn]);
    assert_eq!(coppice.sql("place", "SELECT max(n) FROM t"), middle.row.to_string());
    assert_eq!(coppice.sql("place", "INSERT INTO t VALUES (1000, '')"), "INSERT 0 1", "it can be written");
    coppice.cli(&["branch", "delete", "place", "--yes"]);
}

/// Not even the end of its file changes any more when the rest of such a record comes.
fn a_record_that_is_written_over_several_files_is_seen_when_it_is_whole(coppice: &Platform) {
    // Not transactional: it is written as far as there was no room for it in memory.
    coppice.sql("main", "SELECT pg_logical_emit_message(false, 'far', repeat('x', 20000000)) IS NULL");
    let later = Utc::now() + TimeDelta::seconds(4);
    wait_for("it is looked at while nothing comes", PATIENCE, || {
        (time(&history(coppice, "main")["window"]["to"]) > later).then_some(())
    });
    let place = "BEGIN; CREATE TABLE far AS SELECT 1 AS i; COMMIT; SELECT pg_current_wal_insert_lsn()";
    let place = coppice.sql("main", place).lines().last().expect("a place").to_owned();
    wait_for("all of it is seen", PATIENCE, || {
        let seen = text(&history(coppice, "main")["window"]["toLsn"]);
        (coppice.sql("main", &format!("SELECT '{seen}'::pg_lsn >= '{place}'")) == "t").then_some(())
    });
}

/// Waits until the backup of a branch can be restored to some time after this call.
fn a_time_from_now_on(coppice: &Platform, branch: &str) -> String {
    let now = Utc::now();
    wait_for("the backup goes so far", PATIENCE, || {
        let backup = coppice.cli(&["backup", "show", branch]);
        (time(&backup["latestRestore"]) > now).then(|| text(&backup["latestRestore"]))
    })
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn a_backup_is_restored_to_exactly_the_first_rows(coppice: &Platform) {
    coppice.sql("main", "CREATE TABLE orders AS SELECT generate_series(1, 1000) AS n");
    let then = a_time_from_now_on(coppice, "main");
    coppice.sql("main", "INSERT INTO orders SELECT generate_series(1001, 2000)");
    coppice.sql("main", "DELETE FROM orders WHERE n <= 500");
    a_time_from_now_on(coppice, "main");
    let restored =
        coppice.cli(&["backup", "restore", "main", "--name", "first", "--at", &then, "--retention", "9"]);
    assert_eq!(restored["parentID"], json!(coppice.branch_id("main")));
    assert_eq!(restored["backupConfiguration"]["retentionPeriod"], 9);
    assert_eq!(coppice.sql("first", "SELECT count(*), min(n), max(n) FROM orders"), "1000|1|1000");
    coppice.cli(&["backup", "restore", "main", "--name", "latest"]);
    assert_eq!(coppice.sql("latest", "SELECT count(*), min(n), max(n) FROM orders"), "1500|501|2000");
    let list = coppice.cli(&["backup", "list"]);
    let listed: Vec<_> =
        list["backups"].as_array().expect("a list").iter().map(|one| text(&one["id"])).collect();
    assert!(listed.contains(&coppice.branch_id("main")) && listed.contains(&coppice.branch_id("first")));
    for branch in ["first", "latest"] {
        coppice.cli(&["branch", "delete", branch, "--yes"]);
    }
}

fn what_was_dropped_is_back(coppice: &Platform) {
    let before = coppice.sql("main", "SELECT pg_current_wal_insert_lsn()");
    let at = wait_for("a mark behind the last row", PATIENCE, || {
        let window = history(coppice, "main")["window"].clone();
        let is_marked = coppice.sql(
            "main",
            &format!("SELECT '{}'::pg_lsn >= '{before}'", window["toLsn"].as_str().unwrap_or("0/0")),
        );
        (is_marked == "t").then(|| time(&window["to"]))
    });
    coppice.sql("main", "DROP TABLE t");
    let began = Instant::now();
    coppice.cli(&["branch", "create", "undone", "--parent", "main", "--at", &rfc3339(at)]);
    eprintln!("a branch as of before the table was dropped took {:?}", began.elapsed());
    assert_eq!(coppice.sql("undone", "SELECT count(*), max(n) FROM t"), "24|24");
    assert!(!coppice.psql("main", "SELECT FROM t").is_ok, "the branch itself stays as it is");
}

fn moments_that_were_not_kept_are_refused(coppice: &mut Platform) {
    let main = path(coppice, "main");
    let (branches, _) = main.rsplit_once('/').expect("a path");
    let parent = coppice.branch_id("main");
    let refused = |coppice: &Platform, target: Value| {
        let mut body = json!({ "name": "never", "mode": "inherit", "parentID": parent });
        body.as_object_mut().expect("an object").extend(target.as_object().expect("an object").clone());
        let (status, answer) = coppice.call("POST", branches, Some(&body));
        assert_eq!((status, answer["id"].as_str()), (400, Some("invalid_restore_target")), "{answer}");
        answer.to_string()
    };
    let before = refused(coppice, json!({ "targetTime": "2020-01-01T00:00:00Z" }));
    assert!(
        before.contains("before its history begins") && before.contains("choose a time from"),
        "{before}"
    );
    let ahead = Utc::now() + TimeDelta::hours(1);
    assert!(refused(coppice, json!({ "targetTime": rfc3339(ahead) })).contains("does not go that far"));
    assert!(refused(coppice, json!({ "targetLsn": "0/1" })).contains("before its history begins"));

    // The server goes on without anybody who looks.
    let server = coppice.superuser_url("main");
    coppice.kill();
    let (killed, url) = (Utc::now(), server);
    wait_for("nobody has looked for a while", PATIENCE, || {
        (Utc::now() - killed > MARKS_APART + TimeDelta::seconds(2)).then_some(())
    });
    let written = std::process::Command::new("psql")
        .args([&url, "-XAtqc", "CREATE TABLE unseen (); GRANT SELECT ON unseen TO app"])
        .status();
    assert!(written.expect("psql runs").success());
    coppice.spawn();
    coppice.wait_ready();
    let gap = wait_for("the gap is told", PATIENCE, || history(coppice, "main")["gaps"].get(0).cloned());
    let inside = time(&gap["from"]) + (time(&gap["to"]) - time(&gap["from"])) / 2;
    let answer = refused(coppice, json!({ "targetTime": rfc3339(inside) }));
    assert!(answer.contains("is not known by time"), "{answer}");
    assert_eq!(
        coppice.cli(&["branch", "create", "later", "--parent", "main", "--at", "0s"])["name"],
        "later"
    );
    assert_eq!(
        coppice.sql("later", "SELECT count(*) FROM unseen"),
        "0",
        "what was written unseen is not lost"
    );
}

fn a_sleeping_branch_goes_back_too(coppice: &Platform) {
    coppice.sql("old", "CREATE TABLE last_thing AS SELECT 1 AS n");
    coppice.cli(&["branch", "hibernate", "old", "--yes"]);
    let asleep = Utc::now();
    coppice.cli(&["branch", "create", "slept", "--parent", "old", "--at", &rfc3339(asleep)]);
    assert_eq!(coppice.sql("slept", "SELECT n FROM last_thing"), "1", "also what came right before it slept");
    assert_eq!(coppice.cli(&["branch", "show", "old"])["status"]["statusType"], "STATUS_TYPE_HIBERNATED");
}
