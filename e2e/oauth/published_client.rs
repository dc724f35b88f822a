//! The published client signs in by itself.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::browser::Browser;
use super::shared;

#[test]
fn the_published_client_signs_in_and_renews_its_token() {
    let http = shared();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/sdk");
    assert!(directory.join("node_modules").exists(), "the client is missing: run `make setup`");
    // It knows its realm, whatever the operator calls the first one.
    let issuer = format!("{}/realms/other", http.platform.api());
    let mut node = Command::new("node")
        .arg("sign-in.mjs")
        .current_dir(directory)
        .env("COPPICE_URL", http.platform.api())
        .env("COPPICE_ISSUER", issuer)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node runs");
    let mut lines = BufReader::new(node.stdout.take().expect("standard output")).lines();
    let mut next = || lines.next().and_then(Result::ok).unwrap_or_default();
    let said: Value = serde_json::from_str(&next()).expect("what a person is shown");
    let typed = [("user_code", said["code"].as_str().expect("a code"))];
    let mut browser = Browser::signed_in(&http);
    let page = browser.get(said["address"].as_str().expect("an address"));
    let page = browser.submit(&page, &typed);
    assert_eq!(browser.submit(&page, &[("answer", "allow")]).title(), "Device connected");
    let last = next();
    assert!(node.wait().expect("it ends").success(), "{last}");
    assert_eq!(last, "signed in");
}
