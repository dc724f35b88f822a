//! Clients that registered themselves: which of them make room for others.

use coppice_core::UserId;
use coppice_store::{NewUser, RegisteredClient, Store};
use sqlx::PgConnection;

use crate::connect;
use crate::postgres::Postgres;
use crate::sign_ins::begin_session_of;

const MAX: i64 = 30;

async fn store() -> (Store, PgConnection) {
    connect(&Postgres::shared().database()).await
}

async fn person(store: &Store, name: &str) -> UserId {
    let id = UserId::from_trusted(format!("usr_{name}"));
    let email = format!("{name}@example.com");
    let new =
        NewUser { id: &id, email: &email, is_email_verified: true, name, password: None, guest_of: None };
    let mut tx = store.begin().await.unwrap();
    store.user_insert_in_tx(&mut tx, &new).await.unwrap();
    tx.commit().await.unwrap();
    id
}

async fn register(store: &Store, id: &str) -> bool {
    let client = RegisteredClient { id: id.to_owned(), name: String::new(), redirect_uris: vec![] };
    store.oauth_client_insert(&client, MAX).await.unwrap()
}

async fn sign_in(store: &Store, client_id: &str, user: &UserId) {
    let id = format!("ses_{client_id}_{user}");
    let mut tx = store.begin().await.unwrap();
    assert!(begin_session_of(store, &mut tx, &id, client_id, user).await);
    tx.commit().await.unwrap();
}

async fn fill(store: &Store, prefix: &str, count: i64, user: Option<&UserId>) {
    for number in 0..count {
        let id = format!("{prefix}{number}");
        assert!(register(store, &id).await, "{id}");
        if let Some(user) = user {
            sign_in(store, &id, user).await;
        }
    }
}

async fn left(sql: &mut PgConnection, prefix: &str) -> Vec<String> {
    let query = "select id from oauth_clients where id like $1 || '%' order by created_at, id";
    sqlx::query_scalar(query).bind(prefix).fetch_all(sql).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_closes_the_registration_of_clients_for_others() {
    let (store, mut sql) = store().await;
    let (ada, eve) = (person(&store, "ada").await, person(&store, "eve").await);
    fill(&store, "ada", 2, Some(&ada)).await;
    fill(&store, "eve", MAX - 2, Some(&eve)).await;
    assert!(register(&store, "new").await, "who has most makes room");
    assert_eq!(left(&mut sql, "ada").await.len(), 2);
    assert_eq!(left(&mut sql, "eve").await.first().map(String::as_str), Some("eve1"), "their oldest");
    let of_eve: i64 = sqlx::query_scalar("select count(*) from sessions where client_id = 'eve0'")
        .fetch_one(&mut sql)
        .await
        .unwrap();
    assert_eq!(of_eve, 0, "nothing is left of it");
    // Nor by one who signs in to the clients of others.
    sign_in(&store, "ada0", &eve).await;
    fill(&store, "more", 5, None).await;
    assert_eq!(left(&mut sql, "ada").await, ["ada0", "ada1"]);
    assert_eq!(left(&mut sql, "").await.len(), usize::try_from(MAX).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_drive_out_no_client_that_somebody_signed_in_to() {
    let (store, mut sql) = store().await;
    let ada = person(&store, "ada").await;
    fill(&store, "ada", 20, Some(&ada)).await;
    sqlx::query("delete from sessions").execute(&mut sql).await.unwrap();
    fill(&store, "stranger", 50, None).await;
    assert_eq!(left(&mut sql, "ada").await.len(), 20, "signed out, and not forgotten");
    assert_eq!(left(&mut sql, "stranger").await.first().map(String::as_str), Some("stranger40"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_have_no_session_of_makes_room_before_what_they_use() {
    let (store, mut sql) = store().await;
    let people = [person(&store, "ada").await, person(&store, "bob").await, person(&store, "eve").await];
    for (user, prefix) in people.iter().zip(["ada", "bob", "eve"]) {
        fill(&store, prefix, MAX / 3, Some(user)).await;
    }
    assert!(!register(&store, "new").await, "each is in use, and nobody has more than others");
    sqlx::query("update sessions set idle_until = now() where client_id in ('bob3', 'bob7', 'ada9')")
        .execute(&mut sql)
        .await
        .unwrap();
    for (number, gone) in ["ada9", "bob3", "bob7"].into_iter().enumerate() {
        let new = format!("new{number}");
        assert!(register(&store, &new).await, "{gone} makes room");
        sign_in(&store, &new, &person(&store, &new).await).await;
    }
    assert_eq!(left(&mut sql, "ada").await.len(), 9);
    assert_eq!(left(&mut sql, "bob").await.len(), 8);
    assert_eq!(left(&mut sql, "eve").await.len(), 10);
    assert!(!register(&store, "new").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_now_keeps_their_client_until_they_have_signed_in() {
    let (store, mut sql) = store().await;
    let eve = person(&store, "eve").await;
    fill(&store, "eve", MAX, Some(&eve)).await;
    fill(&store, "new", 3, None).await;
    assert_eq!(left(&mut sql, "new").await, ["new0", "new1", "new2"]);
    assert_eq!(left(&mut sql, "eve").await.len(), 27);
    assert!(register(&store, "new3").await, "a tenth is for those");
    assert_eq!(left(&mut sql, "new").await.len(), 4);
    assert!(register(&store, "new4").await);
    assert_eq!(left(&mut sql, "new").await, ["new1", "new2", "new3", "new4"]);
}
