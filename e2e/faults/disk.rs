//! A pool without room.

use coppice_test_support::{Leftovers, Platform, psql, wait_for};
use serde_json::json;

use super::{PATIENCE, answer, describe, path};
use crate::setup::{PROGRAM, options};

/// No host has so much to give, so the pool stays as it is.
pub(crate) const NO_GROWTH: [&str; 2] = ["--host-reserve-gib", "1000000"];

/// Fills the pool by SQL, in smaller and smaller pieces. The table is logged:
/// a server that ends over a full disk empties the others when it recovers.
pub(crate) fn fill(url: &str) {
    let said =
        psql(url, "CREATE TABLE filler (body text); ALTER TABLE filler ALTER body SET STORAGE EXTERNAL");
    assert!(said.is_ok, "{}", said.err);
    let until_refused = |sql: &str| {
        for _ in 0..200 {
            let said = psql(url, sql);
            if !said.is_ok {
                return assert!(is_about_room(&said.err), "{}", said.err);
            }
        }
        panic!("there is no end to the room for {sql}");
    };
    for kibibytes in [64 << 10, 8 << 10, 1 << 10, 64] {
        until_refused(&format!("INSERT INTO filler VALUES (repeat('x', {kibibytes} << 10))"));
    }
}

/// What a client may be told while there is no room: that a file can't grow, or
/// that its server ended over it.
fn is_about_room(err: &str) -> bool {
    let words = ["No space left on device", "server closed the connection unexpectedly", "is not ready"];
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
        // Its server goes down and up again.
        "service unavailable, try again later",
        "the connection to the branch's server was lost",
    ];
    words.iter().any(|word| err.contains(word))
}

#[test]
#[ignore = "takes long, see `make long`"]
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

    // Whoever uses a branch now is served, or told.
    let read = coppice.psql("quiet", "SELECT i FROM t");
    assert!(read.out == "7" || is_about_room(&read.err), "{} {}", read.out, read.err);
    let (mut written, mut lost) = (0, 0);
    for number in 0..2 {
        let said = coppice.psql("main", &format!("INSERT INTO t VALUES ({})", 100 + number));
        assert!(said.is_ok || is_about_room(&said.err), "{}", said.err);
        written += u32::from(said.is_ok);
        lost += u32::from(!said.is_ok);
    }
    // The API goes on; a branch made now is there, or says what is missing.
    let (main, quiet) = (path(&coppice, "main"), path(&coppice, "quiet"));
    let (branches, parent) =
        (main.rsplit_once('/').expect("a path").0, quiet.rsplit_once('/').expect("a path").1);
    let body = json!({ "mode": "inherit", "name": "late", "parentID": parent });
    let (made, answered) = coppice.call("POST", branches, Some(&body));
    match made {
        201 => {
            let late = path(&coppice, "late");
            wait_for("its state is clear", PATIENCE, || {
                let told = describe(&coppice, &late);
                let message = told["status"]["message"].as_str().expect("a message").to_lowercase();
                (told["status"]["status"] == "Healthy" || message.contains("no space left")).then_some(())
            });
        }
        // Its parent is in need, too.
        _ => assert_eq!((made, answered["id"].as_str()), (412, Some("parent_not_ready")), "{answered}"),
    }
    let (status, list) = coppice.call("GET", branches, None);
    let count = 3 + usize::from(made == 201);
    assert_eq!((status, list["branches"].as_array().map(Vec::len)), (200, Some(count)));

    let (status, answered) = coppice.call("DELETE", &path(&coppice, "big"), None);
    assert_eq!(status, 204, "{answered}");
    let count = "SELECT count(*) FROM t WHERE i >= 100";
    answer(&coppice, "main", "INSERT INTO t VALUES (1)");
    let found: u32 = answer(&coppice, "main", count).parse().expect("a count");
    assert!((written..=written + lost).contains(&found), "{found} rows of {written} acknowledged ones");
    answer(&coppice, "quiet", "SELECT 1");
    if made != 201 {
        coppice.cli(&["branch", "create", "late", "--parent", "quiet"]);
    }
    for name in ["quiet", "late"] {
        answer(&coppice, name, "INSERT INTO t VALUES (1)");
        assert_eq!(answer(&coppice, name, "SELECT count(*) FROM t WHERE i = 7"), "1", "{name}");
    }
    assert_eq!(coppice.stop_all(), Leftovers::default());
}
