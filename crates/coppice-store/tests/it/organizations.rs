//! Organizations that are disabled while somebody else wants something of them.

use std::time::{Duration, Instant};

use coppice_core::organization::BillingStatus;
use coppice_core::{BranchId, OrganizationId};
use coppice_store::{Store, Tx};
use sqlx::PgConnection;
use tokio::task::JoinHandle;

use crate::postgres::Postgres;
use crate::with_rows;

const PATIENCE: Duration = Duration::from_secs(60);

fn organization() -> OrganizationId {
    OrganizationId::from_trusted("o")
}

/// Disables the organization, in a transaction that is still open.
async fn begin_to_disable(store: &Store) -> Tx {
    let mut tx = store.begin().await.unwrap();
    let before = store.organization_lock_in_tx(&mut tx, &organization()).await.unwrap().unwrap();
    assert!(before.is_enabled());
    let status = BillingStatus::DeletionRequested;
    store.organization_set_billing_in_tx(&mut tx, &organization(), status, "").await.unwrap();
    tx
}

/// Waits until this task waits for a lock, or is done.
pub(crate) async fn wait_until_it_waits<T>(sql: &mut PgConnection, task: &JoinHandle<T>) {
    let waiting = "select count(*) from pg_stat_activity
                   where datname = current_database() and wait_event_type = 'Lock'";
    let deadline = Instant::now() + PATIENCE;
    while !task.is_finished() {
        let count: i64 = sqlx::query_scalar(waiting).fetch_one(&mut *sql).await.unwrap();
        if count == 1 {
            return;
        }
        assert!(Instant::now() < deadline, "it neither ends nor waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_locks_an_organization_knows_whether_it_is_enabled() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let disabling = begin_to_disable(&store).await;
    let other = store.clone();
    let late = tokio::spawn(async move {
        let mut tx = other.begin().await.unwrap();
        other.organization_lock_in_tx(&mut tx, &organization()).await.unwrap()
    });
    wait_until_it_waits(&mut sql, &late).await;
    disabling.commit().await.unwrap();
    assert!(!late.await.unwrap().unwrap().is_enabled());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_wakes_a_branch_while_its_organization_is_being_disabled() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let asleep = "update branches set goal = 'hibernated', state = 'hibernated'";
    sqlx::raw_sql(asleep).execute(&mut sql).await.unwrap();
    let disabling = begin_to_disable(&store).await;
    let other = store.clone();
    let branch = BranchId::from_trusted("aaaaaaaaaaaaaaaaaaaaaaaaaa");
    let wake = tokio::spawn(async move { other.branch_wake_for_client(&branch, "x").await.unwrap() });
    wait_until_it_waits(&mut sql, &wake).await;
    disabling.commit().await.unwrap();
    assert!(!wake.await.unwrap());
    let goal: String = sqlx::query_scalar("select goal from branches").fetch_one(&mut sql).await.unwrap();
    assert_eq!(goal, "hibernated");
}
