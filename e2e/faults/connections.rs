//! A branch whose connections are all taken.

use coppice_test_support::{Platform, psql};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use super::{change, describe, make_sleepy, path, refusal, status, wait_for_status, with_wrong_password};
use crate::setup::platform;

const CONNECTIONS: usize = 3;
/// Sessions that the platform may have open without taking them from users.
const PLATFORM_SESSIONS: usize = 3;
/// Connections that stay free for it.
const RESERVED: usize = 4;

/// Connects as the owner, past the gateway, until there is no connection left.
fn take_all(coppice: &Platform, branch: &str, runtime: &Runtime) -> Vec<Client> {
    let url = coppice.connection_string(branch);
    let (user, _) = url.rsplit_once('@').expect("a URL");
    let (_, password) = user.rsplit_once(':').expect("a password");
    let address = coppice.superuser_url(branch).replace("user=platform", "user=app");
    let address = format!("{address} password={password}");
    let mut clients = vec![];
    loop {
        assert!(clients.len() < 20, "there is no end to them");
        match runtime.block_on(tokio_postgres::connect(&address, NoTls)) {
            Ok((client, connection)) => {
                runtime.spawn(connection);
                clients.push(client);
            }
            Err(error) => {
                assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("53300"), "{error}");
                return clients;
            }
        }
    }
}

#[test]
fn when_all_connections_are_taken_the_platform_still_gets_in() {
    let mut coppice = platform();
    let configuration = json!({
        "region": "local",
        "instanceType": "micro",
        "image": "postgres:17",
        "postgresConfigurationParameters": { "max_connections": (CONNECTIONS + PLATFORM_SESSIONS + RESERVED).to_string() },
    });
    let body = json!({ "name": "busy", "mode": "custom", "configuration": configuration });
    let main = path(&coppice, "main");
    let (branches, _) = main.rsplit_once('/').expect("a path");
    let (made, answer) = coppice.call("POST", branches, Some(&body));
    assert_eq!(made, 201, "{answer}");
    let busy = path(&coppice, "busy");
    wait_for_status(&coppice, &busy, "STATUS_TYPE_HEALTHY");
    make_sleepy(&coppice, &busy, 60);
    coppice.sql("busy", "CREATE TABLE t AS SELECT 7 AS i");

    // No session of the platform is left over from before.
    coppice.restart();
    wait_for_status(&coppice, &busy, "STATUS_TYPE_HEALTHY");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let clients = take_all(&coppice, "busy", &runtime);
    let count = clients.len();
    assert!((CONNECTIONS..=CONNECTIONS + PLATFORM_SESSIONS).contains(&count), "{count} connections");

    let url = coppice.connection_string("busy");
    let (code, message) = refusal(&url);
    assert_eq!(code, "53300", "{message}");
    assert!(message.contains("reserved"), "PostgreSQL's own words: {message}");
    let (code, message) = refusal(&with_wrong_password(&url));
    assert_eq!(code, "28P01", "who it is, is asked before: {message}");
    assert_eq!(describe(&coppice, &busy)["status"]["statusType"], "STATUS_TYPE_HEALTHY");
    coppice.cli(&["branch", "create", "kid", "--parent", "busy"]);
    assert_eq!(coppice.sql("kid", "SELECT i FROM t"), "7", "a copy has none of its parent's sessions");

    change(&coppice, &busy, &json!({ "hibernate": true }));
    wait_for_status(&coppice, &busy, "STATUS_TYPE_HIBERNATED");
    // Its roles could be read, so a stranger does not wake it.
    assert_eq!(refusal(&with_wrong_password(&url)).0, "28P01");
    assert_eq!(status(&coppice, &busy), "STATUS_TYPE_HIBERNATED");
    assert_eq!(psql(&url, "SELECT i FROM t").out, "7");
    drop(clients);
}
