//! Every way to copy a volume, under a parent that writes and checkpoints.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Leftovers, Options, Platform, wait_for};

use crate::setup::{PROGRAM, options};

const BALANCED: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) IS NOT DISTINCT FROM
        (SELECT sum(delta) FROM pgbench_history)
    AND (SELECT sum(tbalance) FROM pgbench_tellers) IS NOT DISTINCT FROM (SELECT sum(delta) FROM pgbench_history)
    AND (SELECT sum(bbalance) FROM pgbench_branches) IS NOT DISTINCT FROM (SELECT sum(delta) FROM pgbench_history)";

fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output().expect("it runs");
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(done.status.success(), "{program} {arguments:?}: {said:?}");
}

/// Options that lead to this driver, and the file system that it takes, if
/// that is not the machine's own.
pub(crate) fn options_for(driver: &str) -> (Options, Option<Xfs>) {
    let mut options = options();
    options.flags.extend(["--volume-driver".to_owned(), driver.to_owned()]);
    let xfs = (driver == "reflink").then(Xfs::make);
    if let Some(xfs) = &xfs {
        options.data_dir = Some(xfs.mount_point().join("data"));
    }
    if driver == "copy" {
        options.flags.push("--pool=off".to_owned());
    }
    (options, xfs)
}

/// A platform with this driver: its children of a busy parent must balance,
/// and pass PostgreSQL's own check of tables and indexes.
fn children_of_a_busy_parent_are_consistent(driver: &str) {
    let (options, _file_system) = options_for(driver);
    let mut coppice = Platform::start(PROGRAM, options);
    assert!(coppice.log().contains(&format!("volumes: {driver}")), "{}", coppice.log());
    let url = coppice.connection_string("main");
    run("pgbench", &["-i", "-q", &url]);
    let mut load = Command::new("pgbench")
        .args(["-c", "2", "-T", "120", &url])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("pgbench runs");
    wait_for("the load is under way", Duration::from_secs(60), || {
        (coppice.sql("main", "SELECT count(*) > 50 FROM pgbench_history") == "t").then_some(())
    });
    for number in 1..=3 {
        let name = format!("kid-{number}");
        // A checkpoint while files are copied is what breaks a careless copy.
        let checkpoints = std::thread::spawn({
            let url = url.clone();
            move || (0..5).for_each(|_| drop(coppice_test_support::psql(&url, "CHECKPOINT")))
        });
        coppice.cli(&["branch", "create", &name, "--parent", "main"]);
        checkpoints.join().expect("checkpoints");
        assert!(load.try_wait().expect("a child").is_none(), "the load is still on");
        assert_eq!(coppice.sql(&name, BALANCED), "t", "{driver} {number}");
        // Looking into every page takes a superuser.
        let child = coppice.superuser_url(&name);
        let checks = ["--install-missing", "--heapallindexed", "--parent-check", &child];
        run("/usr/lib/postgresql/15/bin/pg_amcheck", &checks);
    }
    let _ = load.kill();
    let _ = load.wait();
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

#[test]
fn snapshots_of_a_busy_parent_are_consistent() {
    children_of_a_busy_parent_are_consistent("btrfs");
}

#[test]
fn plain_copies_of_a_busy_parent_are_consistent() {
    children_of_a_busy_parent_are_consistent("copy");
}

/// An XFS file system in a file, unmounted when dropped.
pub(crate) struct Xfs {
    directory: tempfile::TempDir,
}

impl Xfs {
    fn make() -> Self {
        let directory = coppice_test_support::directory("coppice-files-");
        let image = directory.path().join("xfs.img");
        let file = std::fs::File::create(&image).expect("an image");
        file.set_len(4 << 30).expect("a size");
        let made = Self { directory };
        let image = image.display().to_string();
        run("mkfs.xfs", &["-q", "-m", "reflink=1", &image]);
        std::fs::create_dir(made.mount_point()).expect("a mount point");
        run("mount", &["-o", "loop", &image, &made.mount_point().display().to_string()]);
        made
    }

    fn mount_point(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        let point = self.mount_point();
        let unmounted = || Command::new("umount").arg(&point).status().is_ok_and(|status| status.success());
        if !unmounted() {
            let _ = Command::new("umount").arg("--lazy").arg(Path::new(&point)).status();
        }
    }
}

#[test]
fn file_clones_of_a_busy_parent_are_consistent() {
    children_of_a_busy_parent_are_consistent("reflink");
}
