//! A pool without room.

use coppice_test_support::{Leftovers, Platform, psql};
use serde_json::json;

use super::{answer, describe, path};
use crate::setup::{PROGRAM, options};

/// No host has so much to give, so the pool stays as it is.
const NO_GROWTH: [&str; 2] = ["--host-reserve-gib", "1000000"];

/// Fills the pool by SQL, in smaller and smaller pieces. A table that is not
/// logged takes no room for WAL.
fn fill(url: &str) {
    let said = psql(
        url,
        "CREATE UNLOGGED TABLE filler (body text); ALTER TABLE filler ALTER body SET STORAGE EXTERNAL",
    );
    assert!(said.is_ok, "{}", said.err);
    for mebibytes in [64, 8, 1] {
        loop {
            let said = psql(url, &format!("INSERT INTO filler VALUES (repeat('x', {mebibytes} << 20))"));
            if !said.is_ok {
                assert!(is_about_room(&said.err), "{}", said.err);
                break;
            }
        }
    }
}

/// What a client may be told while there is no room: that a file can't grow, or
/// that its server ended over it.
fn is_about_room(err: &str) -> bool {
    let words = ["No space left on device", "server closed the connection unexpectedly", "is not ready ("];
    words.iter().any(|word| err.contains(word)) || is_cut(err)
}

fn is_cut(err: &str) -> bool {
    let words = [
        "SSL SYSCALL error: EOF detected",
        "SSL connection has been closed unexpectedly",
        "terminating connection because of crash of another server process",
        "the database system is in recovery mode",
        "the database system is not yet accepting connections",
        "the startup took too long",
    ];
    words.iter().any(|word| err.contains(word))
}

#[test]
fn a_full_pool_breaks_nothing_for_good_and_a_deletion_frees_it() {
    let mut options = options();
    options.flags.extend(["--branch-create-wait", "5"].map(str::to_owned));
    let mut coppice = Platform::start(PROGRAM, options);
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    for name in ["big", "quiet"] {
        coppice.cli(&["branch", "create", name, "--parent", "main"]);
    }
    coppice.kill();
    coppice.add_flags(&NO_GROWTH);
    coppice.spawn();
    coppice.wait_ready();
    fill(&coppice.connection_string("big"));

    // Who only reads goes on, and who writes either succeeds or is told.
    assert_eq!(answer(&coppice, "quiet", "SELECT i FROM t"), "7");
    let mut written = 0;
    for number in 0..20 {
        let said = coppice.psql("main", &format!("INSERT INTO t VALUES ({})", 100 + number));
        assert!(said.is_ok || is_about_room(&said.err), "{}", said.err);
        written += u32::from(said.is_ok);
    }
    // The API goes on; a branch made now is there, or says what is missing.
    let made = coppice.run(&["branch", "create", "late", "--parent", "quiet", "--json"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let late = describe(&coppice, &path(&coppice, "late"));
    println!("a branch of a full pool: {}", late["status"]);
    let (status, list) =
        coppice.call("GET", path(&coppice, "main").rsplit_once('/').expect("a path").0, None);
    assert_eq!((status, list["branches"].as_array().map(Vec::len)), (200, Some(4)));

    let (status, answered) = coppice.call("DELETE", &path(&coppice, "big"), None);
    assert_eq!(status, 204, "{answered}");
    let count = "SELECT count(*) FROM t WHERE i >= 100";
    answer(&coppice, "main", "INSERT INTO t VALUES (1)");
    assert_eq!(answer(&coppice, "main", count), written.to_string(), "what was acknowledged is there");
    for name in ["quiet", "late"] {
        answer(&coppice, name, "INSERT INTO t VALUES (1)");
        assert_eq!(answer(&coppice, name, "SELECT count(*) FROM t WHERE i = 7"), "1", "{name}");
    }
    let path = path(&coppice, "late");
    let (_, hibernated) = coppice.call("PATCH", &path, Some(&json!({ "hibernate": true })));
    super::wait_for_status(&coppice, &path, "STATUS_TYPE_HIBERNATED");
    assert!(hibernated["id"].is_string(), "{hibernated}");
    assert_eq!(coppice.stop_all(), Leftovers::default());
}
