//! The metastore goes away.

use std::process::{Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Options, Platform, wait_for};

use crate::http::Http;
use crate::servers::OwnServer;
use crate::setup::{PROGRAM, options};

#[test]
fn without_a_metastore_the_service_is_unavailable_and_says_when_to_try_again() {
    let mut server = OwnServer::start();
    let flags = vec!["--metastore-url".to_owned(), server.url()];
    let http = Http::new(Platform::start(PROGRAM, Options { flags, ..options() }));
    // Connections that are open when it goes are told so in words of PostgreSQL's.
    http.send_together((0..8).map(|_| http.request("GET", "/organizations")).collect());
    server.stop();
    for answer in http.send_together((0..8).map(|_| http.request("GET", "/organizations")).collect()) {
        let message = answer.expect_error(503, "unavailable");
        let id = answer.header("x-request-id");
        assert_eq!(message, format!("service unavailable, try again later (request {id})"));
        assert_eq!(answer.header("retry-after"), "30");
    }
    http.send(http.anonymous("GET", "/readyz")).expect_error(503, "unavailable");
    http.send(http.anonymous("GET", "/healthz")).expect(200);
    server.start_again();
    let served = || {
        let answer = http.get("/organizations");
        assert!([200, 503].contains(&answer.status), "{} {}", answer.status, answer.text());
        (answer.status == 200).then_some(())
    };
    wait_for("it serves again", Duration::from_secs(60), served);
    http.send(http.anonymous("GET", "/readyz")).expect(200);
}

#[test]
fn a_request_that_loses_its_connection_may_be_tried_again() {
    let server = OwnServer::start();
    let flags = vec!["--metastore-url".to_owned(), server.url()];
    let http = Http::new(Platform::start(PROGRAM, Options { flags, ..options() }));
    // Holds every request where it looks up its key.
    let mut holder = Command::new("psql")
        .args([&server.conninfo(), "-XAtc", "BEGIN; LOCK TABLE api_keys; SELECT pg_sleep(600)"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("psql runs");
    let until = |what: &str, sql: &str| {
        wait_for(what, Duration::from_secs(60), || (server.sql(sql) != "0").then_some(()));
    };
    until("the table is locked", "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| http.get("/organizations"));
        let waiting = "FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        // What the platform does by itself may wait there, too, and before the request does.
        wait_for("the request has lost its connection", Duration::from_secs(60), || {
            server.sql(&format!("SELECT pg_terminate_backend(pid) {waiting}"));
            asked.is_finished().then_some(())
        });
        asked.join().expect("an answer")
    });
    let _ = holder.kill();
    let _ = holder.wait();
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    answer.expect_error(503, "unavailable");
    assert_eq!(answer.header("retry-after"), "30");
    http.get("/organizations").expect(200);
}
