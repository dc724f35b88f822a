//! What the platform refuses, without losing anything.

use std::time::Duration;

use coppice_test_support::{Options, Platform, wait_for};

use crate::setup::{PROGRAM, options, platform};

#[test]
fn two_starts_on_one_data_directory_are_one() {
    let coppice = platform();
    let output = coppice.run(&["serve", "--listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("another coppice works on"), "{said}");
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
}

#[test]
fn a_lost_metastore_costs_no_database() {
    let mut coppice = platform();
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (7)");
    coppice.stop_all();
    let metastore = coppice.data_dir().join("metastore");
    let kept = coppice.data_dir().join("metastore.kept");
    std::fs::rename(&metastore, &kept).expect("moved away");
    coppice.spawn();
    coppice.wait_end();
    assert!(coppice.log().contains("the metastore is empty"), "{}", coppice.log());

    coppice.run(&["stop", "--all"]);
    std::fs::remove_dir_all(&metastore).expect("the empty one goes");
    std::fs::rename(&kept, &metastore).expect("moved back");
    coppice.spawn();
    coppice.wait_ready();
    let seven = || Some(coppice.psql("main", "SELECT i FROM t")).filter(|said| said.is_ok);
    assert_eq!(wait_for("main is back", Duration::from_secs(60), seven).out, "7");
}

#[test]
fn a_metastore_of_another_installation_is_refused() {
    let mut coppice = platform();
    coppice.stop_all();
    let file = coppice.data_dir().join("installation.json");
    let text = std::fs::read_to_string(&file).expect("an identity");
    let (start, rest) = text.split_once("ins_").expect("an installation id");
    std::fs::write(&file, format!("{start}ins_v{}", &rest[1..])).expect("another identity");
    coppice.spawn();
    coppice.wait_end();
    assert!(coppice.log().contains("belongs to installation"), "{}", coppice.log());
    coppice.run(&["stop", "--all"]);
    std::fs::write(&file, text).expect("the right identity");
    coppice.spawn();
    coppice.wait_ready();
}

#[test]
fn a_long_data_directory_works() {
    let parent = coppice_test_support::directory("coppice-files-");
    let long = parent.path().join("x".repeat(100)).join("y".repeat(100));
    std::fs::create_dir_all(&long).expect("directories");
    let mut coppice = Platform::start(PROGRAM, Options { data_dir: Some(long.join("data")), ..options() });
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
    coppice.stop_all();
}

#[test]
fn strangers_learn_nothing_at_the_gateway() {
    let coppice = platform();
    let url = coppice.connection_string("main");
    let id = coppice.branch_id("main");
    let (host, port) = coppice.gateway();
    let wrong =
        coppice_test_support::psql(&format!("postgresql://app.{id}:wrong@{host}:{port}/app"), "SELECT 1");
    let nobody = "a".repeat(26);
    let unknown =
        coppice_test_support::psql(&format!("postgresql://app.{nobody}:wrong@{host}:{port}/app"), "SELECT 1");
    assert!(!wrong.is_ok && !unknown.is_ok);
    assert!(wrong.err.contains("password authentication failed"), "{}", wrong.err);
    assert_eq!(wrong.err.replace(&id, "x"), unknown.err.replace(&nobody, "x"));
    let no_branch = coppice_test_support::psql(&format!("postgresql://app:x@{host}:{port}/app"), "SELECT 1");
    assert!(!no_branch.is_ok && no_branch.err.contains("branch"), "{}", no_branch.err);
    assert!(coppice_test_support::psql(&format!("{url}?sslmode=require"), "SELECT 1").is_ok);
}
