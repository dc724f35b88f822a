//! Branches that take more than their storage.

use coppice_test_support::{Platform, psql, wait_for};
use serde_json::json;

use super::{PATIENCE, oldest_and_newest};
use crate::branches::{change, data_of, describe, path};
use crate::setup::PROGRAM;

/// Most that is written between two looks, and a slow machine's looks.
pub(super) const OVERSHOOT: u64 = 700 << 20;

pub(super) fn message(coppice: &Platform, path: &str) -> String {
    describe(coppice, path)["status"]["message"].as_str().expect("a message").to_owned()
}

fn wait_for_message(coppice: &Platform, path: &str, words: &str) {
    wait_for(words, PATIENCE, || message(coppice, path).contains(words).then_some(()));
}

pub(super) fn size(directory: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// SQL that takes so many MiB, without WAL.
pub(super) fn take(table: &str, mib: u32) -> String {
    format!("INSERT INTO {table} SELECT repeat('x', 1 << 20) FROM generate_series(1, {mib})")
}

/// What a tenant does who takes no setting for an answer: goes on until nobody
/// is let in.
fn defy(coppice: &Platform, path: &str, url: &str) {
    let write = format!("BEGIN READ WRITE; {}; COMMIT", take("filler", 150));
    wait_for("there is an end to the storage", PATIENCE, || {
        let said = psql(url, &write);
        (!said.is_ok && message(coppice, path).contains("lets nobody in")).then_some(())
    });
}

#[test]
fn a_branch_that_fills_its_storage_becomes_read_only_and_more_storage_heals_it() {
    let coppice = Platform::start(PROGRAM, oldest_and_newest(&["--pool-size-gib", "4"]));
    for major in ["15", "18"] {
        coppice.cli(&["branch", "create", major, "--image", &format!("postgres:{major}"), "--storage", "1"]);
        let (branch, url) = (path(&coppice, major), coppice.connection_string(major));
        coppice.sql(
            major,
            "CREATE TABLE kept AS SELECT 7 AS i;
             CREATE UNLOGGED TABLE filler (body text); ALTER TABLE filler ALTER body SET STORAGE EXTERNAL;
             CREATE UNLOGGED TABLE extra (body text); ALTER TABLE extra ALTER body SET STORAGE EXTERNAL",
        );
        coppice.sql(major, &take("filler", 390));
        coppice.sql(major, &take("extra", 400));
        wait_for_message(&coppice, &branch, "80 % full");
        coppice.sql(major, &take("filler", 90));
        wait_for_message(&coppice, &branch, "90 % full");
        // A load that is on its way is ended with the rest.
        let _ = psql(&url, &take("filler", 300));
        wait_for_message(&coppice, &branch, "is full and it is read-only");
        let refused = wait_for("nothing new is made", PATIENCE, || {
            Some(psql(&url, "INSERT INTO kept VALUES (7)")).filter(|said| !said.is_ok)
        });
        assert!(refused.err.contains("read-only transaction"), "{}", refused.err);
        assert_eq!(psql(&url, "SELECT DISTINCT i FROM kept").out, "7", "it is read");
        assert_eq!(coppice.sql("main", "SELECT 1"), "1", "and its neighbour is served");

        let repaired = psql(&url, "BEGIN READ WRITE; DROP TABLE extra; COMMIT");
        assert!(repaired.is_ok, "its owner deletes: {}", repaired.err);
        let writes = |row| {
            wait_for("it is written", PATIENCE, || {
                psql(&url, &format!("INSERT INTO kept VALUES ({row})")).is_ok.then_some(())
            })
        };
        writes(8);

        defy(&coppice, &branch, &url);
        let taken = size(&data_of(&coppice, major));
        assert!(taken < (3 << 29) + OVERSHOOT, "{taken} bytes");
        change(&coppice, &branch, &json!({ "storage": 5 }));
        writes(9);
        assert_eq!(describe(&coppice, &branch)["configuration"]["storage"], 5);
        coppice.cli(&["branch", "delete", major, "--purge", "--yes"]);
    }
}
