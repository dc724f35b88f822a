//! The log.

use std::process::Command;

use coppice_test_support::{Options, Platform, Signal, psql, signal};
use serde_json::{Value, json};

use crate::http::{Http, text_of};
use crate::setup::{PROGRAM, options};

fn logging(flags: &[&str]) -> Http {
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    Http::new(Platform::start(PROGRAM, Options { flags, ..options() }))
}

/// The lines of a log of JSON; what is printed for people beside it is left out.
fn lines(http: &Http) -> Vec<Value> {
    let log = http.platform.log();
    let lines = log.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
}

#[test]
fn every_request_has_a_line_and_every_line_of_it_its_id() {
    let http = logging(&["--log-format", "json", "--log", "debug"]);
    let organization = http.organization().to_owned();
    let path = "/organizations/{org}?secret=of-the-query";
    let answer = http.send(http.request("GET", path).header("x-request-id", "mine-1"));
    answer.expect(200);
    http.send(http.anonymous("GET", "/user").header("x-request-id", "mine-2")).expect(401);
    http.send(http.request("POST", "/nowhere/at-all").header("x-request-id", "mine-3")).expect(404);

    let lines = lines(&http);
    let of = |id: &str| -> Vec<&Value> { lines.iter().filter(|line| line["request_id"] == id).collect() };
    for (id, method, route, status, caller) in [
        ("mine-1", "GET", "/organizations/{organizationID}", 200, "user"),
        ("mine-2", "GET", "/user", 401, "none"),
        ("mine-3", "POST", "unknown", 404, "none"),
    ] {
        let access: Vec<_> =
            of(id).into_iter().filter(|line| line["target"] == "coppice_api::access").collect();
        let [line] = access[..] else { panic!("not one line but {access:?}") };
        let seen = (&line["method"], &line["route"], &line["status"], &line["caller"], &line["level"]);
        let expected = (json!(method), json!(route), json!(status), json!(caller), json!("INFO"));
        assert_eq!(seen, (&expected.0, &expected.1, &expected.2, &expected.3, &expected.4));
        assert!(line["ms"].as_f64().is_some_and(|ms| (0.0..60_000.0).contains(&ms)), "{line}");
        assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
    }
    // A statement on the metastore, for the request that it was needed for.
    assert!(of("mine-1").len() > 1, "only its own line: {:?}", of("mine-1"));
    let log = http.platform.log();
    assert!(!log.contains("of-the-query") && !log.contains("at-all"), "what was sent is in the log");
    let access = lines.iter().filter(|line| line["target"] == "coppice_api::access");
    assert!(!access.map(Value::to_string).any(|line| line.contains(&organization)));
}

#[test]
fn a_fault_is_found_by_the_id_in_its_answer() {
    let http = logging(&["--log-format", "json"]);
    let stopped = http.platform.metastore_postmaster();
    signal(stopped, Signal::KILL).expect("a signal");
    let faulty = std::iter::repeat_with(|| http.get("/organizations")).take(2000).find(|it| it.status >= 500);
    let faulty = faulty.expect("a request meets the metastore that is gone");
    let message = text_of(&faulty.json()["message"]);
    let id = message.split("(request ").nth(1).and_then(|rest| rest.strip_suffix(')')).expect("an id");
    let lines = lines(&http);
    let cause = lines.iter().find(|line| line["request_id"] == id && line["level"] == "ERROR");
    assert!(
        cause.is_some_and(|line| line["message"].as_str().is_some_and(|text| text.contains("metastore")))
    );
}

#[test]
fn no_secret_reaches_the_log_at_any_level() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, "a-token-for-metrics-0123456789").expect("a file");
    let file = file.display().to_string();
    let http = logging(&["--log", "trace", "--metrics-token-file", &file]);
    let token = "a-token-for-metrics-0123456789";
    let made = http.new_token("/organizations/{org}/api-keys", json!({}));
    http.as_key(&made, "GET", "/organizations/{org}", None).expect(200);
    assert_eq!(http.send(http.anonymous("GET", "/metrics").bearer_auth(token)).status, 200);
    http.send(http.anonymous("GET", "/user").bearer_auth("pku_not_really_one_of_ours")).expect(401);
    // A page to sign in that is out of date: the password is read all the same.
    let people = http.platform.setting("COPPICE_PASSWORD").to_owned();
    let form = format!("email=admin&password={people}");
    let request = http.anonymous("POST", "/oauth/sign-in?next=/a-secret-of-the-query").body(form);
    http.send(request.header("content-type", "application/x-www-form-urlencoded"));
    let url = http.platform.connection_string("main");
    assert_eq!(psql(&url, "SELECT 'a-value-of-a-customer'").out, "a-value-of-a-customer");
    let password = url.split(':').nth(2).and_then(|rest| rest.split('@').next()).expect("a password");
    let said = psql(&url.replace(password, "a-password-that-was-tried"), "SELECT 1");
    assert!(!said.is_ok);
    http.platform.cli(&["branch", "create", "child", "--parent", "main", "--scale-to-zero", "on"]);
    http.platform.cli(&["branch", "hibernate", "child", "--yes"]);
    assert_eq!(http.platform.sql("child", "SELECT 2"), "2");

    let verifier = std::fs::read(http.platform.data_dir().join("secret.key")).expect("a key");
    let hex = verifier.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let log = http.platform.log();
    assert!(log.contains("TRACE") && log.contains("DEBUG"), "the log is as talkative as it can be");
    for secret in [
        http.admin(),
        &made,
        token,
        "pku_not_really_one_of_ours",
        password,
        &people,
        "a-secret-of-the-query",
        "a-password-that-was-tried",
        "a-value-of-a-customer",
        "SCRAM-SHA-256$",
        &hex,
    ] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "`{secret}` is in the log");
    }
}

#[test]
fn a_level_that_is_none_ends_the_start_with_an_example() {
    let output = Command::new(PROGRAM)
        .args(["serve", "--log", "coppice=loud", "--data-dir", "/nonexistent/coppice"])
        .output()
        .expect("the executable runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("`coppice=loud` is no level of the log: write for example debug"), "{said}");
}
