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

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_that_goes_on_is_not_replaced_and_ends_with_its_own_password() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    let token = claimed(&store).await;
    begin(&store, "first").await;
    begin(&store, "second").await;
    let role = store.managed_role(&branch()).await.unwrap().unwrap();
    assert_eq!((role.password.verifier.as_str(), role.next), ("SCRAM", Some(password("first"))));
    let host = HostId::from_trusted("h");
    assert_eq!(
        store.branch_unsettled(&host, false).await.unwrap(),
        [branch()],
        "a lost nudge is made up for"
    );
    assert!(!store.rotation_finish(&branch(), token, "second").await.unwrap());
    assert!(store.rotation_finish(&branch(), token, "first").await.unwrap());
    let role = store.managed_role(&branch()).await.unwrap().unwrap();
    assert_eq!((role.password, role.next, role.is_pending), (password("first"), None, false));
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
