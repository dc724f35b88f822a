//! Logical replication: clients that receive the changes of a branch.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Platform, psql, wait_for};
use serde_json::json;

use crate::branches::{change, hibernate, path, wait_for_status};
use crate::credentials::rotate;
use crate::replicas::wait_whole;
use crate::setup::{every_release, platform, pooled_url};
use crate::upgrades::as_role;

const PATIENCE: Duration = Duration::from_secs(60);

fn receiver(url: &str) -> Command {
    let mut command = Command::new("/usr/lib/postgresql/15/bin/pg_recvlogical");
    command.args(["--dbname", url, "--slot", "kept"]).stdin(Stdio::null());
    command
}

/// Has the slot made, or dropped; what was said where that fails.
fn slot(url: &str, arguments: &[&str]) -> Result<(), String> {
    let output = receiver(url).args(arguments).output().expect("pg_recvlogical runs");
    output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

const MAKE: [&str; 3] = ["--create-slot", "--plugin", "test_decoding"];

/// Receives changes into a file; gone with the value.
struct Receiver {
    child: Child,
    file: PathBuf,
}

impl Receiver {
    fn start(url: &str, directory: &Path) -> Self {
        let file = directory.join("changes");
        let mut command = receiver(url);
        command.args(["--start", "--no-loop", "--fsync-interval", "1", "--file"]).arg(&file);
        let child = command.stderr(Stdio::null()).spawn().expect("pg_recvlogical runs");
        Self { child, file }
    }

    fn wait_for(&self, change: &str) {
        let has_it =
            || std::fs::read_to_string(&self.file).unwrap_or_default().contains(change).then_some(());
        wait_for(&format!("{change} is received"), PATIENCE, has_it);
    }

    fn wait_end(&mut self) {
        wait_for("the receiver ends", PATIENCE, || self.child.try_wait().expect("a child"));
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has a branch write what decoding its log needs.
fn let_decode(coppice: &Platform, branch: &str) {
    let parameters = json!({ "postgresConfigurationParameters": { "wal_level": "logical" } });
    change(coppice, &path(coppice, branch), &parameters);
    let decodes = || (coppice.psql(branch, "SHOW wal_level").out == "logical").then_some(());
    wait_for("it can be decoded", PATIENCE, decodes);
}

/// The connection string of a client that speaks the replication protocol.
fn replicating(url: &str, how: &str) -> String {
    format!("{url}{}replication={how}", if url.contains('?') { '&' } else { '?' })
}

#[test]
fn changes_reach_who_may_receive_them_also_those_of_while_the_receiver_was_away() {
    let coppice = every_release();
    for major in [16, 18] {
        let name = format!("source{major}");
        coppice.cli(&["branch", "create", &name, "--image", &format!("postgres:{major}")]);
        let_decode(&coppice, &name);
        let (url, place) = (coppice.connection_string(&name), path(&coppice, &name));
        coppice.sql(&name, "CREATE TABLE t (i int PRIMARY KEY); CREATE ROLE ada LOGIN PASSWORD 'x'");
        let url = as_role(&url, "ada", "x");
        let refused = slot(&url, &MAKE).expect_err("it has no right to");
        assert!(refused.to_lowercase().contains("replication"), "{major}: {refused}");
        coppice.sql(&name, "ALTER ROLE ada REPLICATION");
        slot(&url, &MAKE).expect("a slot");
        let directory = coppice_test_support::directory("coppice-files-");
        let mut receiver = Receiver::start(&url, directory.path());
        coppice.sql(&name, "INSERT INTO t VALUES (1001)");
        receiver.wait_for("1001");

        hibernate(&coppice, &place);
        receiver.wait_end();
        let sleepy = json!({ "scaleToZero": { "enabled": true, "inactivityPeriodMinutes": 1 } });
        change(&coppice, &place, &sleepy);
        coppice.sql(&name, "INSERT INTO t VALUES (1002)");
        hibernate(&coppice, &place);
        // It wakes its branch as any client does.
        let receiver = Receiver::start(&url, directory.path());
        receiver.wait_for("1002");
        coppice.cli(&["branch", "create", &format!("child{major}"), "--parent", &name]);
        let slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'logical'";
        assert_eq!(coppice.sql(&format!("child{major}"), slots), "0", "the changes are its parent's");
        drop(receiver);
        wait_for("the slot is free", PATIENCE, || slot(&url, &["--drop-slot"]).ok());
    }
}

#[test]
fn before_16_nobody_replicates_and_the_managed_role_changes_its_password() {
    let coppice = every_release();
    coppice.cli(&["branch", "create", "old", "--image", "postgres:15"]);
    let url = coppice.connection_string("old");
    let refused = psql(&replicating(&url, "database"), "IDENTIFY_SYSTEM");
    assert!(refused.err.contains("replication"), "{refused:?}");
    coppice.sql("old", "ALTER ROLE app PASSWORD 'of its own'");
}

#[test]
fn who_receives_changes_gets_neither_files_nor_the_log_itself() {
    let coppice = platform();
    let_decode(&coppice, "main");
    let url = coppice.connection_string("main");
    let logical = replicating(&url, "database");
    let whoami = psql(&logical, "IDENTIFY_SYSTEM");
    assert!(whoami.is_ok && whoami.out.ends_with("|app"), "{whoami:?}");
    assert_eq!(psql(&logical, "SELECT 40 + 2").out, "42", "SQL is part of the protocol");
    for command in [
        "BASE_BACKUP",
        " base_backup (LABEL 'x')",
        "UPLOAD_MANIFEST",
        "TIMELINE_HISTORY 1",
        "CREATE_REPLICATION_SLOT p PHYSICAL",
        "CREATE_REPLICATION_SLOT \"LOGICAL\" TEMPORARY PHYSICAL",
        "START_REPLICATION 0/1000000",
        "START_REPLICATION SLOT coppice_wal PHYSICAL 0/1000000",
    ] {
        let said = psql(&logical, command);
        assert!(said.err.contains("physical replication is not available"), "{command}: {said:?}");
    }
    for (url, told) in [
        (replicating(&url, "true"), "physical replication is not available"),
        (replicating(&url, "maybe"), "invalid value for parameter \"replication\""),
        (replicating(&pooled_url(&coppice, "main"), "database"), "changes are sent by the primary"),
    ] {
        let said = psql(&url, "IDENTIFY_SYSTEM");
        assert!(said.err.contains(told), "{told}: {said:?}");
    }
    assert_eq!(coppice.sql("main", "SELECT 7"), "7");
}

#[test]
fn an_output_plugin_that_lies_where_a_server_writes_is_not_loaded() {
    let coppice = platform();
    let_decode(&coppice, "main");
    let copy = "SELECT lo_from_bytea(4711, pg_read_binary_file(setting || '/test_decoding.so'))
        FROM pg_config WHERE name = 'PKGLIBDIR'; SELECT lo_export(4711, 'plugin.so')";
    let copied = psql(&coppice.superuser_url("main"), copy);
    assert!(copied.is_ok, "{}", copied.err);
    let with_plugin = |plugin: &str| {
        coppice.psql("main", &format!("SELECT pg_create_logical_replication_slot('s', {plugin})"))
    };
    let said = with_plugin("current_setting('data_directory') || '/plugin.so'");
    assert!(said.err.contains("could not load library"), "{said:?}");
    assert!(with_plugin("'test_decoding'").is_ok, "the same, where it is installed");
}

/// Takes every slot that there is, also those with names of the platform's.
const TAKE_ALL: &str = "DO $$ BEGIN
    PERFORM pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active;
    PERFORM pg_create_physical_replication_slot(name, true)
        FROM unnest(ARRAY['coppice_copy_1', 'coppice_replica_9', 'coppice_wall']) AS name;
    FOR i IN 1..100 LOOP PERFORM pg_create_physical_replication_slot('mine_' || i, true); END LOOP;
    EXCEPTION WHEN configuration_limit_exceeded THEN NULL; END $$";

#[test]
fn an_owner_who_takes_every_slot_keeps_nothing_from_working() {
    let coppice = platform();
    let (main, slots) = (path(&coppice, "main"), "SELECT count(*) FROM pg_replication_slots WHERE slot_name");
    // A function that fails takes back what it did, but no slots.
    coppice.sql("main", TAKE_ALL);
    change(&coppice, &main, &json!({ "replicas": 1 }));
    wait_whole(&coppice, &main, 2);
    wait_for("the log is kept", PATIENCE, || {
        // There is something to keep.
        coppice.sql(
            "main",
            "CREATE TABLE IF NOT EXISTS t (i int); INSERT INTO t SELECT generate_series(1, 1000)",
        );
        (coppice.sql("main", &format!("{slots} = 'coppice_wal'")) == "1").then_some(())
    });
    assert_eq!(
        coppice.sql("main", &format!("{slots} LIKE 'mine%'")),
        "7",
        "as many as there may be, with three others"
    );
    coppice.sql("main", TAKE_ALL);
    coppice.cli(&["branch", "create", "child", "--parent", "main"]);
    assert_eq!(coppice.sql("child", &format!("{slots} LIKE 'mine%'")), "0");
    hibernate(&coppice, &main);
    change(&coppice, &main, &json!({ "hibernate": false }));
    wait_for_status(&coppice, &main, "STATUS_TYPE_HEALTHY");
    rotate(&coppice, &main);
    assert_eq!(coppice.sql("main", "SELECT 7"), "7");
}
