//! What is counted for whoever owns organizations.

use coppice_core::{HostId, OrganizationId, UserId};
use coppice_store::{NewUser, Owner, Store};

use crate::postgres::Postgres;
use crate::with_rows;

/// The wait that an organization is told that wants one more invitation than five an hour.
async fn invite(store: &Store, organization: &str) -> Option<u32> {
    let mut tx = store.begin().await.unwrap();
    let organization = OrganizationId::from_trusted(organization);
    let wait = store.holder_invitation_in_tx(&mut tx, &organization, 5).await.unwrap();
    tx.commit().await.unwrap();
    wait
}

#[tokio::test(flavor = "multi_thread")]
async fn invitations_count_for_the_owner_also_when_their_organization_is_deleted() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sqlx::raw_sql(
        "insert into users (id, email, name) values ('many', 'many@example.com', ''), ('few', 'few@example.com', '');
         insert into organizations (id, name) values ('a', 'a'), ('b', 'b'), ('c', 'c'), ('nobodys', 'n');
         insert into members (organization_id, user_id, role)
             values ('a', 'many', 'owner'), ('b', 'many', 'owner'), ('c', 'few', 'owner'), ('c', 'many', 'admin')",
    )
    .execute(&mut sql)
    .await
    .unwrap();
    for _ in 0..5 {
        assert_eq!(invite(&store, "a").await, None);
    }
    let mut tx = store.begin().await.unwrap();
    assert!(store.organization_delete_in_tx(&mut tx, &OrganizationId::from_trusted("a")).await.unwrap());
    tx.commit().await.unwrap();
    let wait = invite(&store, "b").await;
    assert!(wait.is_some_and(|wait| (3500..=3600).contains(&wait)), "{wait:?}");
    assert_eq!(invite(&store, "c").await, None, "of another owner");
    assert_eq!(invite(&store, "nobodys").await, None);
    sqlx::raw_sql(
        "update holder_invitations set made_at = now() - interval '61 minutes' where holder = 'many'",
    )
    .execute(&mut sql)
    .await
    .unwrap();
    assert_eq!(invite(&store, "b").await, None, "an hour later");
    sqlx::raw_sql("update holder_invitations set made_at = made_at - interval '1 day' where holder = 'many'")
        .execute(&mut sql)
        .await
        .unwrap();
    store.holder_purge().await.unwrap();
    let kept: Vec<String> = sqlx::query_scalar("select holder from holder_invitations order by 1")
        .fetch_all(&mut sql)
        .await
        .unwrap();
    assert_eq!(kept, ["few", "nobodys"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_measured_is_told_with_who_answers_for_it() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let host = HostId::from_trusted("h");
    let holder = async || {
        let found = store.metric_instances(&host).await.unwrap();
        assert!(found.len() == 1 && found[0].id.as_str() == "i" && found[0].branch.as_str().len() == 26);
        assert_eq!(store.storage_instances(&host).await.unwrap()[0].holder, found[0].holder);
        found[0].holder.as_str().to_owned()
    };
    assert_eq!(holder().await, "o", "the organization itself, which nobody owns");
    sqlx::raw_sql(
        "insert into users (id, email, name) values ('owner', 'owner@example.com', '');
         insert into members (organization_id, user_id, role) values ('o', 'owner', 'owner')",
    )
    .execute(&mut sql)
    .await
    .unwrap();
    assert_eq!(holder().await, "owner");
}

/// Makes an account, as a guest of an organization or of nobody, who owns an organization of the same name.
async fn settle(store: &Store, name: &str, is_email_verified: bool, guest_of: Option<&str>) {
    let (id, email) = (UserId::from_trusted(name), format!("{name}@example.com"));
    let guest_of = guest_of.map(OrganizationId::from_trusted);
    let guest_of = guest_of.as_ref();
    let mut tx = store.begin().await.unwrap();
    let new = NewUser { id: &id, email: &email, is_email_verified, name, password: None, guest_of };
    store.user_insert_in_tx(&mut tx, &new).await.unwrap();
    for statement in [
        "insert into organizations (id, name) values ($1, $1)",
        "insert into members (organization_id, user_id, role) values ($1, $1, 'owner')",
    ] {
        sqlx::query(statement).bind(name).execute(&mut *tx).await.unwrap();
    }
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_of_somebody_and_their_guests_are_one_holder_until_their_address_is_shown_to_be_theirs() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    let holder = async |name| store.organization_holder(&OrganizationId::from_trusted(name)).await.unwrap();
    settle(&store, "host", true, None).await;
    settle(&store, "first", false, Some("host")).await;
    settle(&store, "second", false, Some("first")).await;
    settle(&store, "known", true, Some("host")).await;
    settle(&store, "unknown", false, None).await;
    assert_eq!(holder("first").await, holder("second").await, "also a guest's guest");
    for other in ["host", "known", "unknown"] {
        assert_eq!(holder(other).await.as_str(), other);
        assert_ne!(holder(other).await, holder("first").await, "{other} is not held up by guests");
    }
    let mut tx = store.begin().await.unwrap();
    let first = UserId::from_trusted("first");
    store.user_reclaim_in_tx(&mut tx, &first, Owner::default()).await.unwrap().expect("was not verified");
    tx.commit().await.unwrap();
    assert_eq!(holder("first").await.as_str(), "first");
    assert_ne!(holder("second").await, holder("first").await);
}
