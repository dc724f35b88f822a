//! The platform ends at each place between what it writes down and what it does or tells, one after another, while a
//! pull request is opened and closed.

use coppice_test_support::{Options, Platform, psql, wait_for};
use serde_json::{Value, json};

use super::secrets::are_kept;
use super::{Github, PATIENCE, flags, restart, wait_gone, wait_ready};
use crate::http::text_of;
use crate::setup::{PROGRAM, arm, options};

/// A process that takes up what the one before left ends at a place.
fn end_at(platform: &mut Platform, place: &str) {
    arm(platform, place);
    platform.spawn();
    platform.wait_end();
}

/// Every delivery came through, and all that follows from them is done.
fn settle(platform: &Platform, github: &mut Github) {
    wait_for("nothing is to be delivered or done", PATIENCE, || {
        let attempts = github.program.command(&json!({ "command": "attempts" }));
        let came = |tries: &Value| tries.as_array().is_some_and(|tries| tries.contains(&json!(200)));
        let waits = "select count(*) from github_pulls where due_at is not null";
        let is_done = psql(&platform.metastore_url(), waits).out == "0";
        (is_done && attempts.as_array()?.iter().all(came)).then_some(())
    });
}

/// Where an address leads, of whichever process it is: each listens elsewhere.
fn path(address: &Value) -> String {
    let address = text_of(address);
    address.find("/console").map_or_else(String::new, |at| address[at..].to_owned())
}

/// What GitHub was told of a pull request: how many comments, what checks and deployments have come to, and where
/// they lead.
fn told(github: &mut Github, pull: i64) -> Value {
    let count = github.comments(pull).len();
    let mut deployments = github.deployments(pull);
    for one in deployments.as_array_mut().expect("deployments") {
        one[2] = json!(path(&one[2]));
    }
    let checks: Vec<_> = github
        .checks(pull)
        .iter()
        .map(|check| json!([check["conclusion"], path(&check["details_url"])]))
        .collect();
    json!([count, checks, deployments])
}

/// How many branches of a pull request there are, and in the trash.
fn counts(platform: &Platform, pull: i64) -> [usize; 2] {
    let name = json!(format!("pr-{pull}"));
    let count = |listed: &Value| {
        listed["branches"].as_array().expect("branches").iter().filter(|one| one["name"] == name).count()
    };
    [count(&platform.cli(&["branch", "list"])), count(&platform.cli(&["trash", "list"]))]
}

#[test]
fn a_pull_request_has_one_branch_and_is_told_of_once_although_the_platform_is_killed_at_every_step() {
    let mut github = Github::start();
    let directory = tempfile::tempdir().expect("a directory");
    let flags = flags(&github, directory.path());
    let mut platform = Platform::start(PROGRAM, Options { flags, ..options() });
    let shop = github.ask("GET", "/repos/octocat/shop", Value::Null)["id"].to_string();
    platform.cli(&["github", "link", "100", "--code", &github.code("octocat")]);
    platform.cli(&["github", "map", &shop, "--root", "main"]);

    arm(&mut platform, "github.delivery");
    restart(&mut platform, &mut github);
    let pull = github.open("killed");
    platform.wait_end();
    for place in ["github.claimed", "github.made"] {
        end_at(&mut platform, place);
        assert_eq!(told(&mut github, pull), json!([0, [], []]), "{place}");
    }
    end_at(&mut platform, "github.looked");
    let before = told(&mut github, pull);
    arm(&mut platform, "");
    restart(&mut platform, &mut github);
    let made = wait_ready(&platform, &mut github, pull);
    settle(&platform, &mut github);
    assert_eq!(counts(&platform, pull), [1, 0]);
    let place = path(&github.checks(pull)[0]["details_url"]);
    assert!(place.contains(&text_of(&made["id"])), "{place}");
    let after = json!([1, [["success", place]], [[github.commit(pull), "success", place]]]);
    assert_eq!(
        [&before, &told(&mut github, pull)],
        [&after, &after],
        "what was told is found, not told again"
    );
    platform = are_kept(platform, &mut github, pull, &made);

    arm(&mut platform, "github.stored");
    restart(&mut platform, &mut github);
    github.set_state(pull, "closed");
    platform.wait_end();
    end_at(&mut platform, "github.deleted");
    arm(&mut platform, "");
    restart(&mut platform, &mut github);
    wait_gone(&platform, &mut github, pull);
    settle(&platform, &mut github);
    assert_eq!(counts(&platform, pull), [0, 1]);
    let over = json!([1, [["success", place]], [[github.commit(pull), "inactive", ""]]]);
    assert_eq!(told(&mut github, pull), over);
}
