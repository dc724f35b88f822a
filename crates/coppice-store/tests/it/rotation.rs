//! A rotation in the row of a branch.

use coppice_core::branch::BranchState;
use coppice_core::claim::ClaimToken;
use coppice_core::{BranchId, HostId};
use coppice_store::{KeptPassword, KeptVerifier, Store};

use crate::postgres::Postgres;
use crate::with_rows;

fn branch() -> BranchId {
    BranchId::from_trusted("aaaaaaaaaaaaaaaaaaaaaaaaaa")
}

fn password(name: &str) -> KeptPassword {
    KeptPassword { sealed: name.as_bytes().to_vec(), verifier: name.to_owned() }
}

async fn claimed(store: &Store) -> ClaimToken {
    let token = ClaimToken::new(1, 1);
    store.branch_claim(&branch(), &HostId::from_trusted("h"), token, 60).await.unwrap().unwrap();
    token
}

async fn begin(store: &Store, name: &str) {
    let mut tx = store.begin().await.unwrap();
    store.rotation_begin_in_tx(&mut tx, &branch(), &password(name)).await.unwrap();
    tx.commit().await.unwrap();
}

/// The server has this password.
async fn finish(store: &Store, name: &str) -> bool {
    store.rotation_finish(&branch(), ClaimToken::new(1, 1), &password(name)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_that_goes_on_is_replaced_and_what_its_server_was_told_meanwhile_is_known() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    claimed(&store).await;
    begin(&store, "first").await;
    begin(&store, "second").await;
    let role = store.managed_role(&branch()).await.unwrap().unwrap();
    assert_eq!((role.password.verifier.as_str(), role.next), ("SCRAM", Some(password("second"))));
    let host = HostId::from_trusted("h");
    for (told, goes_on) in [("first", Some(password("second"))), ("second", None)] {
        let unsettled = store.branch_unsettled(&host, false).await.unwrap();
        assert_eq!(unsettled, [branch()], "a lost nudge is made up for");
        assert!(finish(&store, told).await);
        let role = store.managed_role(&branch()).await.unwrap().unwrap();
        assert_eq!((role.password, role.next, role.is_pending), (password(told), goes_on, false));
    }
    assert!(!finish(&store, "third").await, "none goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_was_told_does_not_replace_what_its_branch_has_to_be_told_when_it_wakes() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    claimed(&store).await;
    begin(&store, "first").await;
    let mut tx = store.begin().await.unwrap();
    assert!(store.rotation_store_in_tx(&mut tx, &branch(), None, &password("asleep"), b"").await.unwrap());
    tx.commit().await.unwrap();
    assert!(!finish(&store, "first").await);
    begin(&store, "second").await;
    assert!(!finish(&store, "first").await);
    let role = store.managed_role(&branch()).await.unwrap().unwrap();
    let expected = (password("asleep"), Some(password("second")), true);
    assert_eq!((role.password, role.next, role.is_pending), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_of_before_a_hand_over_keeps_nobody_out() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    let hands_over = async || {
        let (host, token) = (HostId::from_trusted("h"), ClaimToken::new(1, 1));
        store.branch_claim(&branch(), &host, token, 60).await.unwrap().unwrap().hands_over
    };
    assert!(!hands_over().await);
    begin(&store, "former").await;
    let mut tx = store.begin().await.unwrap();
    store.hand_over_begin_in_tx(&mut tx, &branch()).await.unwrap();
    store.rotation_begin_in_tx(&mut tx, &branch(), &password("new")).await.unwrap();
    tx.commit().await.unwrap();
    assert!(finish(&store, "former").await);
    assert!(hands_over().await);
    // As where a branch is ready with a password that was chosen while it slept, and is told that.
    assert!(store.managed_role_told(&branch(), ClaimToken::new(1, 1), "former").await.unwrap());
    assert!(hands_over().await, "whoever told that may not have known");
    assert!(finish(&store, "new").await);
    assert!(!hands_over().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_is_not_ready_before_its_server_was_told() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let asleep =
        "update branches set goal = 'hibernated', state = 'hibernated', verifiers_checkpoint = '0/1'";
    sqlx::raw_sql(asleep).execute(&mut sql).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    assert!(store.rotation_store_in_tx(&mut tx, &branch(), None, &password("new"), b"kept").await.unwrap());
    tx.commit().await.unwrap();
    let role = store.managed_role(&branch()).await.unwrap().unwrap();
    assert_eq!((&role.password, role.is_pending), (&password("new"), true));
    let kept = KeptVerifier { checkpoint: "0/1".to_owned(), sealed: Some(b"kept".to_vec()) };
    assert_eq!(role.kept, Some(kept));

    let token = claimed(&store).await;
    assert!(!store.branch_report(&branch(), token, BranchState::Ready, "").await.unwrap());
    assert!(!store.managed_role_told(&branch(), token, "SCRAM").await.unwrap(), "that is not the one");
    assert!(store.managed_role_told(&branch(), token, "new").await.unwrap());
    assert!(store.branch_report(&branch(), token, BranchState::Ready, "").await.unwrap());
}
