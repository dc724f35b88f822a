//! Branches that take more than their storage.

use std::sync::{Mutex, MutexGuard, PoisonError};

use coppice_test_support::{Platform, psql, wait_for};
use serde_json::json;

use super::{PATIENCE, as_superuser, oldest_and_newest};
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

/// A platform with a pool that may come to eight gigabytes, in memory where others are: one at a time.
fn large_platform() -> (MutexGuard<'static, ()>, Platform) {
    static LARGE: Mutex<()> = Mutex::new(());
    let alone = LARGE.lock().unwrap_or_else(PoisonError::into_inner);
    (alone, Platform::start(PROGRAM, oldest_and_newest(&["--pool-size-gib", "4"])))
}

#[test]
fn a_branch_that_fills_its_storage_becomes_read_only_and_more_storage_heals_it() {
    let (_alone, coppice) = large_platform();
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

/// BRIN indexes on a function that writes where autovacuum evaluates it, which it does also against a wraparound
/// of transaction ids; so many are used up.
const WRITES_BY_ITSELF: &str = "
    ALTER DATABASE app SET default_transaction_read_only = off;
    CREATE FUNCTION key(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END';
    CREATE TABLE t (i int, rest text); CREATE INDEX ON t USING brin (key(i)) WITH (pages_per_range = 1);
    INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 100) i;
    CREATE SEQUENCE evaluated; CREATE UNLOGGED TABLE used (i int);
    CREATE UNLOGGED TABLE filler (body text); ALTER TABLE filler ALTER body SET STORAGE EXTERNAL;
    CREATE FUNCTION write() RETURNS void LANGUAGE plpgsql AS $$BEGIN
        PERFORM nextval('public.evaluated');
        LOOP INSERT INTO public.filler SELECT repeat('x', 1 << 20) FROM generate_series(1, 10); END LOOP;
    END$$;
    CREATE OR REPLACE FUNCTION key(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN
        IF (SELECT backend_type FROM pg_stat_activity WHERE pid = pg_backend_pid()) = 'autovacuum worker' THEN
            PERFORM public.write();
        END IF;
        RETURN i;
    END$$;
    DO $$BEGIN FOR i IN 1..110000 LOOP
        BEGIN INSERT INTO used VALUES (1); EXCEPTION WHEN division_by_zero THEN NULL; END;
    END LOOP; END$$";

#[test]
#[ignore = "takes long, see `make long`"]
fn a_branch_that_lets_nobody_in_writes_nothing_by_itself() {
    let (_alone, coppice) = large_platform();
    let parameters =
        ["--parameter", "autovacuum_freeze_max_age=100000", "--parameter", "autovacuum_naptime=1s"];
    coppice.cli(&[&["branch", "create", "shut", "--storage", "1"], &parameters[..]].concat());
    let branch = path(&coppice, "shut");
    coppice.sql("shut", WRITES_BY_ITSELF);
    wait_for_message(&coppice, &branch, "lets nobody in");

    // A start looks for what is near a wraparound.
    let evaluated = || as_superuser(&coppice, "shut", "SELECT last_value FROM evaluated");
    let before = evaluated();
    coppice.cli(&["config", "set", "shut", "max_locks_per_transaction=65", "--yes"]);
    let is_up = "SELECT pg_postmaster_start_time() < now() - interval '3 s'
                    AND current_setting('max_locks_per_transaction') = '65'";
    let is_up = || {
        let said = psql(&coppice.superuser_url("shut"), is_up);
        (said.is_ok && said.out == "t").then_some(())
    };
    wait_for("it has been up for a moment", PATIENCE, is_up);
    assert_eq!(evaluated(), before);
    let taken = size(&data_of(&coppice, "shut"));
    assert!(taken < (3 << 29) + OVERSHOOT, "{taken} bytes");
}
