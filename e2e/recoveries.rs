//! Kills while bases are made, while a lost platform comes back, and while branches are
//! restored; and restores of what was restored.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use coppice_test_support::{Leftovers, Options, Platform, directory, psql, wait_for};

use crate::setup::PROGRAM;
use crate::store::{count, platform_with_store, recover, said, use_store, wait_for_log, wait_for_records};

const PATIENCE: Duration = Duration::from_secs(120);
const ROWS: &str = "SELECT string_agg(i::text, ' ' ORDER BY i) FROM t";

fn arm(coppice: &mut Platform, step: &str) {
    let rule = if step.is_empty() { String::new() } else { format!("{step}=abort") };
    coppice.set_environment(&[("COPPICE_FAILPOINTS", &rule)]);
}

fn answer(coppice: &Platform, branch: &str, sql: &str) -> String {
    let asked = || Some(coppice.psql(branch, sql)).filter(|said| said.is_ok).map(|said| said.out);
    wait_for("the branch is back", PATIENCE, asked)
}

/// Another base is due of every branch.
fn let_bases_be_due(coppice: &Platform) {
    assert!(psql(&coppice.metastore_url(), "UPDATE bases SET seen_at = seen_at - interval '8 days'").is_ok);
}

fn each_step_of_a_base_may_be_the_last(coppice: &mut Platform, store: &Path) {
    for (step, row) in ["base.frozen", "base.read", "base.written"].into_iter().zip(2..) {
        let before = count(&store.join("bases"));
        coppice.sql("main", &format!("INSERT INTO t VALUES ({row})"));
        arm(coppice, step);
        coppice.restart();
        let_bases_be_due(coppice);
        coppice.wait_end();
        let has_ended_behind_it = step == "base.written";
        let now = count(&store.join("bases"));
        assert_eq!(now > before, has_ended_behind_it, "{step}: a base is there when all of it is");
        arm(coppice, "");
        coppice.spawn();
        coppice.wait_ready();
        let_bases_be_due(coppice);
        wait_for("a base is made", PATIENCE, || (count(&store.join("bases")) > now).then_some(()));
    }
    coppice.sql("main", "INSERT INTO t VALUES (5)");
    wait_for_log(coppice, "main", store);
}

fn each_step_of_the_way_back_may_be_the_last(store: &Path, key: &Path, admin: &[u8]) -> Platform {
    let mut coppice = Platform::prepare(PROGRAM, Options::default());
    use_store(&mut coppice, store);
    let mut killed = Command::new(PROGRAM);
    killed.args(["admin", "recover", "--data-dir"]).arg(coppice.data_dir());
    killed.arg("--store").arg(format!("file://{}", store.display())).arg("--key-file").arg(key);
    let killed = killed.env("COPPICE_FAILPOINTS", "recover.filled=abort").output().expect("it runs");
    assert!(!killed.status.success(), "{}", said(&killed));
    let done = recover(coppice.data_dir(), store, key);
    assert!(done.status.success(), "{}", said(&done));
    fs::write(coppice.data_dir().join("admin.env"), admin).expect("a file");
    for step in [
        "volume.create.before_fill",
        "volume.create.after_fill",
        "volume.publish.before_rename",
        "volume.publish.after_rename",
        "reconciler.volume_made",
        "server.spawned",
        "first_start.detached",
        "reconciler.first_start_done",
    ] {
        arm(&mut coppice, step);
        coppice.spawn();
        coppice.wait_end();
    }
    arm(&mut coppice, "");
    coppice.spawn();
    coppice.wait_ready();
    coppice
}

/// Each is restored from the one before it, which was written to since.
fn restores_in_a_row_have_what_each_had(coppice: &Platform) {
    let mut expected = answer(coppice, "main", ROWS);
    let mut last = "main".to_owned();
    for row in 100..104 {
        let next = format!("restored-{row}");
        coppice.cli(&["backup", "restore", &last, "--name", &next]);
        // What comes later is of the other one alone.
        coppice.sql(&last, "INSERT INTO t VALUES (1000)");
        assert_eq!(answer(coppice, &next, ROWS), expected, "{next}");
        coppice.sql(&next, &format!("INSERT INTO t VALUES ({row})"));
        expected = format!("{expected} {row}");
        last = next;
    }
    assert_eq!(answer(coppice, &last, ROWS), expected);
}

#[test]
fn whatever_step_of_a_base_or_of_the_way_back_is_the_last_everything_comes_back() {
    let home = directory("coppice-files-");
    let (store, key) = (home.path().join("store"), home.path().join("secret.key"));
    let mut coppice = platform_with_store(&store);
    fs::copy(coppice.data_dir().join("secret.key"), &key).expect("a copy of the key");
    let admin = fs::read(coppice.data_dir().join("admin.env")).expect("a file");
    coppice.sql("main", "CREATE TABLE t (i int); INSERT INTO t VALUES (1)");
    wait_for_log(&coppice, "main", &store);
    each_step_of_a_base_may_be_the_last(&mut coppice, &store);
    wait_for_records(&store);
    coppice.cut_power();
    drop(coppice);
    let mut coppice = each_step_of_the_way_back_may_be_the_last(&store, &key, &admin);
    assert_eq!(answer(&coppice, "main", ROWS), "1 2 3 4 5");
    restores_in_a_row_have_what_each_had(&coppice);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}
