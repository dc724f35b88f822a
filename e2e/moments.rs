//! What a branch was before it was reset: as a version, and at times and places of then.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use coppice_test_support::{Leftovers, Platform, wait_for};
use serde_json::{Value, json};

use crate::branches::path;
use crate::http::text_of;
use crate::setup::platform;

const PATIENCE: Duration = Duration::from_secs(120);

fn rows(coppice: &Platform, branch: &str) -> String {
    coppice.sql(branch, "SELECT string_agg(i::text, ' ' ORDER BY i) FROM t")
}

fn versions(coppice: &Platform, branch: &str) -> Vec<String> {
    let history = coppice.cli(&["branch", "history", branch]);
    history["versions"].as_array().expect("versions").iter().map(|version| text_of(&version["id"])).collect()
}

fn backup(coppice: &Platform, branch: &str) -> Value {
    coppice.cli(&["backup", "show", branch])
}

fn time(value: &Value) -> DateTime<Utc> {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no time: {value}"))
}

/// A time by which all is there that is written by now, and nothing that comes later.
fn a_time_from_now_on(coppice: &Platform, branch: &str) -> String {
    let now = Utc::now();
    wait_for("a look is taken", PATIENCE, || {
        let latest = backup(coppice, branch)["latestRestore"].clone();
        (time(&latest) > now).then(|| text_of(&latest))
    })
}

/// The rows of a copy that is made so; the copy goes again.
fn rows_of_copy(coppice: &Platform, make: &[&str]) -> String {
    coppice.cli(make);
    let found = rows(coppice, "copy");
    coppice.cli(&["branch", "delete", "copy", "--purge", "--yes"]);
    found
}

fn create<'a>(what: &[&'a str]) -> Vec<&'a str> {
    [&["branch", "create", "copy", "--parent", "kid"], what].concat()
}

/// Asks for a child of `parent`, which is refused; returns why.
fn refused(coppice: &Platform, parent: &str, target: &Value) -> String {
    let path = path(coppice, parent);
    let (branches, _) = path.rsplit_once('/').expect("a path");
    let mut body = json!({ "name": "never", "mode": "inherit", "parentID": coppice.branch_id(parent) });
    body.as_object_mut().expect("an object").extend(target.as_object().expect("an object").clone());
    let (status, answer) = coppice.call("POST", branches, Some(&body));
    assert_eq!((status, &answer["id"]), (400, &json!("invalid_restore_target")), "{answer}");
    text_of(&answer["message"])
}

/// What was written by each of two times, between which it was reset.
struct Lived {
    before: String,
    after: String,
    /// A place in the log behind all that was written by `before`, further than it ever came after.
    place: String,
}

fn write_reset_write(coppice: &Platform) -> Lived {
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (1)");
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    coppice.sql("kid", "INSERT INTO t VALUES (100)");
    coppice.sql(
        "kid",
        "CREATE TABLE wide AS SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000000) i GROUP BY i % 10000",
    );
    let said =
        coppice.sql("kid", "BEGIN; INSERT INTO t VALUES (101); COMMIT; SELECT pg_current_wal_insert_lsn()");
    let place = said.lines().last().expect("a place").to_owned();
    let before = a_time_from_now_on(coppice, "kid");
    coppice.sql("kid", "INSERT INTO t VALUES (102)");
    coppice.cli(&["branch", "reset", "kid", "--yes"]);
    assert_eq!(rows(coppice, "kid"), "1");
    coppice.sql("kid", "INSERT INTO t VALUES (200)");
    let after = a_time_from_now_on(coppice, "kid");
    coppice.sql("kid", "INSERT INTO t VALUES (201)");
    Lived { before, after, place }
}

#[test]
fn a_moment_before_a_reset_is_what_the_branch_was_then() {
    let mut coppice = platform();
    let Lived { before, after, place } = write_reset_write(&coppice);
    let version = versions(&coppice, "kid").remove(0);
    let copy = |what: &[&str]| rows_of_copy(&coppice, &create(what));
    assert_eq!(copy(&["--at", &before]), "1 100 101");
    assert_eq!(copy(&["--at", &after]), "1 200");
    assert_eq!(copy(&["--version", &version]), "1 100 101 102", "all that it was");
    assert_eq!(copy(&["--version", &version, "--at", &before]), "1 100 101");
    assert_eq!(copy(&["--version", &version, "--lsn", &place]), "1 100 101");
    assert_eq!(copy(&["--lsn", &place]), "1 100 101", "only the version came so far");
    let restore = ["backup", "restore", "kid", "--name", "copy", "--at", &before];
    assert_eq!(rows_of_copy(&coppice, &restore), "1 100 101");
    assert_eq!(rows(&coppice, "kid"), "1 200 201", "nothing happened to the branch");

    what_was_between_is_told_as_a_gap(&coppice, &before, &after);
    what_is_not_kept_is_refused(&coppice, &version, &after);

    // The branch itself goes back across the reset, and forth again.
    coppice.cli(&["branch", "reset", "kid", "--at", &before, "--yes"]);
    assert_eq!(rows(&coppice, "kid"), "1 100 101");
    assert_eq!(copy(&["--at", &after]), "1 200", "of a version by now");
    coppice.cli(&["branch", "hibernate", "kid", "--yes"]);
    assert_eq!(copy(&["--at", &before]), "1 100 101", "it is not woken for it");
    let status = coppice.cli(&["branch", "show", "kid"])["status"]["statusType"].clone();
    assert_eq!(status, "STATUS_TYPE_HIBERNATED");
    coppice.cli(&["branch", "reset", "main", "--from", "kid", "--at", &after, "--yes"]);
    assert_eq!(rows(&coppice, "main"), "1 200", "another branch's past");

    // A copy of a version stays when its parent goes, with all of its versions.
    coppice.cli(&["branch", "create", "copy", "--parent", "kid", "--version", &version]);
    coppice.cli(&["branch", "delete", "kid", "main", "--purge", "--yes"]);
    assert_eq!(rows(&coppice, "copy"), "1 100 101 102");
    coppice.cli(&["branch", "delete", "copy", "--purge", "--yes"]);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

fn what_was_between_is_told_as_a_gap(coppice: &Platform, before: &str, after: &str) {
    let told = backup(coppice, "kid");
    let at = |text: &str| time(&json!(text));
    assert!(
        time(&told["earliestRestore"]) <= at(before) && at(after) <= time(&told["latestRestore"]),
        "{told}"
    );
    let gaps = told["gaps"].as_array().expect("gaps");
    let is_between = |gap: &&Value| at(before) <= time(&gap["from"]) && time(&gap["to"]) <= at(after);
    let gap = gaps.iter().find(is_between).expect("it was reset between the two");
    let inside = time(&gap["from"]) + (time(&gap["to"]) - time(&gap["from"])) / 2;
    let inside = json!({ "targetTime": inside.to_rfc3339_opts(SecondsFormat::Millis, true) });
    let why = refused(coppice, "kid", &inside);
    assert!(why.contains("is not kept") || why.contains("is not known by time"), "{why}");
    assert!(why.contains("but for the gaps that getBackup tells"), "{why}");
    for end in ["from", "to"] {
        let end = text_of(&gap[end]);
        assert!(
            rows_of_copy(coppice, &create(&["--at", &end])).starts_with('1'),
            "{end} can be gone back to"
        );
    }
    let list = coppice.cli(&["backup", "list"]);
    let mut listed = list["backups"].as_array().expect("backups").iter();
    let listed = listed.find(|one| one["id"] == told["id"]).expect("it is listed");
    assert_eq!(listed["gaps"], told["gaps"]);
}

fn what_is_not_kept_is_refused(coppice: &Platform, version: &str, after: &str) {
    let unknown = refused(coppice, "kid", &json!({ "versionID": "vol_unknown" }));
    assert!(unknown.contains("has no version vol_unknown: getBranchHistory lists them"), "{unknown}");
    let of_another = refused(coppice, "main", &json!({ "versionID": version }));
    assert!(of_another.contains("branch main has no version"), "{of_another}");
    let late = refused(coppice, "kid", &json!({ "versionID": version, "targetTime": after }));
    assert!(late.contains("its history does not go that far; choose a time from"), "{late}");
    let early = refused(coppice, "kid", &json!({ "targetTime": "2020-01-01T00:00:00Z" }));
    assert!(early.contains("before its history begins"), "{early}");
    let nowhere = refused(coppice, "kid", &json!({ "targetLsn": "F0000000/0" }));
    assert!(nowhere.contains("does not go that far"), "{nowhere}");
}

#[test]
fn a_branch_goes_back_to_what_came_after_a_sleep_in_which_it_was_first_looked_at() {
    let mut coppice = platform();
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (1)");
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    for branch in ["main", "kid"] {
        coppice.cli(&["branch", "hibernate", branch, "--yes"]);
    }
    coppice.cli(&["branch", "reset", "kid", "--yes"]);
    let history = coppice.cli(&["branch", "history", "kid"]);
    assert_eq!(history["snapshots"].as_array().map(Vec::len), Some(1), "of data at rest: {history}");
    coppice.cli(&["branch", "wake", "kid"]);
    let said =
        coppice.sql("kid", "BEGIN; INSERT INTO t VALUES (2); COMMIT; SELECT pg_current_wal_insert_lsn()");
    let place = said.lines().last().expect("a place").to_owned();
    coppice.sql("kid", "INSERT INTO t VALUES (3)");
    assert_eq!(rows_of_copy(&coppice, &create(&["--lsn", &place])), "1 2");
    coppice.cli(&["branch", "reset", "kid", "--lsn", &place, "--yes"]);
    assert_eq!(rows(&coppice, "kid"), "1 2");
    coppice.cli(&["branch", "delete", "kid", "main", "--purge", "--yes"]);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}
