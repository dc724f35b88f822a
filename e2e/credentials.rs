//! Passwords of branches: what the API says is what the server takes, whoever
//! changes it, and wherever a rotation is interrupted.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use coppice_test_support::{Options, Platform, Signal, psql, wait_for};
use serde_json::{Value, json};

use crate::branches::{change, describe, hibernate, path, status, wait_for_status};
use crate::http::{Http, text_of};
use crate::setup::{PROGRAM, arm, every_release, fixed_gateway, options, platform};

const PATIENCE: Duration = Duration::from_secs(60);
const MAJORS: [&str; 4] = ["15", "16", "17", "18"];

pub(crate) fn rotate(coppice: &Platform, path: &str) {
    let body = json!({ "username": "app" });
    let (status, answer) = coppice.call("POST", &format!("{path}/credentials/rotate"), Some(&body));
    assert_eq!(status, 204, "{answer}");
}

/// The connection string as the API says it now; none when it knows none.
pub(crate) fn url(coppice: &Platform, path: &str) -> Option<String> {
    let (status, answer) = coppice.call("GET", &format!("{path}/credentials"), None);
    match status {
        200 => Some(text_of(&answer["connectionString"])),
        404 => {
            assert_eq!(answer["id"], "credentials_not_found", "{answer}");
            None
        }
        other => panic!("{other}: {answer}"),
    }
}

pub(crate) fn is_refused(url: &str) -> bool {
    psql(url, "SELECT 1").err.contains("password authentication failed")
}

/// Waits until the API knows a password that it did not know before.
pub(crate) fn wait_for_new(coppice: &Platform, path: &str, before: &str) -> String {
    wait_for("another password", PATIENCE, || url(coppice, path).filter(|now| now != before))
}

fn signal_server(coppice: &Platform, branch: &str, signal: Signal) {
    let postmaster = coppice.postmaster(&coppice.branch_id(branch));
    let path = format!("/proc/{postmaster}/task/{postmaster}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    let children = children.split_whitespace().map(|pid| pid.parse().expect("a pid"));
    for pid in std::iter::once(postmaster).chain(children) {
        // It may have ended by itself.
        let _ = coppice_test_support::signal(pid, signal);
    }
}

/// One whole rotation, as those see it who are signed in, and those who come.
fn rotates_for_whoever_comes(coppice: &Platform, branch: &str) {
    let path = path(coppice, branch);
    let before = url(coppice, &path).expect("a password");
    let mut session = Command::new("psql")
        .args([&before, "-XAtq"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("psql runs");
    let mut said = BufReader::new(session.stdout.take().expect("a pipe"));
    let mut ask = |sql: &str| {
        writeln!(session.stdin.as_mut().expect("a pipe"), "{sql};").expect("it listens");
        let mut line = String::new();
        said.read_line(&mut line).expect("an answer");
        line.trim().to_owned()
    };
    assert_eq!(ask("SELECT 1"), "1");

    let began = Instant::now();
    rotate(coppice, &path);
    let after = wait_for_new(coppice, &path, &before);
    assert!(is_refused(&before));
    assert_eq!(psql(&after, "SELECT 2").out, "2");
    assert_eq!(ask("SELECT 3"), "3", "it was open before, {:?} ago", began.elapsed());
    drop(session.stdin.take());
    session.wait().expect("psql ends");

    let verifier = "SELECT rolpassword FROM pg_authid WHERE rolname = 'app'";
    assert!(psql(&coppice.superuser_url(branch), verifier).out.starts_with("SCRAM-SHA-256$4096:"));
    let password = after.split([':', '@']).nth(2).expect("a password");
    assert!(password.len() == 32 && password.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{password}");
    let log = coppice.log();
    assert!(!log.contains(password) && !log.contains("SCRAM-SHA-256$"), "{log}");
    let shown = psql(
        &after,
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%SCRAM%' AND pid <> pg_backend_pid()",
    );
    assert_eq!(shown.out, "0", "nobody sees the statement that set it");
}

#[test]
fn a_rotation_changes_the_password_and_leaves_open_sessions_alone() {
    let coppice = every_release();
    for major in MAJORS {
        let name = format!("v{major}");
        coppice.cli(&["branch", "create", &name, "--image", &format!("postgres:{major}")]);
        rotates_for_whoever_comes(&coppice, &name);
    }
}

#[test]
fn what_a_rotation_is_asked_with_is_checked() {
    let flags = ["--user-aliases", "owner,boss"].map(str::to_owned).to_vec();
    let http = Http::new(Platform::start(PROGRAM, Options { flags, ..options() }));
    let main = path(&http.platform, "main");
    let id = http.platform.branch_id("main");
    let rotation = format!("{main}/credentials/rotate");
    http.post(&rotation, &json!({})).expect_error(400, "missing_field");
    http.post(&rotation, &json!({ "username": null })).expect_error(400, "missing_field");
    http.post(&rotation, &json!({ "username": 7 })).expect_error(400, "invalid_field");
    for stranger in ["postgres", "platform", "", "app.", "app.other", "App"] {
        let refused = http.post(&rotation, &json!({ "username": stranger }));
        assert_eq!(refused.status, 400, "{stranger:?}: {}", refused.text());
    }
    let message = http.post(&rotation, &json!({ "username": "bob" })).expect_error(400, "invalid_username");
    assert_eq!(message, "only the user app is managed");
    http.get(&format!("{main}/credentials?username=bob")).expect_error(400, "invalid_username");
    let nowhere = rotation.replace(&id, "nowhere");
    http.post(&nowhere, &json!({ "username": "bob" })).expect_error(404, "branch_not_found");
    http.send(http.request("POST", &rotation).body("{}").header("content-type", "text/plain"))
        .expect_error(415, "unsupported_media_type");
    http.send(http.request("POST", &rotation).body("[")).expect_error(400, "invalid_json");

    for name in ["app".to_owned(), format!("app.{id}"), "owner".to_owned(), "boss".to_owned()] {
        let answer = http.post(&rotation, &json!({ "username": name }));
        assert_eq!((answer.status, answer.bytes.len()), (204, 0), "{name}");
        assert_eq!(answer.header("content-type"), "");
        http.get(&format!("{main}/credentials?username={name}")).expect(200);
    }
    // A repetition is answered, and rotates nothing.
    let before = url(&http.platform, &main);
    let repeatable = || {
        let request = http.request("POST", &rotation).json(&json!({ "username": "app" }));
        http.send(request.header("idempotency-key", "once"))
    };
    assert_eq!(repeatable().status, 204);
    let after = url(&http.platform, &main);
    assert_ne!(before, after);
    assert_eq!(repeatable().header("idempotency-replayed"), "true");
    assert_eq!(url(&http.platform, &main), after);

    let organization = http.organization().to_owned();
    assert!(http.platform.run(&["admin", "org", "disable", &organization]).status.success());
    let refused = http.post(&rotation, &json!({ "username": "app" }));
    refused.expect_error(403, "organization_disabled");
    http.get(&format!("{main}/credentials")).expect(200);
}

#[test]
fn twenty_rotations_at_once_leave_one_password_that_works_at_every_moment() {
    let http = Http::new(platform());
    let main = path(&http.platform, "main");
    let first = url(&http.platform, &main).expect("a password");
    let requests = || {
        let rotation = format!("{main}/credentials/rotate");
        (0..20).map(|_| http.request("POST", &rotation).json(&json!({ "username": "app" }))).collect()
    };
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut signed_in = 0;
                    // A password may be replaced each time before it is used, and whoever comes too late too often
                    // has to wait; the last one is not.
                    while signed_in == 0 || !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        let said = url(&http.platform, &main).expect("a password");
                        let tried = psql(&said, "SELECT 1");
                        if tried.is_ok {
                            signed_in += 1;
                        } else if !tried.err.contains("too many failed sign-ins") {
                            // Only because it was replaced between the two.
                            assert!(tried.err.contains("password authentication failed"), "{}", tried.err);
                            assert_ne!(url(&http.platform, &main), Some(said), "it does not work");
                        }
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            for answer in http.send_together(requests()) {
                assert_eq!(answer.status, 204, "{}", answer.text());
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        for client in clients {
            client.join().expect("a client that signed in");
        }
    });
    let last = url(&http.platform, &main).expect("a password");
    // Whoever came too late too often has to wait.
    wait_for("the last one works", PATIENCE, || psql(&last, "SELECT 1").is_ok.then_some(()));
    wait_for("the first one is refused", PATIENCE, || is_refused(&first).then_some(()));
}

#[test]
fn a_sleeping_branch_takes_its_new_password_at_once_and_is_not_woken() {
    let coppice = platform();
    let main = path(&coppice, "main");
    change(&coppice, &main, &json!({ "scaleToZero": { "enabled": true } }));
    coppice.sql("main", "CREATE ROLE ada LOGIN PASSWORD 'ada'");
    let first = url(&coppice, &main).expect("a password");
    hibernate(&coppice, &main);
    rotate(&coppice, &main);
    let second = url(&coppice, &main).expect("a password");
    rotate(&coppice, &main);
    let third = url(&coppice, &main).expect("a password");
    assert!(first != second && second != third);
    assert!(is_refused(&first) && is_refused(&second));
    assert_eq!(status(&coppice, &main), "STATUS_TYPE_HIBERNATED", "nobody was let in");
    assert_eq!(psql(&third, "SELECT 1").out, "1", "it wakes the branch");
    assert!(is_refused(&first) && is_refused(&second));
    let as_ada =
        third.replace("app.", "ada.").replacen(third.split([':', '@']).nth(2).unwrap_or_default(), "ada", 1);
    assert_eq!(psql(&as_ada, "SELECT 1").out, "1", "other roles keep theirs");
    hibernate(&coppice, &main);
    assert_eq!(psql(&third, "SELECT 1").out, "1");
}

#[test]
fn a_branch_that_is_being_made_takes_its_new_password_before_anybody_is_let_in() {
    let flags = ["--branch-create-wait", "0"].map(str::to_owned).to_vec();
    let http = Http::new(Platform::start(PROGRAM, Options { flags, ..options() }));
    let project = http.new_project("made");
    let configuration = json!({ "region": "local", "instanceType": "micro", "image": "postgres:17" });
    for number in 0..8 {
        let body = json!({ "name": number.to_string(), "mode": "custom", "configuration": configuration });
        let made = http.post(&format!("{project}/branches"), &body).expect(201);
        let branch = format!("{project}/branches/{}", text_of(&made["id"]));
        let first = url(&http.platform, &branch).expect("a password");
        // At different moments of its creation.
        std::thread::sleep(Duration::from_millis(number * 15));
        rotate(&http.platform, &branch);
        http.wait_healthy(&branch);
        let second = wait_for_new(&http.platform, &branch, &first);
        assert_eq!(psql(&second, "SELECT 1").out, "1");
        assert!(is_refused(&first));
    }
}

#[test]
fn rotations_between_sleep_and_wake_lose_nobody() {
    let coppice = platform();
    let main = path(&coppice, "main");
    change(&coppice, &main, &json!({ "scaleToZero": { "enabled": true } }));
    let mut before = url(&coppice, &main).expect("a password");
    for round in 0..12 {
        change(&coppice, &main, &json!({ "hibernate": round % 2 == 0 }));
        std::thread::sleep(Duration::from_millis(round * 7));
        rotate(&coppice, &main);
        let after = wait_for_new(&coppice, &main, &before);
        wait_for("the new one works", PATIENCE, || {
            let now = url(&coppice, &main).expect("a password");
            (psql(&now, "SELECT 1").out == "1").then_some(())
        });
        assert!(is_refused(&before), "round {round}");
        before = after;
    }
}

#[test]
fn a_server_that_hangs_is_told_later_and_keeps_its_password_until_then() {
    let coppice = platform();
    let main = path(&coppice, "main");
    let before = url(&coppice, &main).expect("a password");
    signal_server(&coppice, "main", Signal::STOP);
    rotate(&coppice, &main);
    let noted = psql(&coppice.metastore_url(), "SELECT next_verifier FROM branches").out;
    rotate(&coppice, &main);
    assert_eq!(url(&coppice, &main).as_ref(), Some(&before));
    wait_for("it is tried in vain", PATIENCE, || {
        coppice.log().contains("can't be given its new password").then_some(())
    });
    assert_eq!(status(&coppice, &main), "STATUS_TYPE_HEALTHY", "that is no failure of the branch");
    signal_server(&coppice, "main", Signal::CONT);
    let after = wait_for_new(&coppice, &main, &before);
    assert_eq!(psql(&after, "SELECT 1").out, "1");
    assert!(is_refused(&before));
    let has = psql(&coppice.superuser_url("main"), "SELECT rolpassword FROM pg_authid WHERE rolname = 'app'");
    assert_ne!(has.out, noted, "somebody may know what was to be in force before the second was asked for");

    // One that is put to sleep meanwhile has the new one when it wakes.
    signal_server(&coppice, "main", Signal::STOP);
    rotate(&coppice, &main);
    hibernate(&coppice, &main);
    let last = wait_for_new(&coppice, &main, &after);
    change(&coppice, &main, &json!({ "hibernate": false }));
    wait_for_status(&coppice, &main, "STATUS_TYPE_HEALTHY");
    assert_eq!(psql(&last, "SELECT 1").out, "1");
    assert!(is_refused(&after));
}

#[test]
fn a_password_set_by_sql_is_its_owners_secret_until_the_next_rotation() {
    let coppice = platform();
    let main = path(&coppice, "main");
    let before = url(&coppice, &main).expect("a password");
    coppice.sql("main", "ALTER ROLE app PASSWORD 'chosen'");
    let (status, answer) = coppice.call("GET", &format!("{main}/credentials"), None);
    assert_eq!((status, &answer["id"]), (404, &json!("credentials_not_found")));
    assert_eq!(describe(&coppice, &main)["connectionString"], json!(null), "nor is it shown as it was");
    let message = text_of(&answer["message"]);
    assert!(message.starts_with("credentials not found") && message.contains("rotate"), "{message}");
    let chosen = before.replacen(before.split([':', '@']).nth(2).unwrap_or_default(), "chosen", 1);
    assert_eq!(psql(&chosen, "SELECT 1").out, "1", "it is honoured");

    hibernate(&coppice, &main);
    assert_eq!(url(&coppice, &main), None, "also while it sleeps");
    assert_eq!(describe(&coppice, &main)["connectionString"], json!(null));
    let shown = coppice.run(&["credentials", "show", "main"]);
    let said = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(shown.status.code() == Some(4) && said.contains("coppice credentials rotate"), "{said}");
    coppice.cli(&["branch", "wake", "main"]);
    assert_eq!(psql(&chosen, "SELECT 1").out, "1");
    let rotated = coppice.cli(&["credentials", "rotate", "main", "--yes"]);
    assert_eq!(psql(&text_of(&rotated["connectionString"]), "SELECT 1").out, "1");
    assert!(is_refused(&chosen));
    assert_eq!(coppice.cli(&["credentials", "show", "main"]), rotated);
    // One's own password of old means no more than any other.
    let late = psql(&coppice.superuser_url("main"), "ALTER ROLE app VALID UNTIL '2001-01-01'");
    assert!(late.is_ok, "{}", late.err);
    assert_eq!(url(&coppice, &main), None);
}

/// What the managed role may do.
const RIGHTS: [&str; 9] = [
    "CREATE DATABASE mine",
    "DROP DATABASE mine",
    "SELECT 1 / min(has_database_privilege(oid, 'CONNECT')::int) FROM pg_database WHERE datname ~ '^(postgres|template1)$'",
    "CREATE ROLE x",
    // No other role gets into the platform's database, or into the one that others are copies of.
    "SELECT 1 / min((NOT has_database_privilege('x', oid, 'CONNECT'))::int) FROM pg_database
     WHERE datname ~ '^(postgres|template1)$'",
    "DROP ROLE x",
    "CREATE SCHEMA s",
    "DROP SCHEMA s",
    "SELECT 1 / count(*) FROM pg_stat_activity WHERE usename = 'platform' OR query <> ''",
];

#[test]
fn a_rotation_brings_the_managed_role_back_whatever_happened_to_it() {
    let coppice = every_release();
    for major in MAJORS {
        let name = format!("v{major}");
        coppice.cli(&["branch", "create", &name, "--image", &format!("postgres:{major}")]);
        let branch = path(&coppice, &name);
        let deeds = [
            "ALTER ROLE app NOLOGIN NOCREATEDB NOCREATEROLE CONNECTION LIMIT 0 VALID UNTIL '2001-01-01'",
            "ALTER ROLE app PASSWORD NULL",
            "REVOKE CONNECT ON DATABASE app FROM PUBLIC, app",
            "CREATE ROLE heir; REASSIGN OWNED BY app TO heir; ALTER DATABASE app OWNER TO heir; \
             DROP OWNED BY app; DROP ROLE app",
            "ALTER ROLE app RENAME TO \"some body's\"",
        ];
        coppice.sql(&name, "CREATE TABLE t AS SELECT 7 AS i");
        for deed in deeds {
            let said = psql(&coppice.superuser_url(&name), deed);
            assert!(said.is_ok, "{major}: {deed}: {}", said.err);
            rotate(&coppice, &branch);
            let now = wait_for("a password", PATIENCE, || url(&coppice, &branch));
            let said = psql(&now, "INSERT INTO t VALUES (8); SELECT min(i) FROM t");
            assert_eq!(said.out.lines().last(), Some("7"), "{major} after {deed}: {}", said.err);
            for may in RIGHTS {
                let said = psql(&now, may);
                assert!(said.is_ok, "{major} after {deed}: {may}: {}", said.err);
            }
        }
    }
}

/// How many rotations have not come to an end.
fn unfinished(coppice: &Platform) -> String {
    psql(
        &coppice.metastore_url(),
        "SELECT count(*) FROM branches WHERE next_verifier IS NOT NULL OR role_pending AND state = 'ready'",
    )
    .out
}

#[test]
fn an_abort_at_any_step_of_a_rotation_is_made_up_for() {
    let flags = fixed_gateway().to_vec();
    let mut coppice = Platform::prepare(PROGRAM, Options { flags, ..options() });
    coppice.spawn();
    coppice.wait_ready();
    let main = path(&coppice, "main");
    change(&coppice, &main, &json!({ "scaleToZero": { "enabled": true } }));
    let call = |coppice: &Platform, method: &str, path: &str, body: Value| {
        // The process may end in the middle of it.
        let _ = coppice.client().call(method, path, Some(&body));
    };
    let rotation = format!("{main}/credentials/rotate");
    for step in [
        "rotation.noted",
        "rotation.told",
        "rotation.done",
        "rotation.asleep",
        "rotation.pending_told",
        "rotation.pending_done",
    ] {
        let before = wait_for("a password", PATIENCE, || url(&coppice, &main));
        assert_eq!(psql(&before, "SELECT 1").out, "1", "before {step}");
        coppice.kill();
        arm(&mut coppice, step);
        coppice.spawn();
        coppice.wait_ready();
        wait_for_status(&coppice, &main, "STATUS_TYPE_HEALTHY");
        match step {
            "rotation.asleep" => {
                signal_server(&coppice, "main", Signal::STOP);
                call(&coppice, "POST", &rotation, json!({ "username": "app" }));
                call(&coppice, "PATCH", &main, json!({ "hibernate": true }));
            }
            "rotation.pending_told" | "rotation.pending_done" => {
                hibernate(&coppice, &main);
                call(&coppice, "POST", &rotation, json!({ "username": "app" }));
                call(&coppice, "PATCH", &main, json!({ "hibernate": false }));
            }
            _ => call(&coppice, "POST", &rotation, json!({ "username": "app" })),
        }
        wait_for(step, PATIENCE, || coppice.has_ended().then_some(()));
        arm(&mut coppice, "");
        coppice.restart();
        let after = wait_for_new(&coppice, &main, &before);
        let sign_in = || Some(psql(&after, "SELECT 1")).filter(|said| said.is_ok);
        assert_eq!(wait_for("the new one works", PATIENCE, sign_in).out, "1", "{step}");
        assert!(is_refused(&before), "{step}");
        wait_for("the rotation ends", PATIENCE, || (unfinished(&coppice) == "0").then_some(()));
        assert_eq!(url(&coppice, &main), Some(after), "{step}");
    }
}

#[test]
fn a_child_has_a_password_of_its_own_whatever_happened_to_its_parents() {
    let coppice = platform();
    let main = path(&coppice, "main");
    coppice.sql("main", "ALTER ROLE app PASSWORD 'chosen'");
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    assert_eq!(coppice.sql("kid", "SELECT 1"), "1");
    assert_eq!(url(&coppice, &main), None);
    rotate(&coppice, &main);
    assert_eq!(coppice.sql("kid", "SELECT 1"), "1");
}
