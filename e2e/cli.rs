//! The command line as people and scripts use it.

use std::process::Output;

use coppice_test_support::Platform;

use crate::setup::platform;

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{}", out(output));
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// Runs a command with another key.
fn with_key(coppice: &Platform, key: &str, arguments: &[&str]) -> Output {
    coppice.run(&[arguments, &["--api-key", key]].concat())
}

#[test]
fn a_key_reaches_what_it_was_made_for_and_nothing_else() {
    let coppice = platform();
    let mine = coppice.cli(&["project", "create", "mine"])["id"].as_str().expect("an id").to_owned();
    let made = coppice.run(&[
        "key",
        "create",
        "ci",
        "--project",
        "mine",
        "--scope",
        "project:read",
        "--scope",
        "org:read",
    ]);
    let key = out(&made);
    assert!(key.starts_with("pko_") && !key.contains(char::is_whitespace), "the key alone: {key}");

    let list = with_key(&coppice, &key, &["project", "list", "--json"]);
    assert!(out(&list).contains(&mine) && !out(&list).contains("default"), "{}", out(&list));
    let refused = with_key(&coppice, &key, &["branch", "list", "--project", "mine"]);
    assert_eq!(refused.status.code(), Some(3));
    let why = complaint(&refused);
    assert!(why.contains("lacks the scope branch:read") && why.contains("coppice key create"), "{why}");

    let keys = coppice.cli(&["key", "list"]);
    assert_eq!(keys["keys"][0]["projects"][0], mine.as_str());
    assert!(coppice.run(&["key", "delete", "ci", "--yes"]).status.success());
    let ended = with_key(&coppice, &key, &["project", "list"]);
    assert_eq!((ended.status.code(), complaint(&ended).contains("check COPPICE_API_KEY")), (Some(3), true));
}

#[test]
fn names_that_mean_several_or_nothing_are_asked_about() {
    let coppice = platform();
    coppice.cli(&["project", "create", "twin"]);
    coppice.cli(&["project", "create", "twin"]);
    let ambiguous = coppice.run(&["project", "show", "twin"]);
    assert!(complaint(&ambiguous).contains("several are named twin; use an id instead: prj_"));
    let unknown = coppice.run(&["branch", "show", "nobody", "--project", "default"]);
    assert_eq!(unknown.status.code(), Some(4));
    assert!(complaint(&unknown).contains("coppice branch list"));
    let several = coppice.run(&["branch", "list"]);
    assert!(complaint(&several).contains("name one with --project"));
}

#[test]
fn the_life_of_everything_goes_through_the_command_line() {
    let coppice = platform();
    let organization = coppice.cli(&["org", "create", "Acme"]);
    assert_eq!(coppice.cli(&["org", "rename", "Acme", "Acme Ltd"])["name"], "Acme Ltd");
    let inside = ["--organization", "Acme Ltd"];
    assert!(coppice.run(&[&["project", "create", "shop"][..], &inside].concat()).status.success());
    let kept = coppice.run(&["org", "delete", "Acme Ltd", "--yes"]);
    assert!(complaint(&kept).contains("delete its projects first"));
    assert!(coppice.run(&[&["project", "delete", "shop", "--yes"][..], &inside].concat()).status.success());
    assert!(
        coppice
            .run(&["org", "delete", organization["id"].as_str().expect("an id"), "--yes"])
            .status
            .success()
    );
    assert_eq!(coppice.cli(&["user", "rename", "Ada"])["name"], "Ada");
    assert_eq!(coppice.cli(&["org", "limits"])["limits"]["maxProjects"], 100);

    let project = coppice.cli(&[
        "project",
        "update",
        "default",
        "--child-scale-to-zero",
        "on",
        "--allow",
        "127.0.0.0/8=here",
        "--ip-filtering",
        "on",
    ]);
    assert_eq!(project["configuration"]["scaleToZero"]["childBranches"]["enabled"], true);
    assert_eq!(project["configuration"]["scaleToZero"]["childBranches"]["inactivityPeriodMinutes"], 30);
    assert_eq!(project["configuration"]["ipFiltering"]["cidr"][0]["description"], "here");

    let tuned = coppice.cli(&[
        "branch",
        "create",
        "tuned",
        "--image",
        "postgres:17",
        "--parameter",
        "work_mem=9MB",
        "--preload",
        "auto_explain",
    ]);
    assert_eq!(tuned["configuration"]["preloadLibraries"], serde_json::json!(["auto_explain"]));
    assert_eq!(coppice.sql("tuned", "SHOW work_mem"), "9MB");
    coppice.cli(&["branch", "create", "kid", "--parent", "tuned", "--description", "PR 12"]);
    assert_eq!(coppice.sql("kid", "SHOW work_mem"), "9MB", "a child is tuned like its parent");
    assert!(out(&coppice.run(&["branch", "list", "--tree"])).contains("tuned\n└─ kid"));
    assert_eq!(coppice.cli(&["branch", "update", "kid", "--name", "kid/2"])["name"], "kid/2");
    assert_eq!(
        coppice.cli(&["branch", "hibernate", "kid/2"])["status"]["statusType"],
        "STATUS_TYPE_HIBERNATED"
    );
    assert_eq!(coppice.cli(&["branch", "wake", "kid/2"])["status"]["statusType"], "STATUS_TYPE_HEALTHY");

    let unasked = coppice.run(&["branch", "delete", "tuned", "kid/2"]);
    assert!(complaint(&unasked).contains("Say --yes"));
    assert_eq!(coppice.cli(&["branch", "list"])["branches"].as_array().expect("a list").len(), 3);
    assert!(coppice.run(&["branch", "delete", "tuned", "kid/2", "--yes"]).status.success());
    assert_eq!(coppice.cli(&["branch", "list"])["branches"].as_array().expect("a list").len(), 1);
}

#[test]
fn what_can_be_had_is_shown_in_tables() {
    let coppice = platform();
    for (command, expected) in [
        (&["region", "list"][..], "local"),
        (&["instance-type", "list"], "micro"),
        (&["image", "list"], "postgres:17"),
        (&["extension", "list", "postgres:17"], "pg_trgm"),
        (&["project", "limits", "default"], "branches made in an hour"),
        (&["org", "show"], "enabled"),
        (&["user", "show"], "admin@coppice.local"),
        (&["key", "list", "--user"], "admin"),
    ] {
        let output = coppice.run(command);
        assert!(out(&output).contains(expected), "{command:?}: {}", out(&output));
    }
    let script = std::process::Command::new(crate::setup::PROGRAM).args(["completions", "bash"]).output();
    assert!(out(&script.expect("it runs")).contains("instance-type"));
}
