//! Published serverless drivers on a branch, as they are.

use std::path::Path;
use std::process::{Command, Stdio};

use coppice_test_support::Platform;

use crate::setup::platform;

/// Runs the drivers; `environment` says where the branch is.
fn run(environment: &[(&str, &str)]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/serverless");
    assert!(directory.join("node_modules").exists(), "the drivers are missing: run `make setup`");
    let output = Command::new("node")
        .arg("run.mjs")
        .current_dir(directory)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("the drivers are content"), "{said}");
}

fn nothing_secret_is_logged(coppice: &Platform, url: &str) {
    let password = url.split([':', '@']).nth(2).expect("a password");
    assert!(password.len() > 10 && !coppice.log().contains(password));
}

#[test]
fn published_serverless_drivers_work_as_they_are() {
    let coppice = platform();
    let url = coppice.connection_string("main");
    // It sleeps, and the first statement wakes it.
    coppice.cli(&["branch", "update", "main", "--scale-to-zero", "on"]);
    coppice.cli(&["branch", "hibernate", "main", "--yes"]);
    run(&[("COPPICE_DATABASE", &url), ("COPPICE_HTTP", coppice.api())]);
    nothing_secret_is_logged(&coppice, &url);
}
