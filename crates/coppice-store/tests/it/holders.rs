//! What is counted for whoever owns organizations.

use coppice_core::OrganizationId;
use coppice_store::Store;

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
    let (store, mut sql) = with_rows(&server.database().await).await;
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
