//! Where the platform runs: with a metastore of somebody else's, and as the
//! first process of a container.

use std::process::{Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Leftovers, Options, Platform, wait_for};

use crate::servers::OwnServer;
use crate::setup::{PROGRAM, options, postgres_dir};

/// A container has mounts of its own; those of other stories' pools would keep
/// their loop devices busy.
const WITHOUT_OTHER_POOLS: &str =
    r#"for pool in $(grep -o '/[^ ]*/pool ' /proc/mounts); do umount -l "$pool"; done; exec "$0" "$@""#;

#[test]
fn a_metastore_of_your_own_serves_as_well() {
    let server = OwnServer::start();
    let flags = vec!["--metastore-url".to_owned(), server.url()];
    let mut coppice = Platform::start(PROGRAM, Options { flags, ..options() });
    assert_eq!(server.sql("SELECT name || goal || state FROM branches"), "mainrunningready");
    assert!(!coppice.data_dir().join("metastore/data").exists());
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (7)");
    coppice.restart();
    assert_eq!(coppice.sql("main", "SELECT i FROM t"), "7");
}

#[test]
fn the_end_of_the_first_process_is_the_end_of_every_server() {
    let directory = coppice_test_support::directory("coppice-files-");
    let data_dir = directory.path().join("data");
    let log = std::fs::File::create(directory.path().join("log")).expect("a log");
    let mut container = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "sh", "-c", WITHOUT_OTHER_POOLS, PROGRAM, "serve"])
        .args(["--listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0"])
        .args(["--pool-size-gib", "1", "--host-reserve-gib", "1", "--data-dir"])
        .arg(&data_dir)
        .env("COPPICE_POSTGRES_DIRS", postgres_dir().join("17.10"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(log)
        .spawn()
        .expect("unshare runs");
    let said = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    let is_ready = wait_for("it is ready", Duration::from_secs(120), || {
        if said().contains("coppice is ready") {
            return Some(true);
        }
        container.try_wait().expect("a child").is_some().then_some(false)
    });
    assert!(is_ready, "{}", said());
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", container.id()));
    let first = children.expect("children").trim().parse().expect("the container's first process");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(first), nix::sys::signal::Signal::SIGTERM)
        .expect("a signal");
    let status = container.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", said());
    assert!(said().contains("everything is stopped"), "{}", said());
    let nothing_left = || (Leftovers::of(&data_dir) == Leftovers::default()).then_some(());
    wait_for("nothing is left", Duration::from_secs(10), nothing_left);
}
