//! What may be used in a month: a part of the stories of branches that sleep.

use coppice_test_support::{Platform, psql};
use serde_json::json;

use crate::branches::{status, wait_for_status};

/// A branch that connections wake uses up its budget, and gets more.
pub(crate) fn keeps_asleep(coppice: &Platform, main: &str, url: &str) {
    let id = coppice.branch_id("main");
    let used = format!(
        "INSERT INTO usage_hours (branch_id, hour, meter, instance_type, correction, quantity, reason)
         VALUES ('{id}', date_trunc('hour', now(), 'UTC'), 'awake', 'small', 1, 3::numeric * 3600000000, 'a test')"
    );
    assert!(psql(&coppice.metastore_url(), &used).is_ok);
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
