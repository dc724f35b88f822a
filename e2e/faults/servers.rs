//! Servers that are stuck, and a metastore that dies.

use coppice_test_support::{Leftovers, Signal, psql, signal, wait_for};
use serde_json::json;

use super::{PATIENCE, answer, change, describe, make_sleepy, path, refusal, status, wait_for_status};
use crate::setup::platform;

/// Every process of a server, the postmaster first.
fn processes(postmaster: u32) -> Vec<u32> {
    let children =
        std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).expect("a process");
    let children = children.split_whitespace().map(|pid| pid.parse().expect("a pid"));
    std::iter::once(postmaster).chain(children).collect()
}

#[test]
fn a_stuck_server_holds_up_nobody_else_and_can_be_put_to_sleep() {
    let mut coppice = platform();
    coppice.cli(&["branch", "create", "other", "--parent", "main"]);
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    let main = path(&coppice, "main");
    make_sleepy(&coppice, &main, 60);
    let url = coppice.connection_string("main");
    let postmaster = coppice.postmaster(&coppice.branch_id("main"));
    for pid in processes(postmaster) {
        // It may have ended by itself.
        let _ = signal(pid, Signal::STOP);
    }

    assert_eq!(describe(&coppice, &main)["name"], "main");
    assert_eq!(coppice.cli(&["branch", "list"])["branches"].as_array().map(Vec::len), Some(2));
    assert_eq!(coppice.sql("other", "SELECT 1"), "1");
    coppice.cli(&["branch", "create", "third", "--parent", "other"]);
    assert_eq!(coppice.sql("third", "SELECT 1"), "1");
    let (code, message) = refusal(&url);
    assert_eq!((code.as_str(), message.as_str()), ("57P03", "the startup took too long"));

    change(&coppice, &main, &json!({ "hibernate": true }));
    assert_eq!(coppice.sql("other", "SELECT 1"), "1", "while the stuck one is ended");
    wait_for_status(&coppice, &main, "STATUS_TYPE_HIBERNATED");
    assert!(!std::path::Path::new(&format!("/proc/{postmaster}/cwd")).exists(), "its server is gone");
    assert_eq!(answer(&coppice, "main", "SELECT i FROM t"), "7", "a connection wakes it");
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

#[test]
#[ignore = "takes long, see `make long`"]
fn many_stuck_servers_hold_up_nobody_else_either() {
    let coppice = platform();
    // More than are worked on at the same time.
    let names: Vec<_> = (0..9).map(|number| format!("stuck-{number}")).collect();
    for name in &names {
        coppice.cli(&["branch", "create", name, "--parent", "main"]);
    }
    let paths: Vec<_> = names.iter().map(|name| path(&coppice, name)).collect();
    let stuck: Vec<_> =
        names.iter().flat_map(|name| processes(coppice.postmaster(&coppice.branch_id(name)))).collect();
    for pid in stuck {
        let _ = signal(pid, Signal::STOP);
    }
    paths.iter().for_each(|path| change(&coppice, path, &json!({ "hibernate": true })));

    coppice.cli(&["branch", "create", "new", "--parent", "main"]);
    assert_eq!(coppice.sql("new", "SELECT 1"), "1");
    let is_asleep = |path: &String| status(&coppice, path) == "STATUS_TYPE_HIBERNATED";
    assert!(!paths.iter().any(is_asleep), "they are still being ended");
}

#[test]
fn a_killed_metastore_comes_back_and_nothing_is_forgotten() {
    let mut coppice = platform();
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    let url = coppice.connection_string("kid");
    let metastore = coppice.metastore_postmaster();
    signal(metastore, Signal::KILL).expect("a signal");
    wait_for("the metastore is back", PATIENCE, || {
        (coppice.metastore_postmaster() != metastore).then_some(())
    });
    wait_for("the API answers", PATIENCE, || {
        let (status, list) = coppice.call("GET", "/organizations/{org}/projects", None);
        (status == 200 && list["projects"].as_array().is_some_and(|list| list.len() == 1)).then_some(())
    });
    wait_for("clients are served", PATIENCE, || psql(&url, "SELECT 1").is_ok.then_some(()));
    let names = coppice.cli(&["branch", "list"]);
    assert_eq!(names["branches"].as_array().map(Vec::len), Some(2));
    coppice.cli(&["branch", "delete", "kid", "--yes"]);
    crate::orphans::wait_until_explained(&coppice);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}
