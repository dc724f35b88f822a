//! What branches own of the disk, and what they share.

use std::time::Duration;

use coppice_test_support::{Leftovers, Platform, psql, wait_for};
use serde_json::Value;

use crate::branches;
use crate::drivers::options_for;
use crate::setup::PROGRAM;

const WRITTEN: u64 = 20_000_000;
/// Less than what a cluster has when it is made.
const MADE_WITH: u64 = 10_000_000;

fn in_tree(coppice: &Platform, name: &str) -> Value {
    let main = branches::path(coppice, name);
    let (project, _) = main.split_once("/branches/").expect("a project");
    let (status, tree) = coppice.call("GET", &format!("{project}/tree"), None);
    assert_eq!(status, 200, "{tree}");
    let branches = tree["branches"].as_array().expect("branches").clone();
    branches.into_iter().find(|branch| branch["name"] == name).expect("the branch")
}

/// The truth of something in the metastore.
fn is_so(coppice: &Platform, condition: &str) -> bool {
    let said = psql(&coppice.metastore_url(), &format!("select coalesce(({condition}), false)"));
    assert!(said.is_ok, "{condition}: {}", said.err);
    said.out == "t"
}

/// A child is metered for what it wrote, also while it sleeps, and its parent for what they share.
fn each_pays_for_its_own(coppice: &Platform, driver: &str) {
    let [main, kid] = ["main", "kid"].map(|name| coppice.branch_id(name));
    let shared = if driver == "copy" {
        "s.shared_bytes = 0".to_owned()
    } else {
        format!("s.shared_bytes > {MADE_WITH}")
    };
    let metered = format!(
        "select bool_and(case s.branch_id when '{main}' then s.shared_bytes = 0
                                          else s.bytes - s.shared_bytes >= {WRITTEN} and {shared} end) and count(*) = 2
         from usage_storage s where s.branch_id in ('{main}', '{kid}') and s.ended_at is null"
    );
    wait_for("it is metered", Duration::from_secs(300), || is_so(coppice, &metered).then_some(()));
}

/// What clients were sent is written down to the end of the process.
fn what_was_sent_counts_to_the_end(coppice: &mut Platform) {
    let main = coppice.branch_id("main");
    assert_eq!(coppice.sql("main", "SELECT repeat('x', 5000000)").len(), 5_000_000);
    coppice.terminate();
    coppice.restart();
    let counted = format!("select sum(bytes) >= 5000000 from usage_egress where branch_id = '{main}'");
    assert!(is_so(coppice, &counted), "{}", coppice.log());
}

/// A child that wrote, and sleeps, tells what of its data is its own; so it does
/// after the platform was started anew.
fn a_branch_tells_what_it_owns_and_shares(driver: &str) {
    let (options, _file_system) = options_for(driver);
    let mut coppice = Platform::start(PROGRAM, options);
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    let sql = "CREATE TABLE notes AS SELECT repeat(md5(i::text), 8) FROM generate_series(1, 80000) AS i";
    coppice.sql("kid", sql);
    coppice.cli(&["branch", "hibernate", "kid"]);
    let sleeping = |coppice: &Platform| {
        wait_for("it is measured", Duration::from_secs(300), || {
            let kid = in_tree(coppice, "kid");
            kid["ownBytes"].as_u64().is_some_and(|own| own >= WRITTEN).then_some(kid)
        })
    };
    let check = |kid: &Value| {
        let [all, own, shared] =
            ["diskBytes", "ownBytes", "sharedBytes"].map(|name| kid[name].as_u64().expect("a number"));
        assert_eq!(own + shared, all, "{kid}");
        match driver {
            "copy" => assert_eq!(shared, 0, "{kid}"),
            _ => assert!(shared > MADE_WITH, "{kid}"),
        }
    };
    check(&sleeping(&coppice));
    let listed = coppice.cli(&["branch", "list"]);
    let listed = listed["branches"].as_array().expect("branches").iter().find(|one| one["name"] == "kid");
    assert!(listed.expect("the branch")["ownBytes"].as_u64().is_some_and(|own| own >= WRITTEN));

    each_pays_for_its_own(&coppice, driver);

    // Found again; not compared, as it may have been measured before while its server was still ending.
    what_was_sent_counts_to_the_end(&mut coppice);
    check(&sleeping(&coppice));
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

#[test]
#[ignore = "takes long, see `make long`"]
fn a_snapshot_owns_what_it_wrote() {
    a_branch_tells_what_it_owns_and_shares("btrfs");
}

#[test]
fn a_clone_owns_what_nobody_else_has() {
    a_branch_tells_what_it_owns_and_shares("reflink");
}

#[test]
#[ignore = "takes long, see `make long`"]
fn a_plain_copy_owns_all_it_has() {
    a_branch_tells_what_it_owns_and_shares("copy");
}

/// A child that updated a part of a table has other blocks than its parent for about
/// that much of it, and for nothing of a table that it left alone.
fn what_differs_of_each_table_is_told(driver: &str) {
    let (options, _file_system) = options_for(driver);
    let mut coppice = Platform::start(PROGRAM, options);
    for table in ["cut", "left_alone"] {
        // Without room left on its pages, an update needs new ones.
        let sql = format!(
            "CREATE TABLE {table} AS SELECT i, repeat(md5(i::text), 8) AS note FROM generate_series(1, 80000) AS i; \
             CREATE INDEX ON {table} (i); VACUUM (FREEZE, ANALYZE) {table}"
        );
        for statement in sql.split(';') {
            coppice.sql("main", statement);
        }
    }
    // A clean stop leaves nothing that a child would write again.
    coppice.cli(&["branch", "hibernate", "main"]);
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    coppice.cli(&["branch", "wake", "main"]);
    let diff = |coppice: &Platform| {
        let path = format!("{}/diff?bytes=true", branches::path(coppice, "kid"));
        let (status, diff) = coppice.call("GET", &path, None);
        assert_eq!(status, 200, "{diff}");
        diff["changedBytes"].clone()
    };
    let of = |found: &Value, name: &str, part: &str| {
        let relations = found["relations"].as_array().expect("relations");
        let relation = relations.iter().find(|relation| relation["name"] == name);
        relation.map_or(0, |relation| relation[part].as_u64().expect("a number"))
    };
    let made = diff(&coppice);
    if driver == "copy" {
        assert!(made["unknown"].as_str().is_some_and(|why| why.contains("plain copies")), "{made}");
        assert_eq!(coppice.stop_all(), Leftovers::default());
        return;
    }
    assert_eq!((of(&made, "public.cut", "changedBytes"), &made["unknown"]), (0, &Value::Null), "{made}");
    assert!(made["totalBytes"].as_u64().is_some_and(|all| all > WRITTEN), "{made}");

    coppice.sql("kid", "UPDATE cut SET note = note || '!' WHERE i <= 8000");
    let superuser = coppice.superuser_url("kid");
    let written_out = coppice_test_support::psql(&superuser, "CHECKPOINT");
    assert!(written_out.is_ok, "{written_out:?}");
    let written: u64 = coppice.sql("kid", "SELECT pg_table_size('cut') / 10").parse().expect("a number");
    let changed = diff(&coppice);
    let [bytes, differ] = ["bytes", "changedBytes"].map(|part| of(&changed, "public.cut", part));
    // The rows as they were are marked, and new ones written, with their entries in the index.
    assert!(differ > written && differ < 5 * written, "{differ} of {written}: {changed}");
    assert!(bytes > WRITTEN && bytes < 2 * WRITTEN, "{changed}");
    assert_eq!(of(&changed, "public.left_alone", "changedBytes"), 0, "{changed}");
    assert_eq!(changed["relations"][0]["name"], "public.cut", "the most first: {changed}");

    let told = String::from_utf8(coppice.run(&["branch", "diff", "kid", "--bytes"]).stdout).expect("text");
    assert!(told.contains("are not the blocks that main has, as of the checkpoint at"), "{told}");
    assert!(told.contains("table public.cut") && !told.contains("left_alone"), "{told}");
    let (_, plain) = coppice.call("GET", &format!("{}/diff", branches::path(&coppice, "kid")), None);
    assert_eq!(plain["changedBytes"], Value::Null, "who does not ask does not wait for it");
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

#[test]
fn of_a_snapshot_the_bytes_that_differ_are_told_by_table() {
    what_differs_of_each_table_is_told("btrfs");
}

#[test]
fn of_a_clone_the_bytes_that_differ_are_told_by_table() {
    what_differs_of_each_table_is_told("reflink");
}

#[test]
fn of_a_plain_copy_it_is_unknown_which_bytes_differ() {
    what_differs_of_each_table_is_told("copy");
}
