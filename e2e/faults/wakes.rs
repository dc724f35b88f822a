//! Branches that can't be woken.

use coppice_test_support::{Platform, psql, wait_for};
use serde_json::json;

use super::{
    PATIENCE, answer, change, describe, make_sleepy, path, refusal, wait_for_status, with_wrong_password,
};
use crate::branches::data_of;
use crate::setup::platform;

#[test]
fn a_wake_that_fails_says_why() {
    let coppice = platform();
    let main = path(&coppice, "main");
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    make_sleepy(&coppice, &main, 60);
    let url = coppice.connection_string("main");
    std::thread::scope(|scope| {
        // It ends with words in the log that are not the reason of what comes.
        let cut = scope.spawn(|| psql(&url, "SELECT pg_sleep(600)"));
        wait_for("the client is there", PATIENCE, || {
            let count = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'";
            (coppice.sql("main", count) == "1").then_some(())
        });
        change(&coppice, &main, &json!({ "hibernate": true }));
        assert!(!cut.join().expect("a client").is_ok);
    });
    wait_for_status(&coppice, &main, "STATUS_TYPE_HIBERNATED");
    let file = data_of(&coppice, "main").join("PG_VERSION");
    let aside = file.with_extension("aside");
    std::fs::rename(&file, &aside).expect("a file");
    fails_with(&coppice, &main, &url, "is not a valid data directory");

    std::fs::rename(&aside, &file).expect("a file");
    wait_for_status(&coppice, &main, "STATUS_TYPE_HEALTHY");
    assert_eq!(coppice.sql("main", "SELECT i FROM t"), "7");

    // Its logger runs when this is found missing.
    change(&coppice, &main, &json!({ "hibernate": true }));
    wait_for_status(&coppice, &main, "STATUS_TYPE_HIBERNATED");
    let wal = data_of(&coppice, "main").join("pg_wal");
    std::fs::rename(&wal, wal.with_extension("aside")).expect("a directory");
    fails_with(&coppice, &main, &url, "required WAL directory \"pg_wal\" does not exist");
}

fn fails_with(coppice: &Platform, main: &str, url: &str, words: &str) {
    // The first client waits for the wake, a later one finds that it failed.
    for client in ["first", "later"] {
        let (code, message) = refusal(url);
        assert_eq!(code, "57P03", "{client}: {message}");
        assert!(message.contains("is not ready (failed): "), "{client}: {message}");
        assert!(message.contains(words), "{client}: {message}");
    }
    let (code, message) = refusal(&with_wrong_password(url));
    assert_eq!(code, "28P01", "strangers are told nothing: {message}");
    let told = describe(coppice, main);
    assert_eq!(told["status"]["statusType"], "STATUS_TYPE_FAULT");
    assert_eq!(told["status"]["status"], "Failed");
    let message = told["status"]["message"].as_str().expect("a message");
    assert!(message.contains(words), "{message}");
}

#[test]
fn a_branch_without_its_control_file_fails_and_comes_back_with_it() {
    let coppice = platform();
    let main = path(&coppice, "main");
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    make_sleepy(&coppice, &main, 60);
    let url = coppice.connection_string("main");
    change(&coppice, &main, &json!({ "hibernate": true }));
    wait_for_status(&coppice, &main, "STATUS_TYPE_HIBERNATED");
    let file = data_of(&coppice, "main").join("global/pg_control");
    let aside = file.with_extension("aside");
    std::fs::rename(&file, &aside).expect("a file");

    // What was kept of its roles can't be trusted without it, so nobody can be
    // told more than that it is not ready.
    let (code, message) = refusal(&url);
    assert_eq!((code.as_str(), message.as_str()), ("57P03", "the branch is not ready"));
    wait_for("it failed", PATIENCE, || {
        let told = describe(&coppice, &main);
        let message = told["status"]["message"].as_str().expect("a message");
        (told["status"]["status"] == "Failed" && message.contains("pg_control")).then_some(())
    });
    std::fs::rename(&aside, &file).expect("a file");
    assert_eq!(answer(&coppice, "main", "SELECT i FROM t"), "7");
}
