//! What may be used in a month: a part of the stories of branches that sleep.

use coppice_test_support::{Platform, psql};
use serde_json::json;

use crate::branches::{status, wait_for_status};

/// A branch that connections wake uses up its budget, and gets more.
pub(crate) fn keeps_asleep(coppice: &Platform, main: &str, url: &str) {
    let id = coppice.branch_id("main");
    let correct = |hour: &str| {
        let what = ["--hour", hour, "--meter", "awake", "--type", "small", "--by", "10800000000"];
        let command = ["admin", "correct-usage", &id, "--reason", "an outage was counted as sleep"];
        coppice.run(&[&command[..], &what].concat())
    };
    let refused = correct("2020-01-01T00:00:00Z");
    assert!(!refused.status.success());
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("is not sealed, or nothing was ever metered of that branch"), "{why}");
    let sealed = psql(
        &coppice.metastore_url(),
        "INSERT INTO usage_sealed (hour) VALUES (date_trunc('month', now(), 'UTC'))
         RETURNING to_char(hour AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')",
    );
    let hour = sealed.out.lines().next().expect("an hour");
    let corrected = correct(hour);
    assert!(corrected.status.success(), "{}", String::from_utf8_lossy(&corrected.stderr));
    let lines = coppice.run(&["admin", "audit", "--action", "admin.correctUsage"]);
    let told = String::from_utf8_lossy(&lines.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("admin.correctUsage succeeded operator"), "{told}");
    coppice.cli(&["budget", "set", "3", "instance-hours", "--branch", "main"]);
    wait_for_status(coppice, main, "STATUS_TYPE_HIBERNATED");
    let said = psql(url, "SELECT 1");
    assert!(said.err.contains("its own budget, 3 instance-hours a month, is used up"), "{}", said.err);
    assert!(said.err.contains("The owner or an admin of the organization can raise it"), "{}", said.err);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let refused =
        runtime.block_on(tokio_postgres::connect(url, tokio_postgres::NoTls)).err().expect("an error");
    assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("53400"), "{refused}");
    assert_eq!(status(coppice, main), "STATUS_TYPE_HIBERNATED", "whoever asks, and however often");
    let (code, answer) = coppice.call(
        "POST",
        &format!("{main}/upgrade"),
        Some(&json!({ "image": "postgres:18", "check": true })),
    );
    assert_eq!((code, &answer["id"]), (403, &json!("budget_reached")), "no server of it works");
    let list = coppice.cli(&["budget", "list"]);
    assert_eq!(list["budgets"][0]["reached"], 100, "{list}");

    coppice.cli(&["budget", "set", "300", "instance-hours", "--branch", "main"]);
    assert_eq!(psql(url, "SELECT i FROM t").out, "7", "it wakes at once");
    coppice.cli(&["budget", "remove", "--branch", "main"]);
}
