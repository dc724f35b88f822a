//! What branches own of the disk, and what they share.

use std::time::Duration;

use coppice_test_support::{Leftovers, Platform, wait_for};
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
    let kid = sleeping(&coppice);
    let [all, own, shared] =
        ["diskBytes", "ownBytes", "sharedBytes"].map(|name| kid[name].as_u64().expect("a number"));
    assert_eq!(own + shared, all, "{kid}");
    match driver {
        "copy" => assert_eq!(shared, 0, "{kid}"),
        _ => assert!(shared > MADE_WITH, "{kid}"),
    }
    let listed = coppice.cli(&["branch", "list"]);
    let listed = listed["branches"].as_array().expect("branches").iter().find(|one| one["name"] == "kid");
    assert_eq!(listed.expect("the branch")["ownBytes"], own);

    coppice.restart();
    let again = sleeping(&coppice)["sharedBytes"].as_u64().expect("a number");
    // It may have been measured while its server was still ending.
    assert!(again.abs_diff(shared) <= 1 << 20, "asleep as before: {again}, {shared}");
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

#[test]
fn a_snapshot_owns_what_it_wrote() {
    a_branch_tells_what_it_owns_and_shares("btrfs");
}

#[test]
fn a_clone_owns_what_nobody_else_has() {
    a_branch_tells_what_it_owns_and_shares("reflink");
}

#[test]
fn a_plain_copy_owns_all_it_has() {
    a_branch_tells_what_it_owns_and_shares("copy");
}
