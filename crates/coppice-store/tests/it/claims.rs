//! Who may act on a branch: the newest claim, and nobody else.

use coppice_core::branch::BranchState;
use coppice_core::claim::ClaimToken;
use coppice_core::{BranchId, HostId};
use coppice_store::{KeptPassword, Store};

use crate::postgres::Postgres;
use crate::with_rows;

const LEASE: u32 = 60;

fn branch() -> BranchId {
    BranchId::from_trusted("aaaaaaaaaaaaaaaaaaaaaaaaaa")
}

fn host() -> HostId {
    HostId::from_trusted("h")
}

async fn claim(store: &Store, token: ClaimToken) -> bool {
    store.branch_claim(&branch(), &host(), token, LEASE).await.unwrap().is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_claim_can_neither_be_taken_nor_report() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    let (older, newer) = (ClaimToken::new(1, 1), ClaimToken::new(1, 2));
    assert!(claim(&store, older).await);
    assert!(claim(&store, newer).await, "the same host claims again");
    assert!(claim(&store, newer).await, "and looks again by the claim that holds");
    assert!(!claim(&store, older).await);
    let failed = BranchState::Failed;
    assert!(!store.branch_report(&branch(), older, failed, "late").await.unwrap());
    assert!(store.branch_report(&branch(), newer, failed, "in time").await.unwrap());
    let mut tx = store.begin().await.unwrap();
    assert!(!store.branch_keep_verifiers_in_tx(&mut tx, &branch(), older, None).await.unwrap());
    drop(tx);
    let password = KeptPassword { sealed: vec![0], verifier: "SCRAM".to_owned() };
    assert!(!store.rotation_finish(&branch(), older, &password).await.unwrap());
    assert!(!store.managed_role_told(&branch(), older, "SCRAM").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_host_waits_until_the_lease_is_over() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    assert!(claim(&store, ClaimToken::new(1, 1)).await);
    // Its volume moves to another host, whose epoch is newer.
    let statements = "insert into hosts values ('g', 'local', 'y', 'b', 9, now());
                      update volumes set host_id = 'g'";
    sqlx::raw_sql(statements).execute(&mut sql).await.unwrap();
    let other = HostId::from_trusted("g");
    let token = ClaimToken::new(9, 1);
    let early = store.branch_claim(&branch(), &other, token, LEASE).await.unwrap();
    assert!(early.is_none(), "the lease of the first host holds");
    sqlx::raw_sql("update branches set claim_expires = now()").execute(&mut sql).await.unwrap();
    assert!(store.branch_claim(&branch(), &other, token, LEASE).await.unwrap().is_some());
    sqlx::raw_sql("update branches set claim_expires = now()").execute(&mut sql).await.unwrap();
    assert!(!claim(&store, ClaimToken::new(9, 2)).await, "the first host has no volume of it any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_at_once_are_one_wake() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sqlx::raw_sql("update branches set goal = 'hibernated', state = 'hibernated'")
        .execute(&mut sql)
        .await
        .unwrap();
    let wakes = (0..8).map(|client| {
        let store = store.clone();
        tokio::spawn(
            async move { store.branch_wake_for_client(&branch(), &client.to_string()).await.unwrap() },
        )
    });
    for wake in wakes.collect::<Vec<_>>() {
        assert!(wake.await.unwrap(), "it is on the way for each of them");
    }
    let generation: i64 =
        sqlx::query_scalar("select generation from branches").fetch_one(&mut sql).await.unwrap();
    assert_eq!(generation, 2, "one change");
    sqlx::raw_sql("update branches set goal = 'hibernated', scale_to_zero = false")
        .execute(&mut sql)
        .await
        .unwrap();
    assert!(
        !store.branch_wake_for_client(&branch(), "x").await.unwrap(),
        "with scale-to-zero off it sleeps on"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_is_awake_is_not_woken_again() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sqlx::raw_sql("update branches set goal = 'hibernated', state = 'hibernated'")
        .execute(&mut sql)
        .await
        .unwrap();
    let mut wake = async || {
        let mut tx = store.begin().await.unwrap();
        let is_woken = store.branch_wake_in_tx(&mut tx, &branch(), "x").await.unwrap();
        tx.commit().await.unwrap();
        let query = "select concat(b.generation, ' ', b.idle_since, ' ', count(*)) from branches b
                     join awake_periods p on p.branch_id = b.id group by b.id";
        (is_woken, sqlx::query_scalar::<_, String>(query).fetch_one(&mut sql).await.unwrap())
    };
    let (is_woken, row) = wake().await;
    assert!(is_woken);
    assert_eq!(wake().await, (false, row), "nothing is changed");
}
