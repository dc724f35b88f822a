//! Branches that another control plane works on meanwhile.

use coppice_test_support::{psql, wait_for};
use serde_json::json;

use super::{PATIENCE, change, path, wait_for_status};
use crate::http::Http;
use crate::setup::platform;

/// How many branches this control plane says it fails to bring where they should be.
fn failing(http: &Http) -> Option<u32> {
    let page = http.send(http.anonymous("GET", "/metrics")).text();
    let mut lines = page.lines();
    lines.find_map(|line| line.strip_prefix("coppice_branches_failing "))?.parse().ok()
}

#[test]
fn a_failing_branch_that_another_control_plane_claims_is_taken_up_again_when_it_comes_back() {
    let http = Http::new(platform());
    let coppice = &http.platform;
    let main = path(coppice, "main");
    let metastore = |sql: &str| {
        let said = psql(&coppice.metastore_url(), sql);
        assert_eq!(said.out, "UPDATE 1", "{sql}: {}", said.err);
    };
    change(coppice, &main, &json!({ "hibernate": true }));
    wait_for_status(coppice, &main, "STATUS_TYPE_HIBERNATED");
    // No such release is installed, so its server can't be started.
    metastore("UPDATE branches SET image_minor = image_minor + 1000");
    change(coppice, &main, &json!({ "hibernate": false }));
    wait_for("it fails", PATIENCE, || (failing(&http) == Some(1)).then_some(()));

    metastore("UPDATE branches SET claim_token = claim_token + (1::bigint << 40)");
    wait_for("it fails here no longer", PATIENCE, || (failing(&http) == Some(0)).then_some(()));

    metastore("UPDATE branches SET image_minor = image_minor - 1000");
    // Nobody is told of that, so only the timer can find it.
    metastore("UPDATE branches SET claim_token = 0");
    wait_for_status(coppice, &main, "STATUS_TYPE_HEALTHY");
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
}
