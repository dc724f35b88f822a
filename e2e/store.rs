//! What is kept away from the machine: a platform that is lost, and comes back.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use coppice_test_support::{Leftovers, Options, Platform, directory, wait_for};
use serde_json::Value;

use crate::setup::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);

fn use_store(coppice: &mut Platform, store: &Path) {
    coppice.add_flags(&["--store", &format!("file://{}", store.display()), "--store-interval", "1"]);
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn count(directory: &Path) -> usize {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let counted = entries.map(|entry| entry.expect("an entry").path());
    counted.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
}

fn recover(target: &Path, store: &Path, key: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["admin", "recover", "--data-dir"]).arg(target);
    command.arg("--store").arg(format!("file://{}", store.display())).arg("--key-file").arg(key);
    command.output().expect("the executable runs")
}

/// Names in a directory of the store.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// Waits until the log of some volume is in the store as far as a branch has it now.
fn wait_for_log(coppice: &Platform, branch: &str, store: &Path) {
    let place = lsn(&coppice.sql(branch, "SELECT pg_current_wal_insert_lsn()"));
    let reached = |volume: &String| {
        let ends = names(&store.join("wal").join(volume)).into_iter();
        let mut ends = ends.filter_map(|piece| u64::from_str_radix(piece.rsplit('-').next()?, 16).ok());
        ends.any(|end| end >= place)
    };
    wait_for("the log is in the store", PATIENCE, || {
        names(&store.join("wal")).iter().any(reached).then_some(())
    });
}

/// A place in a log, in bytes.
fn lsn(text: &str) -> u64 {
    let (high, low) = text.split_once('/').expect("a place");
    let half = |digits| u64::from_str_radix(digits, 16).expect("a number");
    half(high) << 32 | half(low)
}

/// Waits until there are records in the store that are newer than this call.
fn wait_for_records(store: &Path) {
    let newest = || names(&store.join("records")).into_iter().max();
    let before = newest();
    wait_for("the records are in the store", PATIENCE, || (newest() != before).then_some(()));
}

fn admin_backup(command: &str, store: &Path, key: &Path) -> Output {
    let mut run = Command::new(PROGRAM);
    run.args(["admin", "backup", command, "--json", "--store"]).arg(format!("file://{}", store.display()));
    run.arg("--key-file").arg(key).output().expect("the executable runs")
}

fn what_is_in_the_store_is_listed_and_verified(store: &Path, key: &Path) {
    let listed = admin_backup("list", store, key);
    let backups: Value =
        serde_json::from_slice(&listed.stdout).unwrap_or_else(|_| panic!("{}", said(&listed)));
    let backups = backups["backups"].as_array().expect("a list").clone();
    // There may be another one, of a branch whose first base was not written down when the process ended.
    let is_good = |one: &Value| one["bases"].as_u64() >= Some(1) && one["to"] != one["from"];
    assert!(backups.len() == 2 && backups.iter().all(is_good), "{backups:?}");
    let verified = admin_backup("verify", store, key);
    assert!(verified.status.success() && said(&verified).contains("are whole"), "{}", said(&verified));
}

fn what_is_damaged_is_found_without_being_asked(coppice: &mut Platform, store: &Path) {
    let pack = store.join("packs").join(&names(&store.join("packs"))[0]);
    let whole = fs::read(&pack).expect("a pack");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&pack, damaged).expect("written");
    coppice.restart();
    wait_for("the log says so", PATIENCE, || {
        let log = coppice.log();
        let failed = log.lines().find(|line| line.contains("the task store_verification failed"))?;
        (failed.contains("packs/") && failed.contains("is damaged")).then_some(())
    });
    let found = admin_backup("verify", store, &coppice.data_dir().join("secret.key"));
    assert!(!found.status.success() && said(&found).contains("is damaged"), "{}", said(&found));
    fs::write(&pack, whole).expect("written");
}

#[test]
fn a_lost_machine_comes_back_from_its_store_and_its_key() {
    let home = directory("coppice-files-");
    let (store, key) = (home.path().join("store"), home.path().join("secret.key"));
    let mut coppice = Platform::start(PROGRAM, Options::default());
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    coppice.sql("kid", "CREATE TABLE t AS SELECT 1 AS i");
    coppice.cli(&["branch", "hibernate", "kid", "--yes"]);
    assert_eq!(coppice.terminate(), Some(0));
    // The process ends in the middle of the first base.
    use_store(&mut coppice, &store);
    coppice.set_environment(&[("COPPICE_FAILPOINTS", "base.read=abort")]);
    coppice.spawn();
    coppice.wait_end();
    assert_eq!(count(&store.join("bases")), 0, "without its manifest there is no base");
    coppice.set_environment(&[("COPPICE_FAILPOINTS", "")]);
    coppice.spawn();
    coppice.wait_ready();
    fs::copy(coppice.data_dir().join("secret.key"), &key).expect("a copy of the key");
    let admin = fs::read(coppice.data_dir().join("admin.env")).expect("a file");
    wait_for("both have a base", PATIENCE, || (count(&store.join("bases")) == 2).then_some(()));

    what_is_damaged_is_found_without_being_asked(&mut coppice, &store);
    // None of this is in a base; that of the kid was made while it slept.
    coppice.sql("main", "CREATE TABLE t (i bigint, at timestamptz DEFAULT clock_timestamp())");
    for row in 1..=20 {
        coppice.sql("main", &format!("INSERT INTO t SELECT {row} FROM generate_series(1, 1000)"));
    }
    wait_for_log(&coppice, "main", &store);
    coppice.cli(&["branch", "wake", "kid"]);
    coppice.sql("kid", "INSERT INTO t VALUES (2)");
    coppice.sql("kid", "SELECT pg_logical_emit_message(true, 'far', repeat('x', 10000000)) IS NULL");
    wait_for_log(&coppice, "kid", &store);
    wait_for_records(&store);
    coppice.cut_power();
    let kept = fs::read(coppice.data_dir().join("installation.json")).expect("a file");
    drop(coppice);

    what_is_in_the_store_is_listed_and_verified(&store, &key);
    let mut coppice = Platform::prepare(PROGRAM, Options::default());
    use_store(&mut coppice, &store);
    let wrong = home.path().join("wrong.key");
    fs::write(&wrong, [7; 32]).expect("a file");
    let refused = recover(coppice.data_dir(), &store, &wrong);
    assert!(!refused.status.success() && said(&refused).contains("another key"), "{}", said(&refused));
    assert!(!coppice.data_dir().exists(), "nothing was made");
    let done = recover(coppice.data_dir(), &store, &key);
    assert!(done.status.success(), "{}", said(&done));
    let refused = recover(coppice.data_dir(), &store, &key);
    assert!(!refused.status.success() && said(&refused).contains("already"), "{}", said(&refused));
    assert_eq!(fs::read(coppice.data_dir().join("installation.json")).expect("a file"), kept);

    // Kept elsewhere, as the key was.
    fs::write(coppice.data_dir().join("admin.env"), admin).expect("a file");
    coppice.spawn();
    coppice.wait_ready();
    let ask = |branch: &str, sql: &str| {
        let asked = || Some(coppice.psql(branch, sql)).filter(|said| said.is_ok).map(|said| said.out);
        wait_for("the branch is back", PATIENCE, asked)
    };
    assert_eq!(
        ask("main", "SELECT count(*), sum(i) FROM t"),
        "20000|210000",
        "nothing is lost that was in the store"
    );
    assert_eq!(ask("kid", "SELECT sum(i) FROM t"), "3");
    assert_eq!(coppice.stop_all(), Leftovers::default());
}
