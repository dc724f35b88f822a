//! Published serverless drivers on a branch, as they are.

use coppice_test_support::{Options, Platform};
use serde_json::json;

use crate::branches::{change, path};
use crate::node;
use crate::replicas::wait_whole;
use crate::setup::{PROGRAM, options};

const DOMAIN: &str = "db.example.test";

/// Runs the drivers; `environment` says where the branch is.
fn run(environment: &[(&str, &str)]) {
    let said = node::run("serverless", environment);
    assert!(said.contains("the drivers are content"), "{said}");
}

#[test]
fn published_serverless_drivers_work_as_they_are() {
    let flags = ["--gateway-domain", DOMAIN].map(str::to_owned).to_vec();
    let coppice = Platform::start(PROGRAM, Options { flags, ..options() });
    let url = coppice.connection_string("main");
    let (_, rest) = url.split_once("://app").expect("a URL of app");
    let (password, _) = rest.rsplit_once('@').expect("a password");
    let password = password.rsplit(':').next().expect("a password");
    let main = path(&coppice, "main");
    change(&coppice, &main, &json!({ "replicas": 1 }));
    wait_whole(&coppice, &main, 2);
    // It sleeps, and the first statement wakes it.
    coppice.cli(&["branch", "update", "main", "--scale-to-zero", "on"]);
    coppice.cli(&["branch", "hibernate", "main", "--yes"]);
    let id = coppice.branch_id("main");
    // A WebSocket to an address does not say by its host which branch it is for.
    let by_user = format!("postgres://app.{id}:{password}@localhost/app");
    let of_replicas = by_user.replace(&id, &format!("{id}-ro"));
    run(&[
        ("COPPICE_DATABASE", &by_user),
        ("COPPICE_REPLICAS", &of_replicas),
        ("COPPICE_HTTP", coppice.api()),
    ]);
    // Told nothing, they find the branch by names, over TLS.
    let by_name = format!("postgres://app:{password}@{id}.{DOMAIN}/app");
    let of_replicas = by_name.replace(&id, &format!("{id}-ro"));
    run(&[
        ("COPPICE_DATABASE", &by_name),
        ("COPPICE_REPLICAS", &of_replicas),
        ("COPPICE_API", coppice.api()),
        ("COPPICE_DOMAIN", DOMAIN),
        // Whose certificate it is is not what is looked at here.
        ("NODE_TLS_REJECT_UNAUTHORIZED", "0"),
    ]);
    assert!(password.len() > 10 && !coppice.log().contains(password));
}
