//! Letters that wait to be sent.

use coppice_core::mail::MailContent;
use coppice_core::{InvitationId, OrganizationId};
use coppice_store::{Room, Store};

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

/// Room for so many, one of each holder, while nothing is being sent.
fn room(count: u32) -> Room {
    Room { count, each: 1, busy: vec![] }
}

/// Takes and sends as many letters; returns their ids.
async fn sent(store: &Store, count: u32) -> Vec<String> {
    let mut ids = vec![];
    for _ in 0..count {
        let (_, due) = store.mail_claim(room(1), 60).await.unwrap().remove(0);
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
    assert!(store.mail_claim(room(1), 60).await.unwrap().is_empty());

    for (organization, letter) in [("a", "a3"), ("b", "b3"), ("c", "c2")] {
        promise(&store, organization, letter).await;
    }
    let begun = store.mail_claim(room(4), 60).await.unwrap();
    let busy: Vec<_> = begun.into_iter().map(|(holder, _)| holder).collect();
    assert_eq!(busy.len(), 2, "one of each holder: {busy:?}");
    assert!(store.mail_claim(Room { busy, ..room(4) }, 60).await.unwrap().is_empty());
    assert_eq!(store.mail_claim(room(4), 60).await.unwrap().len(), 1, "it waited for the other one");
}
