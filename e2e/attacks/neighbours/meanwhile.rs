//! Branches that take more than their share while something goes on that takes long, and
//! of which their owner decides how long.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use coppice_test_support::{Leftovers, Options, Platform, psql, wait_for};
use serde_json::json;
use tempfile::TempDir;

use super::PATIENCE;
use super::storage::{OVERSHOOT, message, size, take};
use crate::branches::{data_of, path, status};
use crate::replicas::{kill, read_url, volumes, wait_read, wait_whole};
use crate::setup::{PROGRAM, postgres_dir};

/// An index on a function that is quick until it is to be built elsewhere.
const ENDLESS: &str = "
    CREATE TABLE t (i int); INSERT INTO t VALUES (1);
    CREATE FUNCTION slow(i int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1'; CREATE INDEX t_slow ON t (slow(i));
    CREATE OR REPLACE FUNCTION slow(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
        $$BEGIN PERFORM pg_sleep(86400); RETURN i; END$$;
    CREATE UNLOGGED TABLE filler (body text); ALTER TABLE filler ALTER body SET STORAGE EXTERNAL";

/// A platform on the disk, with so much room for what is not to be taken.
fn roomy_platform(pool_gib: u32) -> (TempDir, Platform) {
    let home = tempfile::Builder::new().prefix("coppice-test-").tempdir().expect("a directory");
    // Servers that run as other accounts have their files there.
    std::fs::set_permissions(home.path(), Permissions::from_mode(0o711)).expect("a mode");
    let environment = vec![("COPPICE_POSTGRES_DIRS".to_owned(), postgres_dir().display().to_string())];
    let flags = vec!["--pool-size-gib".to_owned(), pool_gib.to_string()];
    let data_dir = Some(home.path().join("data"));
    let platform = Platform::start(PROGRAM, Options { environment, flags, data_dir, ..Options::default() });
    (home, platform)
}

fn ask_to_upgrade(coppice: &Platform, path: &str, is_trial: bool) {
    let body = json!({ "image": "postgres:18", "check": is_trial });
    let (code, answer) = coppice.call("POST", &format!("{path}/upgrade"), Some(&body));
    assert_eq!(code, 200, "{answer}");
}

fn wait_for_words(coppice: &Platform, path: &str, words: &str) {
    wait_for(words, PATIENCE, || message(coppice, path).contains(words).then_some(()));
}

#[test]
fn an_upgrade_without_end_takes_no_more_than_its_branch_may_and_holds_up_nothing() {
    let (_home, mut coppice) = roomy_platform(4);
    coppice.cli(&["branch", "create", "hog", "--image", "postgres:16", "--storage", "1"]);
    for name in ["next", "third"] {
        coppice.cli(&["branch", "create", name, "--image", "postgres:16"]);
        coppice.sql(name, "CREATE TABLE t AS SELECT 1 AS i");
    }
    coppice.sql("hog", ENDLESS);
    let [hog, next, third] = ["hog", "next", "third"].map(|name| path(&coppice, name));
    ask_to_upgrade(&coppice, &hog, true);
    wait_for_words(&coppice, &hog, "tried on a copy");

    // It is looked after as ever: its server, its password, its storage.
    let before = coppice.connection_string("hog");
    assert_eq!(psql(&before, "SELECT 1").out, "1", "clients are let in");
    kill(coppice.postmaster(&coppice.branch_id("hog")));
    let is_back = || psql(&before, "SELECT 1").is_ok.then_some(());
    wait_for("its server is back", PATIENCE, is_back);
    coppice.cli(&["credentials", "rotate", "hog", "--yes"]);
    assert!(!psql(&before, "SELECT 1").is_ok, "the old password is of no use");
    let url = coppice.connection_string("hog");
    let write = format!("BEGIN READ WRITE; {}; COMMIT", take("filler", 150));
    let written = (0..20).filter(|_| psql(&url, &write).is_ok).count();
    let taken = size(&data_of(&coppice, "hog"));
    assert!(taken < (3 << 29) + OVERSHOOT, "{written} times 150 MiB were written: {taken} bytes");

    // Whoever waits for its end sleeps, wakes and is deleted meanwhile.
    ask_to_upgrade(&coppice, &next, false);
    ask_to_upgrade(&coppice, &third, false);
    wait_for_words(&coppice, &third, "waits for others");
    kill(coppice.postmaster(&coppice.branch_id("third")));
    let url = coppice.connection_string("third");
    wait_for("its server is back", PATIENCE, || psql(&url, "SELECT 1").is_ok.then_some(()));
    coppice.cli(&["branch", "delete", "next", "--purge", "--yes"]);
    wait_for("it is gone", PATIENCE, || (status(&coppice, &third) != "STATUS_TYPE_HEALTHY").then_some(()));
    coppice.cli(&["branch", "delete", "hog", "--purge", "--yes"]);
    let is_upgraded = || (status(&coppice, &third) == "STATUS_TYPE_HEALTHY").then_some(());
    wait_for("the next one has its turn", PATIENCE, is_upgraded);
    let major = "SELECT current_setting('server_version_num')::int / 10000, i FROM t";
    assert_eq!(coppice.sql("third", major), "18|1");
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

#[test]
#[ignore = "takes long, see `make long`"]
fn what_is_evaluated_after_a_restore_takes_no_more_room_than_the_restore_may() {
    let (_home, coppice) = roomy_platform(6);
    coppice.cli(&["branch", "create", "grow", "--image", "postgres:16", "--storage", "1"]);
    // Samples of an index are computed again, and not by the role that restores.
    coppice.sql(
        "grow",
        "CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 3);
         CREATE UNLOGGED TABLE junk (body text); ALTER TABLE junk ALTER body SET STORAGE EXTERNAL;
         CREATE FUNCTION grow() RETURNS void LANGUAGE plpgsql AS $$
         BEGIN
             IF session_user = 'platform' AND current_setting('server_version_num')::int >= 180000 THEN
                 FOR part IN 1..40 LOOP
                     INSERT INTO public.junk SELECT repeat('x', 1 << 20) FROM generate_series(1, 100);
                     IF part > 34 THEN PERFORM pg_sleep(10); END IF;
                 END LOOP;
             END IF;
         END$$;
         CREATE FUNCTION key(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
             $$BEGIN PERFORM public.grow(); RETURN i; END$$;
         CREATE INDEX t_key ON t (key(i))",
    );
    let place = path(&coppice, "grow");
    ask_to_upgrade(&coppice, &place, false);
    let is_over = || (status(&coppice, &place) != "STATUS_TYPE_TRANSIENT").then_some(());
    wait_for("it is over", 3 * PATIENCE, is_over);
    let said = message(&coppice, &place);
    assert!(said.contains("it was not upgraded") && said.contains("times the storage"), "{said}");
    assert_eq!(coppice.sql("grow", "SELECT count(*) FROM t"), "3");
}

#[test]
#[ignore = "takes long, see `make long`"]
fn a_replica_takes_no_more_room_than_its_branch_may() {
    let (_home, coppice) = roomy_platform(5);
    coppice.cli(&["branch", "create", "reads", "--storage", "1", "--replicas", "1"]);
    let place = path(&coppice, "reads");
    wait_whole(&coppice, &place, 2);
    let url = read_url(&coppice, "reads");
    wait_read(&url, "SELECT 1", "1");

    // Each session keeps as much as one may, and they are many.
    let keep = "BEGIN; DECLARE kept CURSOR WITH HOLD FOR SELECT repeat('x', 1000) || i FROM generate_series(1, 240000) i;
                COMMIT; SELECT pg_sleep(100)";
    let said: Vec<_> = std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..9).map(|_| scope.spawn(|| psql(&url, keep))).collect();
        sessions.into_iter().map(|session| session.join().expect("a session")).collect()
    });
    let is_ended = said.iter().any(|one| one.err.contains("due to administrator command"));
    assert!(is_ended, "{:?}", said.iter().map(|one| &one.err).collect::<Vec<_>>());
    wait_whole(&coppice, &place, 2);
    wait_read(&url, "SELECT 1", "1");

    // What it receives and does not read is not kept without end, either.
    let superuser = coppice.superuser_url("reads");
    let replica = superuser.replace("-1/socket", "-2/socket");
    let before = volumes(&coppice, "reads");
    assert!(psql(&replica, "SELECT pg_wal_replay_pause()").is_ok);
    let log =
        "SELECT count(pg_logical_emit_message(false, 'x', repeat('x', 50 << 20))) FROM generate_series(1, 6)";
    for _ in 0..7 {
        let written = psql(&superuser, log);
        assert!(written.is_ok, "{}", written.err);
        assert!(psql(&superuser, "CHECKPOINT").is_ok);
    }
    let is_new = || {
        let now = volumes(&coppice, "reads");
        (now.len() == before.len() && now.iter().any(|volume| !before.contains(volume))).then_some(())
    };
    wait_for("another one is made", PATIENCE, is_new);
    wait_whole(&coppice, &place, 2);
    coppice.sql("reads", "CREATE TABLE t AS SELECT 7 AS i");
    wait_read(&url, "SELECT i FROM t", "7");
}
