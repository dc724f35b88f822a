//! What is kept away from the machine: a platform that is lost, and comes back.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use coppice_test_support::{Leftovers, Options, Platform, directory, psql, wait_for};
use serde_json::{Value, json};

use crate::branches::data_of;
use crate::http::text_of;
use crate::setup::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn use_store(coppice: &mut Platform, store: &Path) {
    coppice.add_flags(&["--store", &format!("file://{}", store.display()), "--store-interval", "1"]);
}

/// A platform that writes to a store in a directory.
pub(crate) fn platform_with_store(store: &Path) -> Platform {
    let mut coppice = Platform::prepare(PROGRAM, Options::default());
    use_store(&mut coppice, store);
    coppice.spawn();
    coppice.wait_ready();
    coppice
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

pub(crate) fn count(directory: &Path) -> usize {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let counted = entries.map(|entry| entry.expect("an entry").path());
    counted.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
}

pub(crate) fn recover(target: &Path, store: &Path, key: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["admin", "recover", "--data-dir"]).arg(target);
    command.arg("--store").arg(format!("file://{}", store.display())).arg("--key-file").arg(key);
    command.output().expect("the executable runs")
}

/// Names in a directory of the store.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// Waits until the log of some volume is in the store as far as a branch has it now.
pub(crate) fn wait_for_log(coppice: &Platform, branch: &str, store: &Path) {
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
pub(crate) fn lsn(text: &str) -> u64 {
    let (high, low) = text.split_once('/').expect("a place");
    let half = |digits| u64::from_str_radix(digits, 16).expect("a number");
    half(high) << 32 | half(low)
}

/// Waits until there are records in the store that are newer than this call.
pub(crate) fn wait_for_records(store: &Path) {
    let newest = || names(&store.join("records")).into_iter().max();
    let before = newest();
    wait_for("the records are in the store", PATIENCE, || (newest() != before).then_some(()));
}

pub(crate) fn admin_backup(command: &str, store: &Path, key: &Path) -> Output {
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
    assert_eq!(backups.iter().filter(|one| is_good(one)).count(), 2, "of what was written to: {backups:?}");
    let verified = admin_backup("verify", store, key);
    assert!(verified.status.success() && said(&verified).contains("are whole"), "{}", said(&verified));
    // Not the newest: that one is read by everybody.
    let mut exports = names(&store.join("records"));
    exports.sort();
    assert!(exports.len() > 1, "{exports:?}");
    let oldest = store.join("records").join(&exports[0]);
    let whole = fs::read(&oldest).expect("an export");
    flip_a_bit(&oldest);
    let found = admin_backup("verify", store, key);
    assert!(!found.status.success() && said(&found).contains(&exports[0]), "{}", said(&found));
    fs::write(&oldest, whole).expect("written");
}

/// Has the newest base of a branch be restored for proof.
pub(crate) fn drill(coppice: &Platform, branch: &str) -> Output {
    coppice.run(&["admin", "backup", "drill", &coppice.branch_id(branch)])
}

fn flip_a_bit(file: &Path) {
    let mut content = fs::read(file).expect("a file");
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(file, content).expect("written");
}

/// Makes a branch with a table of which a bit is another one than was written; it
/// is asleep afterwards.
fn make_rotten(coppice: &Platform) {
    coppice.cli(&["branch", "create", "rotten", "--parent", "main"]);
    coppice.sql("rotten", "CREATE TABLE rotten AS SELECT i FROM generate_series(1, 1000) i");
    let file = coppice.sql("rotten", "SELECT pg_relation_filepath('rotten')");
    coppice.cli(&["branch", "hibernate", "rotten", "--yes"]);
    flip_a_bit(&data_of(coppice, "rotten").join(file));
}

/// The process is to end in the middle of the first drill.
fn a_killed_drill_leaves_nothing_and_the_next_one_finds_what_is_damaged(
    coppice: &mut Platform,
    store: &Path,
) {
    let mut asked = Command::new(PROGRAM);
    asked
        .args(["admin", "backup", "drill", &coppice.branch_id("main"), "--data-dir"])
        .arg(coppice.data_dir());
    let asked = asked.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the executable runs");
    coppice.wait_end();
    let places = ["instances/drill", "pool/drill"].map(|place| coppice.data_dir().join(place));
    assert!(places.iter().all(|place| place.exists()), "its server runs");
    let packs = names(&store.join("packs")).into_iter().map(|name| store.join("packs").join(name));
    let whole: Vec<_> = packs.map(|pack| (fs::read(&pack).expect("a pack"), pack)).collect();
    whole.iter().for_each(|(_, pack)| flip_a_bit(pack));
    // As if a week had gone by since they were read through.
    assert!(psql(&coppice.metastore_url(), "UPDATE bases SET verified_at = NULL").is_ok);
    coppice.set_environment(&[("COPPICE_FAILPOINTS", "")]);
    coppice.spawn();
    coppice.wait_ready();
    let found = asked.wait_with_output().expect("its end");
    assert!(!found.status.success() && said(&found).contains("is damaged"), "{}", said(&found));
    wait_for("the log says so", PATIENCE, || {
        let log = coppice.log();
        let failed = log.lines().find(|line| line.contains("the task store_verification failed"))?;
        (failed.contains("packs/") && failed.contains("is damaged")).then_some(())
    });
    let found = admin_backup("verify", store, &coppice.data_dir().join("secret.key"));
    assert!(!found.status.success() && said(&found).contains("is damaged"), "{}", said(&found));
    whole.iter().for_each(|(content, pack)| fs::write(pack, content).expect("written"));
    let passed = drill(coppice, "main");
    assert!(passed.status.success() && said(&passed).contains("are sound"), "{}", said(&passed));
    assert!(!places.iter().any(|place| place.exists()), "{places:?}");
    let backup = coppice.cli(&["backup", "show", "main"]);
    assert_eq!(backup["lastDrill"]["result"], "passed", "{backup}");
    assert_eq!(backup["lastVerified"], backup["lastDrill"]["at"], "{backup}");
}

fn what_was_damaged_before_it_was_backed_up_is_found(coppice: &Platform) {
    let found = drill(coppice, "rotten");
    let words = said(&found);
    assert!(!found.status.success() && words.contains("looking at rotten in database app"), "{words}");
    let backup = coppice.cli(&["backup", "show", "rotten"]);
    assert_eq!((&backup["lastDrill"]["result"], &backup["lastVerified"]), (&json!("failed"), &Value::Null));
    assert!(!coppice.data_dir().join("instances/drill").exists());
    coppice.cli(&["branch", "delete", "rotten", "--yes", "--purge"]);
}

/// It was a copy of it when it was made, and was restored by itself.
fn a_child_shares_what_it_has_of_its_parent(coppice: &Platform) {
    // Of a catalog that nobody has changed.
    let extents = |branch: &str| {
        let file = data_of(coppice, branch).join("base/1/1255");
        let told = Command::new("filefrag").arg("-v").arg(&file).output().expect("e2fsprogs are installed");
        let places = said(&told)
            .lines()
            .filter_map(|line| line.split(':').nth(2).map(|places| places.trim().to_owned()))
            .collect::<Vec<_>>();
        assert!(told.status.success() && !places.is_empty(), "{}", said(&told));
        places
    };
    assert_eq!(extents("kid"), extents("main"), "on the same places of the disk");
}

/// History of before is gone with the machine.
fn a_moment_that_only_the_store_has_is_restored(coppice: &Platform, at: &str) {
    let history = coppice.cli(&["branch", "history", "main"]);
    assert!(history["window"]["from"].as_str() > Some(at), "{history}");
    let backup = coppice.cli(&["backup", "show", "main"]);
    assert!(
        backup["earliestRestore"].as_str() < Some(at) && backup["latestRestore"].as_str() > Some(at),
        "{backup}"
    );
    coppice.cli(&["backup", "restore", "main", "--name", "middle", "--at", at]);
    assert_eq!(coppice.sql("middle", "SELECT count(*), max(i) FROM t"), "10000|10", "and nothing of later");
    assert_eq!(coppice.sql("middle", "INSERT INTO t VALUES (11)"), "INSERT 0 1");
    let early =
        coppice.run(&["backup", "restore", "main", "--name", "never", "--at", "2020-01-01T00:00:00Z"]);
    assert!(
        !early.status.success() && said(&early).contains("before its history begins"),
        "{}",
        said(&early)
    );
}

#[test]
fn a_lost_machine_comes_back_from_its_store_and_its_key() {
    let home = directory("coppice-files-");
    let (store, key) = (home.path().join("store"), home.path().join("secret.key"));
    let mut coppice = Platform::start(PROGRAM, Options::default());
    coppice.cli(&["branch", "create", "kid", "--parent", "main"]);
    coppice.sql("kid", "CREATE TABLE t AS SELECT 1 AS i");
    coppice.cli(&["branch", "hibernate", "kid", "--yes"]);
    make_rotten(&coppice);
    assert_eq!(coppice.terminate(), Some(0));
    // The process ends in the middle of the first base.
    use_store(&mut coppice, &store);
    coppice.set_environment(&[("COPPICE_FAILPOINTS", "base.read=abort")]);
    coppice.spawn();
    coppice.wait_end();
    assert_eq!(count(&store.join("bases")), 0, "without its manifest there is no base");
    coppice.set_environment(&[("COPPICE_FAILPOINTS", "drill.looked=abort")]);
    coppice.spawn();
    coppice.wait_ready();
    fs::copy(coppice.data_dir().join("secret.key"), &key).expect("a copy of the key");
    let admin = fs::read(coppice.data_dir().join("admin.env")).expect("a file");
    wait_for("all have a base", PATIENCE, || {
        let known = |name| coppice.cli(&["backup", "show", name])["earliestRestore"].is_string();
        (count(&store.join("bases")) == 3 && ["kid", "rotten"].into_iter().all(known)).then_some(())
    });
    a_killed_drill_leaves_nothing_and_the_next_one_finds_what_is_damaged(&mut coppice, &store);
    what_was_damaged_before_it_was_backed_up_is_found(&coppice);
    // None of this is in a base; that of the kid was made while it slept.
    coppice.sql("main", "CREATE TABLE t (i bigint, at timestamptz DEFAULT clock_timestamp())");
    // Its log is sent as soon as it is written down what base there is.
    wait_for_log(&coppice, "main", &store);
    let insert = |coppice: &Platform, row: u32| {
        coppice.sql("main", &format!("INSERT INTO t SELECT {row} FROM generate_series(1, 1000)"));
    };
    (1..=10).for_each(|row| insert(&coppice, row));
    let middle = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
    (11..=20).for_each(|row| insert(&coppice, row));
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
    let mut coppice = Platform::prepare(PROGRAM, Options { begins_with_nothing: true, ..Options::default() });
    use_store(&mut coppice, &store);
    let wrong = home.path().join("wrong.key");
    fs::write(&wrong, [7; 32]).expect("a file");
    let refused = recover(coppice.data_dir(), &store, &wrong);
    assert!(!refused.status.success() && said(&refused).contains("another key"), "{}", said(&refused));
    // What the store says of itself is in clear, and decides which accounts of the machine servers run as.
    let head = store.join("coppice.json");
    let told = fs::read_to_string(&head).expect("a head");
    let own: Value = serde_json::from_str(&told).expect("JSON");
    let changed = told.replace(&text_of(&own["installation"]), "ins_of_a_neighbour");
    fs::write(&head, changed).expect("written");
    let refused = recover(coppice.data_dir(), &store, &key);
    assert!(
        !refused.status.success() && said(&refused).contains("somebody changed it"),
        "{}",
        said(&refused)
    );
    fs::write(&head, told).expect("written");
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
    a_child_shares_what_it_has_of_its_parent(&coppice);
    a_moment_that_only_the_store_has_is_restored(&coppice, &middle);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}
