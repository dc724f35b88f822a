//! A branch that is not there yet, or not in order, is nobody's parent.

use std::time::Duration;

use coppice_test_support::{Options, Platform, Signal, signal, wait_for};
use serde_json::{Value, json};

use crate::branches::{data_of, path};
use crate::http::{Http, text_of};
use crate::setup::{PROGRAM, options};

const PATIENCE: Duration = Duration::from_secs(120);

fn wait_status(http: &Http, branch: &str, wanted: &str) {
    let told = || http.get(branch).expect(200)["status"]["status"] == wanted;
    wait_for(wanted, PATIENCE, || told().then_some(()));
}

/// Asks for a child of a branch that can have none now, and expects that there
/// is none.
#[track_caller]
fn is_refused(http: &Http, branches: &str, parent: &Value) {
    let body = json!({ "name": "too early", "mode": "inherit", "parentID": parent });
    let before = http.get(branches).expect(200)["branches"].as_array().map(Vec::len);
    let message = http.post(branches, &body).expect_error(412, "parent_not_ready");
    assert_eq!(message, format!("parent branch {} is not ready", text_of(parent)));
    assert_eq!(http.get(branches).expect(200)["branches"].as_array().map(Vec::len), before);
}

/// A platform that answers a creation before the branch is there.
fn hasty() -> Http {
    let flags = ["--branch-create-wait", "0"].map(str::to_owned).to_vec();
    Http::new(Platform::start(PROGRAM, Options { flags, ..options() }))
}

#[test]
fn a_branch_that_is_being_made_or_failed_is_no_parent() {
    let http = hasty();
    let main = path(&http.platform, "main");
    http.wait_healthy(&main);
    let (branches, main_id) = main.rsplit_once('/').expect("a path");
    http.with("PATCH", &main, &json!({ "hibernate": true })).expect(200);
    wait_status(&http, &main, "Hibernated");
    // A copy without this file never starts.
    std::fs::remove_file(data_of(&http.platform, "main").join("PG_VERSION")).expect("a file");
    let body = json!({ "name": "kid", "mode": "inherit", "parentID": main_id });
    // A branch that sleeps is a parent like any other.
    let kid = http.post(branches, &body).expect(201)["id"].clone();
    let kid_path = format!("{branches}/{}", text_of(&kid));
    assert_eq!(http.get(&kid_path).expect(200)["status"]["status"], "Creating");
    is_refused(&http, branches, &kid);
    wait_status(&http, &kid_path, "Failed");
    is_refused(&http, branches, &kid);
}

#[test]
fn a_branch_is_no_parent_while_it_changes() {
    let http = hasty();
    let main = path(&http.platform, "main");
    http.wait_healthy(&main);
    let (branches, id) = main.rsplit_once('/').expect("a path");
    let server = http.platform.postmaster(id);
    // It is not restarted as long as it does not stop.
    signal(server, Signal::STOP).expect("a signal");
    let change = json!({ "postgresConfigurationParameters": { "shared_buffers": "64MB" } });
    http.with("PATCH", &main, &change).expect(200);
    assert_eq!(http.get(&main).expect(200)["status"]["status"], "Updating");
    is_refused(&http, branches, &json!(id));
    signal(server, Signal::CONT).expect("a signal");
    http.wait_healthy(&main);
    let body = json!({ "name": "in time", "mode": "inherit", "parentID": id });
    http.post(branches, &body).expect(201);
}
