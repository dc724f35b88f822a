//! Shares of the connections.

use std::time::Duration;

use coppice_core::{BranchId, OrganizationId};
use coppice_store::Store;
use coppice_turns::Behalf;
use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;

use crate::postgres::Postgres;
use crate::with_rows;

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until so many statements wait for a lock.
async fn wait_for_waiting(sql: &mut PgConnection, count: i64) {
    let waiting = "select count(*) from pg_stat_activity
                   where datname = current_database() and wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut *sql).await.unwrap() < count {}
}

/// What everybody else asks meanwhile.
async fn others_are_answered(store: &Store) {
    let branch = BranchId::from_trusted("aaaaaaaaaaaaaaaaaaaaaaaaaa");
    let others = async {
        store.branch_find_for_connection(&branch, "postgres").await.unwrap();
        store.begin().await.unwrap().rollback().await.unwrap();
        let other = async {
            store.organization_holder(&OrganizationId::from_trusted("o")).await.unwrap();
            let _tx = store.begin().await.unwrap();
            // Whoever holds one is not kept waiting for a second one by those who wait for a first.
            store.organization_holder(&OrganizationId::from_trusted("o")).await.unwrap();
        };
        Behalf::new("other").within(other).await;
    };
    timeout(PATIENCE, others).await.expect("they have connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_much_leaves_connections_to_others() {
    let server = Postgres::shared();
    let options = server.database();
    let (store, mut sql) = with_rows(&options).await;
    let mut lock = PgConnection::connect_with(&options).await.unwrap();
    let mut lock = lock.begin().await.unwrap();
    sqlx::query("lock table webhooks, audit_log in access exclusive mode").execute(&mut *lock).await.unwrap();
    let organization = OrganizationId::from_trusted("o");
    let asked = (0..100).map(|index| {
        let (store, organization) = (store.clone(), organization.clone());
        tokio::spawn(Behalf::new("one").within(async move {
            if index % 2 == 0 {
                store.webhook_list(&organization).await.unwrap();
                return;
            }
            let mut tx = store.begin().await.unwrap();
            sqlx::query("select count(*) from audit_log").execute(&mut *tx).await.unwrap();
        }))
    });
    let asked: Vec<_> = asked.collect();
    wait_for_waiting(&mut sql, 8).await;
    others_are_answered(&store).await;
    lock.rollback().await.unwrap();
    for one in asked {
        one.await.unwrap();
    }
}
