//! What is kept of a sleeping branch's roles.

use coppice_core::BranchId;
use coppice_core::HostId;
use coppice_core::claim::ClaimToken;
use coppice_store::{KeptVerifier, Store};

use crate::postgres::Postgres;
use crate::with_rows;

fn branch() -> BranchId {
    BranchId::from_trusted("aaaaaaaaaaaaaaaaaaaaaaaaaa")
}

async fn kept(store: &Store, role: &str) -> Option<KeptVerifier> {
    store.branch_find_for_connection(&branch(), role).await.unwrap().unwrap().kept
}

fn known(sealed: Option<&[u8]>) -> Option<KeptVerifier> {
    Some(KeptVerifier { checkpoint: "0/1".to_owned(), sealed: sealed.map(<[u8]>::to_vec) })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_told_apart_by_its_own_role_alone() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    let token = ClaimToken::new(1, 1);
    store.branch_claim(&branch(), &HostId::from_trusted("h"), token, 60).await.unwrap().unwrap();
    assert_eq!(kept(&store, "app").await, None, "nothing was kept");
    for roles in [
        &[("app".to_owned(), b"old".to_vec()), ("ada".to_owned(), b"a".to_vec())][..],
        &[("app".to_owned(), b"new".to_vec())],
    ] {
        let mut tx = store.begin().await.unwrap();
        assert!(
            store.branch_keep_verifiers_in_tx(&mut tx, &branch(), token, Some((roles, "0/1"))).await.unwrap()
        );
        tx.commit().await.unwrap();
        for role in ["app", "ada", "bob", &"x".repeat(5000)] {
            let expected = roles.iter().find(|(name, _)| name == role);
            assert_eq!(kept(&store, role).await, known(expected.map(|(_, sealed)| sealed.as_slice())));
        }
    }
    let mut tx = store.begin().await.unwrap();
    assert!(store.branch_keep_verifiers_in_tx(&mut tx, &branch(), token, None).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(kept(&store, "app").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn verifiers_that_were_kept_together_get_a_row_each() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let together = "update branches set verifiers_sealed = 'all', verifiers_checkpoint = '0/1'";
    sqlx::raw_sql(together).execute(&mut sql).await.unwrap();
    assert_eq!(store.verifiers_together().await.unwrap(), Some((branch(), b"all".to_vec())));
    store.verifiers_spread(&branch(), Some(&[("app".to_owned(), b"own".to_vec())])).await.unwrap();
    assert_eq!(store.verifiers_together().await.unwrap(), None);
    assert_eq!(kept(&store, "app").await, known(Some(b"own")));
    assert_eq!(kept(&store, "ada").await, known(None));

    sqlx::raw_sql(together).execute(&mut sql).await.unwrap();
    store.verifiers_spread(&branch(), None).await.unwrap();
    assert_eq!(store.verifiers_together().await.unwrap(), None);
    assert_eq!(kept(&store, "app").await, None, "what is of no use is forgotten");
}
