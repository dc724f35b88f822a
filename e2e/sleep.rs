//! Branches that sleep when nobody uses them, and wake when somebody does.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Platform, psql, wait_for};
use serde_json::{Value, json};

use crate::branches::{change, hibernate, path, status, wait_for_status};
use crate::budgets;
use crate::setup::{arm, platform, pooled_url};

const PATIENCE: Duration = Duration::from_secs(60);

fn sleepy() -> Value {
    json!({ "scaleToZero": { "enabled": true, "inactivityPeriodMinutes": 1 } })
}

#[test]
fn a_sleeping_branch_wakes_for_who_signs_in_and_for_nobody_else() {
    let coppice = platform();
    let main = path(&coppice, "main");
    change(&coppice, &main, &sleepy());
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i; CREATE ROLE ada LOGIN PASSWORD 'first'");
    // The last thing before it sleeps: it must be known while it sleeps.
    coppice.sql("main", "ALTER ROLE ada PASSWORD 'second'");
    let pid = coppice.postmaster(&coppice.branch_id("main"));
    let url = coppice.connection_string("main");
    hibernate(&coppice, &main);
    assert!(!std::path::Path::new(&format!("/proc/{pid}/cwd")).exists(), "its server is gone");

    let (_, rest) = url.split_once('@').expect("a URL");
    let id = coppice.branch_id("main");
    let as_ada = |password: &str| format!("postgresql://ada.{id}:{password}@{rest}");
    for stranger in [as_ada("first"), format!("postgresql://nobody.{id}:x@{rest}")] {
        let said = psql(&stranger, "SELECT 1");
        assert!(said.err.contains("password authentication failed"), "{}", said.err);
    }
    assert_eq!(status(&coppice, &main), "STATUS_TYPE_HIBERNATED", "strangers wake nothing");

    // Many at once are one wake, and none of them notices anything but time.
    let answers: Vec<_> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..16).map(|_| scope.spawn(|| psql(&url, "SELECT i FROM t"))).collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    for said in answers {
        assert_eq!(said.out, "7", "{}", said.err);
    }
    assert_eq!(psql(&as_ada("second"), "SELECT 1").out, "1");
    let (_, details) = coppice.call("GET", &main, None);
    let woken_by = details["status"]["message"].as_str().expect("a message");
    assert!(woken_by.contains("a connection of app from 127.0.0.1"), "{woken_by}");
    budgets::keeps_asleep(&coppice, &main, &url);
}

#[test]
fn a_child_of_a_sleeping_branch_is_made_without_waking_it() {
    let coppice = platform();
    let main = path(&coppice, "main");
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    hibernate(&coppice, &main);
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    assert_eq!(coppice.sql("kid", "SELECT i FROM t"), "7");
    assert_eq!(status(&coppice, &main), "STATUS_TYPE_HIBERNATED");

    // Its scale-to-zero is off, so a connection may not wake it; its owner may.
    let said = coppice.psql("main", "SELECT 1");
    assert!(said.err.contains("is not ready (hibernated)"), "{}", said.err);
    change(&coppice, &main, &json!({ "hibernate": false }));
    wait_for_status(&coppice, &main, "STATUS_TYPE_HEALTHY");
    assert_eq!(coppice.sql("main", "SELECT i FROM t"), "7");
}

/// Receives the WAL of a branch; gone with the value.
struct Receiver {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Receiver {
    fn start(coppice: &Platform, branch: &str) -> Self {
        let directory = coppice_test_support::directory("coppice-files-");
        let server = coppice.superuser_url(branch).replace(" dbname=app", "");
        let command = |more: &[&str]| {
            let mut command = Command::new("/usr/lib/postgresql/15/bin/pg_receivewal");
            command.args(["--dbname", &server, "--slot", "kept", "--directory"]).arg(directory.path());
            command.args(more).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        assert!(command(&["--create-slot"]).status().expect("pg_receivewal runs").success());
        let child = command(&[]).spawn().expect("pg_receivewal runs");
        Self { child, _directory: directory }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Clients of a pool that are connected and do nothing, each with a prepared
/// statement and a setting.
struct PooledClients {
    runtime: tokio::runtime::Runtime,
    clients: Vec<(tokio_postgres::Client, tokio_postgres::Statement)>,
}

impl PooledClients {
    fn connect(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let clients = runtime.block_on(async {
            let mut clients = vec![];
            for number in 0..3 {
                let (client, connection) =
                    tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("it connects");
                tokio::spawn(connection);
                client.batch_execute(&format!("SET shop.number = '{number}'")).await.expect("is set");
                let sql = "SELECT current_setting('shop.number') || $1";
                let statement = client.prepare(sql).await.expect("is prepared");
                clients.push((client, statement));
            }
            clients
        });
        Self { runtime, clients }
    }

    /// Has each of them ask something.
    fn ask(&mut self) {
        for (number, (client, statement)) in self.clients.iter().enumerate() {
            let asked = self.runtime.block_on(client.query_one(statement, &[&"!"]));
            let answer = asked.unwrap_or_else(|error| panic!("client {number}: {error:?}"));
            assert_eq!(answer.get::<_, String>(0), format!("{number}!"));
        }
    }
}

#[test]
fn a_branch_that_nobody_uses_goes_to_sleep_and_one_that_is_used_does_not() {
    let coppice = platform();
    let main = path(&coppice, "main");
    let old = ["--image", "postgres:15"];
    coppice.cli(&["branch", "create", "used", "--parent", "main"]);
    coppice.cli(&[&["branch", "create", "streamed"], &old[..]].concat());
    let (used, streamed) = (path(&coppice, "used"), path(&coppice, "streamed"));
    for branch in [&main, &used, &streamed] {
        change(&coppice, branch, &sleepy());
    }
    let url = coppice.connection_string("used");
    let mut pooled = PooledClients::connect(&pooled_url(&coppice, "main"));
    let receiver = Receiver::start(&coppice, "streamed");
    let (connected, answer) = std::thread::scope(|scope| {
        // Longer than the minute after which the other one sleeps.
        let client = scope.spawn(|| psql(&url, "SELECT pg_sleep(80)"));
        let asleep = wait_for("the unused branch sleeps", Duration::from_secs(120), || {
            (status(&coppice, &main) == "STATUS_TYPE_HIBERNATED").then(|| status(&coppice, &used))
        });
        wait_for("the slot is said to keep it awake", PATIENCE, || {
            let details = coppice.call("GET", &streamed, None).1;
            details["status"]["message"].as_str()?.contains("an active replication slot").then_some(())
        });
        drop(receiver);
        (asleep, client.join().expect("a client"))
    });
    assert_eq!(connected, "STATUS_TYPE_HEALTHY", "it has a client");
    assert!(answer.is_ok, "its session was not cut: {}", answer.err);
    pooled.ask();
    assert_eq!(status(&coppice, &main), "STATUS_TYPE_HEALTHY", "it wakes for a query");
    hibernate(&coppice, &main);
    pooled.ask();
    assert_eq!(coppice.sql("main", "SELECT 1"), "1", "it wakes for a client");
    wait_for_status(&coppice, &streamed, "STATUS_TYPE_HIBERNATED");
}

#[test]
fn clients_notice_nothing_of_a_branch_that_falls_asleep_again_and_again() {
    let coppice = platform();
    let main = path(&coppice, "main");
    change(&coppice, &main, &sleepy());
    let url = coppice.connection_string("main");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = 0;
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        // A session that is open when its owner puts the branch to sleep is cut;
                        // a connection that begins is not.
                        let said = psql(&url, "SELECT 1");
                        let is_cut = said.err.contains("terminating connection due to administrator command")
                            || said.err.contains("server closed the connection unexpectedly");
                        assert!(said.out == "1" || is_cut, "{}", said.err);
                        answers += 1;
                    }
                    answers
                })
            })
            .collect();
        for _ in 0..6 {
            change(&coppice, &main, &json!({ "hibernate": true }));
            wait_for("somebody woke it", PATIENCE, || {
                (status(&coppice, &main) == "STATUS_TYPE_HEALTHY").then_some(())
            });
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        for client in clients {
            assert!(client.join().expect("a client") > 0);
        }
    });
}

#[test]
fn the_ledger_says_what_woke_a_branch_and_who_used_it() {
    let coppice = platform();
    let main = path(&coppice, "main");
    change(&coppice, &main, &sleepy());
    let url = coppice.connection_string("main");
    for _ in 0..6 {
        assert_eq!(psql(&format!("{url}?application_name=probe"), "SELECT 1").out, "1");
    }
    let summary = wait_for("who polls is named", PATIENCE, || {
        let text = coppice.cli(&["branch", "activity", "main"])["summary"].as_str()?.to_owned();
        text.contains("probe keeps it awake: it connects about every").then_some(text)
    });
    assert!(summary.contains("sleeps at "), "{summary}");
    hibernate(&coppice, &main);
    assert_eq!(psql(&format!("{url}?application_name=shop"), "SELECT pg_sleep(1)").err, "");

    let activity = coppice.cli(&["branch", "activity", "main"]);
    let (now, before) = (&activity["awake"][0], &activity["awake"][1]);
    assert_eq!((&now["cause"], &now["endedAt"]), (&json!("connection"), &Value::Null));
    assert_eq!(now["wokenBy"], "a connection of app from 127.0.0.1 (shop)");
    let shop = &now["applications"][0];
    assert_eq!((&shop["application"], &shop["sessions"]), (&json!("shop"), &json!(1)));
    assert!(shop["minutes"].as_f64().expect("minutes") > 0.0, "{shop}");
    assert_eq!((&before["cause"], &before["endCause"]), (&json!("creation"), &json!("request")));
    assert_eq!(before["applications"][0]["sessions"], 6, "{before}");
    let table = coppice.run(&["branch", "activity", "main"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("a connection of app from 127.0.0.1 (shop)"), "{table}");
    assert!(table.contains("probe (6 sessions, "), "{table}");
}

#[test]
fn branches_of_a_disabled_organization_sleep_until_it_is_enabled() {
    let coppice = platform();
    coppice.cli(&["branch", "create", "asleep", "--parent", "main"]);
    let (main, asleep) = (path(&coppice, "main"), path(&coppice, "asleep"));
    change(&coppice, &main, &sleepy());
    hibernate(&coppice, &asleep);
    let operator = |arguments: &[&str]| {
        let done = coppice.run(&[&["admin", "org"], arguments].concat());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let organization = coppice.setting("COPPICE_ORGANIZATION");
    let said = operator(&["disable", organization, "--reason", "unpaid"]);
    assert!(said.contains("1 branches are put to sleep"), "{said}");
    wait_for_status(&coppice, &main, "STATUS_TYPE_HIBERNATED");
    let (_, details) = coppice.call("GET", &main, None);
    assert_eq!(details["status"]["message"], "Hibernated: its organization is disabled");
    let said = coppice.psql("main", "SELECT 1");
    assert!(said.err.contains("its organization is disabled"), "{}", said.err);
    let (code, refused) = coppice.call("PATCH", &main, Some(&json!({ "hibernate": false })));
    assert_eq!((code, &refused["id"]), (403, &json!("organization_disabled")));
    assert!(operator(&["list"]).contains("  disabled  "), "{}", operator(&["list"]));

    operator(&["enable", organization]);
    wait_for_status(&coppice, &main, "STATUS_TYPE_HEALTHY");
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
    assert_eq!(status(&coppice, &asleep), "STATUS_TYPE_HIBERNATED", "it slept before");
}

#[test]
fn a_sleeping_branch_sleeps_on_after_a_restart_and_a_reboot() {
    let mut coppice = platform();
    let main = path(&coppice, "main");
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    change(&coppice, &main, &sleepy());
    hibernate(&coppice, &main);
    coppice.restart();
    assert_eq!(status(&coppice, &main), "STATUS_TYPE_HIBERNATED");
    assert_eq!(coppice.sql("main", "SELECT i FROM t"), "7");
}

/// What was kept of its roles when a branch was put to sleep.
fn kept_roles(coppice: &Platform, branch: &str) -> String {
    let id = coppice.branch_id(branch);
    let query = format!("SELECT verifiers_checkpoint FROM branches WHERE id = '{id}'");
    psql(&coppice.metastore_url(), &query).out
}

#[test]
fn without_what_its_sleep_keeps_a_branch_is_woken_to_ask_who_may_come_in() {
    let mut coppice = platform();
    let main = path(&coppice, "main");
    change(&coppice, &main, &sleepy());
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    let id = coppice.branch_id("main");

    // The control plane dies after the server was stopped, before anything was kept.
    arm(&mut coppice, "reconciler.asleep");
    coppice.restart();
    let _ = coppice.run(&["branch", "hibernate", "main", "--yes"]);
    coppice.wait_end();
    arm(&mut coppice, "");
    coppice.restart();
    wait_for_status(&coppice, &main, "STATUS_TYPE_HIBERNATED");
    assert_eq!(kept_roles(&coppice, "main"), "");
    let url = coppice.connection_string("main");
    let (_, rest) = url.split_once('@').expect("a URL");
    let said = psql(&format!("postgresql://app.{id}:wrong@{rest}"), "SELECT 1");
    assert!(said.err.contains("password authentication failed"), "{}", said.err);
    assert_eq!(coppice.sql("main", "SELECT i FROM t"), "7");

    // Kept, and not true any more: somebody else started the server meanwhile.
    hibernate(&coppice, &main);
    assert_ne!(kept_roles(&coppice, "main"), "");
    let metastore = coppice.metastore_url();
    let forged = format!("UPDATE branches SET verifiers_checkpoint = '0/1' WHERE id = '{id}'");
    assert_eq!(psql(&metastore, &forged).out, "UPDATE 1");
    assert_eq!(coppice.sql("main", "SELECT i FROM t"), "7");
}

#[test]
fn a_child_that_never_ran_wakes_for_its_first_client() {
    let coppice = platform();
    let main = path(&coppice, "main");
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    change(&coppice, &main, &sleepy());
    hibernate(&coppice, &main);
    let (project, _) = main.split_once("/branches").expect("a path");
    let body = json!({
        "name": "kid", "mode": "inherit", "parentID": coppice.branch_id("main"),
        "scaleToZero": { "enabled": true, "inactivityPeriodMinutes": 1 }
    });
    // Its owner changes their mind before it is up.
    let kid = std::thread::scope(|scope| {
        let made = scope.spawn(|| coppice.call("POST", &format!("{project}/branches"), Some(&body)));
        let list = || coppice.call("GET", &format!("{project}/branches"), None).1;
        let id = wait_for("it is listed", PATIENCE, || {
            let list = list();
            let mut branches = list["branches"].as_array()?.iter();
            branches.find(|branch| branch["name"] == "kid")?["id"].as_str().map(str::to_owned)
        });
        let kid = format!("{project}/branches/{id}");
        change(&coppice, &kid, &json!({ "hibernate": true }));
        assert_eq!(made.join().expect("an answer").0, 201);
        kid
    });
    wait_for_status(&coppice, &kid, "STATUS_TYPE_HIBERNATED");
    assert_eq!(coppice.sql("kid", "SELECT i FROM t"), "7");
    assert_eq!(status(&coppice, &main), "STATUS_TYPE_HIBERNATED");
}

#[test]
fn an_address_filter_is_in_force_at_once() {
    let coppice = platform();
    let main = path(&coppice, "main");
    let (project, _) = main.split_once("/branches").expect("a path");
    let filter = |enabled: bool, cidr: &str| json!({ "configuration": { "ipFiltering": { "enabled": enabled, "cidr": [{ "cidr": cidr }] } } });
    change(&coppice, project, &filter(true, "192.0.2.0/24"));
    let said = coppice.psql("main", "SELECT 1");
    assert!(said.err.contains("connections from 127.0.0.1 are not allowed"), "{}", said.err);
    change(&coppice, project, &filter(true, "127.0.0.1"));
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
}
