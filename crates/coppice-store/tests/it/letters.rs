//! Letters that wait to be sent.

use coppice_core::mail::MailContent;
use coppice_core::{InvitationId, OrganizationId};
use coppice_store::Store;

use crate::postgres::Postgres;
use crate::with_rows;

async fn promise(store: &Store, organization: &str, invitation: &str) {
    let content = MailContent::Invitation {
        organization: OrganizationId::from_trusted(organization),
        invitation: InvitationId::from_trusted(invitation),
    };
    let mut tx = store.begin().await.unwrap();
    store.mail_insert_in_tx(&mut tx, invitation, &content).await.unwrap();
    tx.commit().await.unwrap();
}

/// Takes and sends as many letters; returns their ids.
async fn sent(store: &Store, count: u32) -> Vec<String> {
    let mut ids = vec![];
    for _ in 0..count {
        let due = store.mail_claim(60).await.unwrap().unwrap();
        store.mail_delete(&due.id).await.unwrap();
        ids.push(due.id);
    }
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_many_letters_sent_keeps_nobody_elses_waiting() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sqlx::raw_sql(
        "insert into users (id, email, name) values ('many', 'many@example.com', ''), ('few', 'few@example.com', '');
         insert into organizations (id, name) values ('a', 'a'), ('b', 'b'), ('c', 'c');
         insert into members (organization_id, user_id, role)
             values ('a', 'many', 'owner'), ('b', 'many', 'owner'), ('c', 'few', 'owner')",
    )
    .execute(&mut sql)
    .await
    .unwrap();
    for number in 0..3 {
        promise(&store, "a", &format!("a{number}")).await;
        promise(&store, "b", &format!("b{number}")).await;
    }
    promise(&store, "c", "c0").await;
    promise(&store, "c", "c1").await;
    let first = sent(&store, 4).await;
    let of_few: Vec<_> = first.iter().filter(|id| id.starts_with('c')).collect();
    assert_eq!(of_few, ["c0", "c1"], "{first:?}");
    assert_ne!(first[0].starts_with('c'), first[1].starts_with('c'), "{first:?}");
    let mut others =
        [sent(&store, 4).await, first.into_iter().filter(|id| !id.starts_with('c')).collect()].concat();
    others.sort();
    assert_eq!(others, ["a0", "a1", "a2", "b0", "b1", "b2"]);
    assert!(store.mail_claim(60).await.unwrap().is_none());
}
