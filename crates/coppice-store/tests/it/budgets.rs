//! Budgets: what is told of them, and what they keep asleep.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use coppice_core::{BranchId, OrganizationId, ProjectId};
use coppice_store::{BudgetReach, Store};

use crate::usage::{Metered, branch_id};

fn organization() -> OrganizationId {
    OrganizationId::from_trusted("o")
}

fn time(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

async fn set(store: &Store, subject: &str, limit: &str) -> bool {
    let mut tx = store.begin().await.unwrap();
    let is_set =
        store.budget_set_in_tx(&mut tx, &organization(), subject, (limit, "instance-hours")).await.unwrap();
    tx.commit().await.unwrap();
    is_set
}

fn reach(subject: &str, limit: &str, reached: u32) -> BudgetReach {
    BudgetReach {
        subject: subject.to_owned(),
        limit: limit.to_owned(),
        unit: "instance-hours".to_owned(),
        reached,
        is_used_up: reached == 100,
    }
}

/// What follows from a look in the month of `day`.
async fn apply(store: &Store, day: DateTime<Utc>, reach: BudgetReach) -> Vec<BranchId> {
    let month = NaiveDate::parse_from_str(&day.format("%Y-%m-01").to_string(), "%Y-%m-%d").unwrap();
    let mut tx = store.begin().await.unwrap();
    store.organization_lock_in_tx(&mut tx, &organization()).await.unwrap();
    let outcome = store.budget_apply_in_tx(&mut tx, &organization(), month, &[reach]).await.unwrap();
    tx.commit().await.unwrap();
    outcome.changed
}

const TOLD: &str = "select count(*) from events where type = 'budget.reached'";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reached_is_told_once_whoever_looks_and_whatever_the_clock_does() {
    let mut metered = Metered::new().await;
    let (march, april) = (time("2026-03-20T00:00:00Z"), time("2026-04-02T00:00:00Z"));
    assert!(set(&metered.store, "p", "20").await);
    assert!(!set(&metered.store, "k2", "20").await, "nothing has this id");
    let (one, other) = (metered.store.clone(), metered.other.clone());
    tokio::join!(apply(&one, march, reach("p", "20", 50)), apply(&other, march, reach("p", "20", 50)));
    assert_eq!(metered.number(TOLD).await, 1, "by one of two control planes");
    apply(&one, march, reach("p", "20", 100)).await;
    apply(&one, march, reach("p", "20", 80)).await;
    apply(&one, march, reach("p", "20", 100)).await;
    assert_eq!(metered.number(TOLD).await, 2, "80 percent are no news after 100");
    apply(&one, april, reach("p", "20", 50)).await;
    apply(&one, march, reach("p", "20", 100)).await;
    apply(&one, april, reach("p", "20", 50)).await;
    assert_eq!(metered.number(TOLD).await, 3, "the clock went on by weeks, and back");
    // Set anew meanwhile: what was found of the old one is worth nothing.
    set(&one, "p", "50").await;
    apply(&other, april, reach("p", "20", 100)).await;
    assert_eq!(metered.number(TOLD).await, 3);
    apply(&other, april, reach("p", "50", 80)).await;
    metered.run("delete from budgets").await;
    set(&one, "p", "50.00").await;
    apply(&other, april, reach("p", "50.00", 80)).await;
    assert_eq!(metered.number(TOLD).await, 4, "of each limit once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_month_that_is_over_keeps_nothing_asleep() {
    let mut metered = Metered::new().await;
    let id = BranchId::from_trusted(branch_id(1));
    metered.make(id.as_str()).await;
    metered.run("update branches set scale_to_zero = false").await;
    set(&metered.store, "o", "1").await;
    let march = time("2026-03-31T23:00:00Z");
    metered.set_clock(march).await;
    assert_eq!(apply(&metered.store, march, reach("o", "1", 100)).await, std::slice::from_ref(&id));
    let used_up = metered.store.budget_of_branch(&id).await.unwrap().unwrap();
    assert_eq!(used_up.until.to_string(), "2026-04-01");
    assert!(apply(&metered.store, march, reach("o", "1", 100)).await.is_empty(), "it sleeps already");
    let april = time("2026-04-01T00:00:00Z");
    metered.set_clock(april).await;
    assert_eq!(metered.store.budget_of_branch(&id).await.unwrap(), None, "before anybody has looked");
    assert_eq!(apply(&metered.store, april, reach("o", "1", 0)).await, [id]);
    assert_eq!(metered.number("select count(*) from branches where goal = 'running'").await, 1);
    let periods = "select count(*) from awake_periods where cause = 'budget' and ended_at is null";
    assert_eq!(metered.number(periods).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_while_a_budget_is_used_up_wakes_nothing() {
    let mut metered = Metered::new().await;
    let id = BranchId::from_trusted(branch_id(1));
    metered.make(id.as_str()).await;
    metered.run("update branches set goal = 'hibernated', state = 'hibernated'").await;
    set(&metered.store, "o", "1").await;
    let march = time("2026-03-01T12:00:00Z");
    let month = march.date_naive();
    let mut tx = metered.store.begin().await.unwrap();
    metered.store.organization_lock_in_tx(&mut tx, &organization()).await.unwrap();
    let (client, woken) = (metered.other.clone(), id.clone());
    let wake = tokio::spawn(async move { client.branch_wake_for_client(&woken, "x").await.unwrap() });
    let waits = "select count(*) from pg_locks where not granted and pid in
         (select pid from pg_stat_activity where datname = current_database())";
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while metered.number(waits).await == 0 {
        assert!(tokio::time::Instant::now() < deadline, "nobody waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let reaches = [reach("o", "1", 100)];
    metered.store.budget_apply_in_tx(&mut tx, &organization(), month, &reaches).await.unwrap();
    tx.commit().await.unwrap();
    assert!(!wake.await.unwrap(), "it saw the budget as it was before it waited");
    let mut tx = metered.store.begin().await.unwrap();
    assert!(!metered.store.branch_wake_in_tx(&mut tx, &id, "x").await.unwrap());
    let project = ProjectId::from_trusted("p");
    assert!(metered.store.budget_in_the_way_in_tx(&mut tx, &project, None).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_led_to_a_key_that_is_gone_is_known_while_its_branches_count() {
    let mut metered = Metered::new().await;
    let branch = branch_id(1);
    metered.make(&branch).await;
    for (key, maker) in [("k1", "k"), ("k2", "k1"), ("k3", "k2")] {
        let make = format!(
            "insert into api_keys (id, organization_id, name, preview, hash, scopes, projects, branches,
                                   created_by_key)
             values ('{key}', 'o', '', '', '{key}', '{{}}', '{{}}', '{{}}', '{maker}')"
        );
        metered.run(&make).await;
    }
    let made = "update branches set made_with = 'k2'; update usage_branches set made_with = 'k2';
                delete from api_keys where id in ('k1', 'k2')";
    metered.run(made).await;
    metered.store.key_line_purge().await.unwrap();
    let left = "select count(*) from key_lines where key_id =";
    assert_eq!(metered.number(&format!("{left} 'k1'")).await, 0, "it is gone, and made no branch");
    assert_eq!(metered.number(&format!("{left} 'k2'")).await, 2, "its branch is there");
    assert_eq!(metered.number(&format!("{left} 'k3'")).await, 3, "it is there");

    let end = format!(
        "delete from branches; delete from usage_periods;
         insert into usage_days (branch_id, day, meter, instance_type, quantity)
             values ('{branch}', '2026-03-01T00:00:00Z', 'awake', 'micro', 1)"
    );
    metered.run(&end).await;
    for (now, count) in [("2026-03-31T23:59:00Z", 2), ("2026-04-01T00:00:00Z", 0)] {
        metered.set_clock(time(now)).await;
        metered.store.key_line_purge().await.unwrap();
        assert_eq!(metered.number(&format!("{left} 'k2'")).await, count, "{now}");
    }
    assert_eq!(metered.number(&format!("{left} 'k3'")).await, 3);
}
