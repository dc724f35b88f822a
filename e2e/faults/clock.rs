//! Times in the metastore that the clock does not agree with, as after it was
//! set.

use std::time::Duration;

use coppice_test_support::{Platform, psql, wait_for};

use super::{make_sleepy, path, status};
use crate::setup::platform;

/// Sets when a branch was last used, seen from now.
fn set_idle_since(coppice: &Platform, branch: &str, from_now: &str) {
    let url = coppice.metastore_url();
    let id = coppice.branch_id(branch);
    let said = psql(
        &url,
        &format!(
            "UPDATE branches SET idle_since = now() + interval '{from_now}',
                 created_at = now() + interval '{from_now}'
             WHERE id = '{id}'"
        ),
    );
    assert_eq!(said.out, "UPDATE 1", "{}", said.err);
}

#[test]
#[ignore = "takes long, see `make long`"]
fn a_branch_from_the_future_falls_asleep_and_one_from_the_past_is_not_cut_off() {
    let coppice = platform();
    coppice.cli(&["branch", "create", "used", "--parent", "main"]);
    let paths = ["main", "used"].map(|name| path(&coppice, name));
    paths.iter().for_each(|path| make_sleepy(&coppice, path, 1));
    set_idle_since(&coppice, "main", "1 year");
    set_idle_since(&coppice, "used", "-1 year");
    let url = coppice.connection_string("used");
    let answer = std::thread::scope(|scope| {
        // Longer than the minute after which the other one sleeps.
        let client = scope.spawn(|| psql(&url, "SELECT pg_sleep(85)"));
        wait_for("the branch from the future sleeps", Duration::from_secs(120), || {
            (status(&coppice, &paths[0]) == "STATUS_TYPE_HIBERNATED").then_some(())
        });
        assert_eq!(status(&coppice, &paths[1]), "STATUS_TYPE_HEALTHY");
        client.join().expect("a client")
    });
    assert!(answer.is_ok, "its session was not cut: {}", answer.err);
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
}
