//! Replicas: servers of a branch that only read, and follow what is written.

use std::path::PathBuf;
use std::time::Duration;

use coppice_test_support::{Platform, Signal, psql, signal, wait_for};
use serde_json::{Value, json};

use crate::branches::{change, describe, path, status};
use crate::http::text_of;
use crate::setup::{every_release, platform};

const PATIENCE: Duration = Duration::from_secs(120);

/// How a client reaches the replicas of a branch.
pub(crate) fn read_url(coppice: &Platform, branch: &str) -> String {
    let (url, id) = (coppice.connection_string(branch), coppice.branch_id(branch));
    assert!(url.contains(&format!("app.{id}:")), "{url}");
    url.replace(&format!("app.{id}:"), &format!("app.{id}-ro:"))
}

/// Waits until every instance of a branch is ready, of which there are so many.
pub(crate) fn wait_whole(coppice: &Platform, path: &str, count: usize) -> Value {
    let is_whole = || {
        let status = describe(coppice, path)["status"].take();
        let is_ready = status["statusType"] == "STATUS_TYPE_HEALTHY"
            && status["instanceReadyCount"] == count
            && status["instances"].as_array().expect("instances").len() == count;
        is_ready.then_some(status)
    };
    wait_for("every instance is ready", PATIENCE, is_whole)
}

/// Waits until the replicas show what is asked for.
pub(crate) fn wait_read(url: &str, sql: &str, expected: &str) {
    let is_there = || (psql(url, sql).out == expected).then_some(());
    wait_for(&format!("{sql} is {expected} on a replica"), PATIENCE, is_there);
}

/// Directories of a branch's volumes on the host.
pub(crate) fn volumes(coppice: &Platform, branch: &str) -> Vec<PathBuf> {
    let id = coppice.branch_id(branch);
    let all = std::fs::read_dir(coppice.data_dir().join("pool/volumes")).expect("volumes");
    let all = all.map(|entry| entry.expect("an entry").path());
    let is_of_branch = |volume: &PathBuf| {
        // One that is being made or removed has none.
        let label = std::fs::read(volume.join("label.json")).unwrap_or_default();
        serde_json::from_slice::<Value>(&label).is_ok_and(|label| label["branch"] == *id)
    };
    all.filter(is_of_branch).collect()
}

/// The postmaster of an instance.
fn postmaster(coppice: &Platform, instance: &str) -> u32 {
    let engines = std::fs::read_dir("/run/coppice").expect("a runtime directory").filter_map(Result::ok);
    let mut records = engines.map(|engine| engine.path().join(instance).join("server.json"));
    let record = records.find(|path| path.exists());
    let record = record.unwrap_or_else(|| panic!("a record of {instance}: {}", coppice.log()));
    let record: Value = serde_json::from_slice(&std::fs::read(record).expect("readable")).expect("JSON");
    record["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid")
}

pub(crate) fn kill(pid: u32) {
    signal(pid, Signal::KILL).expect("it can be ended");
}

fn slots(coppice: &Platform, branch: &str) -> String {
    coppice.sql(
        branch,
        "SELECT coalesce(string_agg(slot_name, ' ' ORDER BY slot_name), '') FROM pg_replication_slots
         WHERE slot_name LIKE 'coppice_replica_%'",
    )
}

pub(crate) fn replica_roles(coppice: &Platform, branch: &str) -> String {
    coppice.sql(branch, "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'coppice_replica_%'")
}

#[test]
fn replicas_follow_serve_reads_and_leave_nothing_behind_on_every_release() {
    let coppice = every_release();
    for major in ["15", "18"] {
        let name = format!("r{major}");
        let image = format!("postgres:{major}");
        coppice.cli(&["branch", "create", &name, "--image", &image, "--replicas", "2"]);
        let path = path(&coppice, &name);
        let shown = wait_whole(&coppice, &path, 3);
        let id = coppice.branch_id(&name);
        for (instance, ordinal) in shown["instances"].as_array().expect("instances").iter().zip(1..) {
            let expected = json!({ "id": format!("{id}-{ordinal}"), "status": "healthy", "primary": ordinal == 1,
                        "targetPrimary": ordinal == 1 });
            assert_eq!(*instance, expected);
        }
        coppice.sql(&name, "CREATE TABLE t (i int); INSERT INTO t VALUES (1)");
        let url = read_url(&coppice, &name);
        wait_read(&url, "SELECT count(*) FROM t", "1");
        let refused = psql(&url, "INSERT INTO t VALUES (2)");
        assert!(refused.err.contains("read-only transaction"), "{}", refused.err);
        // Each in its turn; no two have the same processes.
        let asked = (0..8).map(|_| psql(&url, "SELECT pg_is_in_recovery(), pg_postmaster_start_time()").out);
        let servers: std::collections::BTreeSet<_> = asked.collect();
        assert!(servers.iter().all(|one| one.starts_with("t|")) && servers.len() == 2, "{servers:?}");
        what_an_owner_can_not_do(&coppice, &name, &url);

        // A killed one comes back, and so does a killed primary with all that follow it.
        kill(postmaster(&coppice, &format!("{id}-2")));
        coppice.sql(&name, "INSERT INTO t VALUES (2)");
        wait_whole(&coppice, &path, 3);
        kill(postmaster(&coppice, &format!("{id}-1")));
        wait_for("the primary is back", PATIENCE, || {
            psql(&coppice.connection_string(&name), "SELECT 1").is_ok.then_some(())
        });
        coppice.sql(&name, "INSERT INTO t VALUES (3)");
        wait_whole(&coppice, &path, 3);
        for _ in 0..4 {
            wait_read(&url, "SELECT count(*) FROM t", "3");
        }

        // They sleep and wake together, and a reader wakes them.
        let sleepy = json!({ "scaleToZero": { "enabled": true, "inactivityPeriodMinutes": 60 } });
        change(&coppice, &path, &sleepy);
        coppice.cli(&["branch", "hibernate", &name, "--yes"]);
        let asleep = describe(&coppice, &path)["status"].take();
        assert_eq!((&asleep["instanceCount"], &asleep["instanceReadyCount"]), (&json!(3), &json!(0)));
        assert!(
            asleep["instances"].as_array().expect("instances").iter().all(|one| one["status"] == "stopped")
        );
        let woken = psql(&url, "SELECT count(*) FROM t");
        assert_eq!(woken.out, "3", "{}", woken.err);
        wait_whole(&coppice, &path, 3);

        // A change that a standby has to have, too.
        for connections in ["150", "60"] {
            let parameters = json!({ "postgresConfigurationParameters": { "max_connections": connections } });
            change(&coppice, &path, &parameters);
            wait_whole(&coppice, &path, 3);
            assert_eq!(coppice.sql(&name, "SHOW max_connections"), connections);
        }

        let child = format!("{name}-child");
        coppice.cli(&["branch", "create", &child, "--parent", &name]);
        assert_eq!((replica_roles(&coppice, &child).as_str(), slots(&coppice, &child).as_str()), ("0", ""));

        change(&coppice, &path, &json!({ "replicas": 1 }));
        wait_whole(&coppice, &path, 2);
        wait_for("one slot is left", PATIENCE, || {
            (slots(&coppice, &name) == "coppice_replica_2").then_some(())
        });
        change(&coppice, &path, &json!({ "replicas": 0 }));
        wait_whole(&coppice, &path, 1);
        wait_for("no slot is left", PATIENCE, || slots(&coppice, &name).is_empty().then_some(()));
        wait_for("no role is left", PATIENCE, || (replica_roles(&coppice, &name) == "0").then_some(()));
        wait_for("no volume is left", PATIENCE, || (volumes(&coppice, &name).len() == 1).then_some(()));
        let nobody = psql(&url, "SELECT 1");
        assert!(nobody.err.contains("has no replica"), "{}", nobody.err);
    }
}

/// The role that replicas replicate as is of no use to anybody else.
fn what_an_owner_can_not_do(coppice: &Platform, branch: &str, read_url: &str) {
    for attack in [
        "ALTER ROLE coppice_replica_2 PASSWORD 'x'",
        "DROP ROLE coppice_replica_2",
        "GRANT coppice_replica_2 TO app",
        "SET ROLE coppice_replica_2",
    ] {
        let said = coppice.psql(branch, attack);
        assert!(!said.is_ok, "{attack}: {}", said.out);
    }
    let way = psql(read_url, "SHOW primary_conninfo");
    assert!(!way.is_ok || !way.out.contains("password="), "{}", way.out);
    for secret in ["SELECT pg_read_file('/conf/password')", "SELECT pg_promote()"] {
        let said = psql(read_url, secret);
        assert!(!said.is_ok, "{secret}: {}", said.out);
    }
    let url = coppice.connection_string(branch).replace("//app.", "//coppice_replica_2.");
    assert!(psql(&url, "SELECT 1").err.contains("password authentication failed"));
}

#[test]
fn replicas_follow_what_their_branch_becomes() {
    let coppice = platform();
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (1)");
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    let path = path(&coppice, "kid");
    assert_eq!(describe(&coppice, &path)["configuration"]["replicas"], 0);
    coppice.cli(&["branch", "set", "kid", "--replicas", "1"]);
    wait_whole(&coppice, &path, 2);
    let url = read_url(&coppice, "kid");
    coppice.sql("kid", "INSERT INTO t VALUES (2)");
    wait_read(&url, "SELECT count(*) FROM t", "2");

    // Another password is theirs, too.
    coppice.cli(&["credentials", "rotate", "kid", "--yes"]);
    assert!(!psql(&url, "SELECT 1").is_ok, "the old one is of no use");
    let url = read_url(&coppice, "kid");
    assert_eq!(psql(&url, "SELECT count(*) FROM t").out, "2");

    // Another volume is what they follow, and nothing is left of theirs before.
    coppice.cli(&["branch", "reset", "kid", "--from", "main", "--yes"]);
    wait_whole(&coppice, &path, 2);
    wait_read(&url, "SELECT count(*) FROM t", "1");
    // Its own, its replica's, and the version that it was.
    wait_for("what they were is gone", PATIENCE, || (volumes(&coppice, "kid").len() == 3).then_some(()));

    // Asked for while it sleeps, they are there after that.
    coppice.cli(&["branch", "hibernate", "kid", "--yes"]);
    change(&coppice, &path, &json!({ "replicas": 2 }));
    assert_eq!(status(&coppice, &path), "STATUS_TYPE_HIBERNATED");
    coppice.cli(&["branch", "wake", "kid"]);
    wait_whole(&coppice, &path, 3);

    // One whose slot is gone is made anew.
    let id = coppice.branch_id("kid");
    let before = volumes(&coppice, "kid");
    let superuser = coppice.superuser_url("kid");
    kill(postmaster(&coppice, &format!("{id}-3")));
    let dropped = "SELECT pg_drop_replication_slot('coppice_replica_3')";
    wait_for("its slot is dropped", PATIENCE, || psql(&superuser, dropped).is_ok.then_some(()));
    coppice.sql("kid", "INSERT INTO t VALUES (5)");
    let is_new = || {
        let now = volumes(&coppice, "kid");
        (now.len() == before.len() && now.iter().any(|volume| !before.contains(volume))).then_some(())
    };
    wait_for("another one is made", PATIENCE, is_new);
    wait_whole(&coppice, &path, 3);
    for _ in 0..4 {
        wait_read(&url, "SELECT count(*) FROM t", "2");
    }

    coppice.cli(&["branch", "delete", "kid", "--purge", "--yes"]);
    let nothing = || {
        let labels = std::fs::read_dir(coppice.data_dir().join("pool/volumes")).expect("volumes");
        let labels =
            labels.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("label.json")).ok());
        (!labels.into_iter().any(|label| label.contains(&id))).then_some(())
    };
    wait_for("nothing of it is left", PATIENCE, nothing);
}

#[test]
fn replicas_are_measured_and_log_by_their_own_ids() {
    let mut coppice = platform();
    let path = path(&coppice, "main");
    change(&coppice, &path, &json!({ "replicas": 1 }));
    wait_whole(&coppice, &path, 2);
    let id = coppice.branch_id("main");
    let replica = format!("{id}-2");
    let url = read_url(&coppice, "main");
    assert!(!psql(&url, "SELECT 1 FROM nowhere_on_a_replica").is_ok);
    let logs = || {
        let (start, end) = span();
        let asked = json!({ "start": start, "end": end });
        let (status, found) = coppice.call("POST", &format!("{path}/logs"), Some(&asked));
        assert_eq!(status, 200, "{found}");
        let entries = found["logs"].as_array().expect("entries");
        let is_it = |entry: &&Value| entry.to_string().contains("nowhere_on_a_replica");
        entries.iter().find(is_it).map(|entry| entry.to_string())
    };
    let entry = wait_for("it is logged", PATIENCE, logs);
    assert!(entry.contains(&replica), "{entry}");

    let measured = || {
        let (start, end) = span();
        let asked = json!({ "start": start, "end": end, "metrics": ["replication_lag_time", "memory"],
                            "aggregations": ["max"] });
        let (status, found) = coppice.call("POST", &format!("{path}/metrics"), Some(&asked));
        assert_eq!(status, 200, "{found}");
        let results = found["results"].as_array().expect("results");
        let lag = results.iter().find(|one| one["metric"] == "replication_lag_time")?;
        let series = lag["series"].as_array().expect("series");
        let of_replica = series.iter().find(|one| one["instanceID"] == *replica)?;
        let values = of_replica["values"].as_array().expect("values");
        values.iter().any(|one| one["value"].as_f64().is_some()).then(|| text_of(&of_replica["instanceID"]))
    };
    assert_eq!(wait_for("its lag is measured", PATIENCE, measured), replica);

    // They are adopted by whoever comes next.
    let before = postmaster(&coppice, &replica);
    coppice.restart();
    wait_whole(&coppice, &path, 2);
    assert_eq!(postmaster(&coppice, &replica), before);
    coppice.cut_power();
    coppice.spawn();
    coppice.wait_ready();
    assert!(psql(&read_url(&coppice, "main"), "SELECT 1").is_ok);
    wait_whole(&coppice, &path, 2);
}

/// The last hour and the next minute.
fn span() -> (String, String) {
    let now = chrono::Utc::now();
    let text = |time: chrono::DateTime<chrono::Utc>| time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    (text(now - chrono::TimeDelta::hours(1)), text(now + chrono::TimeDelta::minutes(1)))
}
