//! Events on their way to webhooks: each to whom it concerns, and to one that
//! tries at a time.

use std::time::Duration;

use coppice_core::webhook::{DeliveryState, Interest};
use coppice_core::{DeliveryId, OrganizationId, WebhookId};
use coppice_store::{AfterAttempt, AttemptEnd, NewWebhook, Store};
use sqlx::PgConnection;

use crate::postgres::Postgres;
use crate::with_rows;

const LEASE: u32 = 60;

fn organization() -> OrganizationId {
    OrganizationId::from_trusted("o")
}

async fn webhook(store: &Store, id: &str, types: &[&str], projects: &[&str]) -> WebhookId {
    let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
    let (id, interest) =
        (WebhookId::from_trusted(id), Interest { types: owned(types), projects: owned(projects) });
    let new = NewWebhook { id: &id, url: "u", description: "", interest: &interest, secret_sealed: b"s" };
    let mut tx = store.begin().await.unwrap();
    store.webhook_insert_in_tx(&mut tx, &organization(), &new).await.unwrap();
    tx.commit().await.unwrap();
    id
}

async fn run(sql: &mut PgConnection, statement: &'static str) {
    sqlx::raw_sql(statement).execute(sql).await.unwrap();
}

/// Makes so many events of members and publishes them.
async fn happen(store: &Store, sql: &mut PgConnection, count: i32) {
    sqlx::query(
        "with users as (insert into users (id, email, name)
             select gen_random_uuid()::text, gen_random_uuid() || '@example.com', '' from generate_series(1, $1)
             returning id)
         insert into members (organization_id, user_id, role) select 'o', id, 'viewer' from users",
    )
    .bind(count)
    .execute(sql)
    .await
    .unwrap();
    store.event_publish().await.unwrap();
}

async fn due(store: &Store) -> Vec<DeliveryId> {
    store.delivery_due(1000).await.unwrap().into_iter().map(|due| due.id).collect()
}

fn end(next: AfterAttempt, status: u16) -> AttemptEnd {
    AttemptEnd { next, status: Some(status), failure: None, is_slow: next != AfterAttempt::Delivered }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_goes_to_those_that_want_it_and_were_there_when_it_was_published() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    store.event_publish().await.unwrap();
    let all = webhook(&store, "all", &[], &[]).await;
    let members = webhook(&store, "members", &["member.added"], &[]).await;
    let project = webhook(&store, "project", &[], &["p"]).await;
    let off = webhook(&store, "off", &[], &[]).await;
    run(&mut sql, "update webhooks set enabled = false where id = 'off'").await;
    run(&mut sql, "update branches set state = 'failed'").await;
    happen(&store, &mut sql, 1).await;
    let kinds = async |webhook: &WebhookId| {
        let listed = store.delivery_list(webhook, None, 10).await.unwrap();
        listed.iter().map(|delivery| delivery.kind.as_str()).collect::<Vec<_>>()
    };
    let mut of_all = kinds(&all).await;
    of_all.sort_unstable();
    assert_eq!(of_all, ["branch.failed", "member.added"]);
    assert_eq!(kinds(&members).await, ["member.added"]);
    assert_eq!(kinds(&project).await, ["branch.failed"]);
    assert_eq!(kinds(&off).await, [""; 0]);
    assert_eq!(due(&store).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_claim_at_once_get_different_deliveries_and_each_is_claimed_again_after_its_lease() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    store.event_publish().await.unwrap();
    webhook(&store, "w", &[], &[]).await;
    happen(&store, &mut sql, 40).await;
    let waiting = due(&store).await;
    assert_eq!(waiting.len(), 40);
    let mut claiming = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (store, waiting) = (store.clone(), waiting.clone());
        claiming.spawn(async move { store.delivery_claim(&waiting, LEASE).await.unwrap() });
    }
    let claimed = claiming.join_all().await.concat();
    let mut ids: Vec<_> = claimed.iter().map(|claimed| claimed.due.id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((claimed.len(), ids.len()), (40, 40));
    assert!(claimed.iter().all(|claimed| claimed.attempts == 1));
    assert!(due(&store).await.is_empty());
    // Whoever claimed them is gone: when the lease is over, somebody else tries.
    run(&mut sql, "update webhook_deliveries set due_at = now()").await;
    let again = store.delivery_claim(&waiting[..1], LEASE).await.unwrap();
    assert_eq!(again[0].attempts, 2);
    let early = claimed.iter().find(|claimed| claimed.due.id == waiting[0]).unwrap();
    store.delivery_end(early, &end(AfterAttempt::Delivered, 200)).await.unwrap();
    assert_eq!(again[0].event, early.event, "the same message");
    let listed = store.delivery_list(&again[0].due.webhook, None, 100).await.unwrap();
    let shown = listed.iter().find(|delivery| delivery.id == waiting[0]).unwrap();
    assert_eq!(
        shown.state,
        DeliveryState::Pending,
        "what is heard late of an earlier attempt changes nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_ends_a_delivery_or_puts_it_off_and_it_can_be_begun_anew() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    store.event_publish().await.unwrap();
    let id = webhook(&store, "w", &[], &[]).await;
    happen(&store, &mut sql, 1).await;
    let delivery = due(&store).await.remove(0);
    let attempt = async |next: AfterAttempt, status| {
        let claimed = store.delivery_claim(std::slice::from_ref(&delivery), LEASE).await.unwrap();
        store.delivery_end(&claimed[0], &end(next, status)).await.unwrap();
        store.delivery_list(&id, None, 1).await.unwrap().remove(0)
    };
    let resend = async |delivery: &DeliveryId| {
        let mut tx = store.begin().await.unwrap();
        let is_there = store.delivery_resend_in_tx(&mut tx, &id, delivery).await.unwrap();
        tx.commit().await.unwrap();
        is_there
    };
    let shown = attempt(AfterAttempt::Again(Duration::from_secs(300)), 503).await;
    assert_eq!((shown.state, shown.attempts, shown.status), (DeliveryState::Pending, 1, Some(503)));
    assert!(shown.due_at > Some(chrono::Utc::now() + Duration::from_secs(200)), "{shown:?}");
    assert!(due(&store).await.is_empty());
    assert!(resend(&delivery).await);
    let shown = attempt(AfterAttempt::GivenUp, 500).await;
    assert_eq!((shown.state, shown.attempts, shown.due_at), (DeliveryState::Failed, 1, None));
    assert!(resend(&delivery).await);
    let shown = attempt(AfterAttempt::Delivered, 204).await;
    assert_eq!((shown.state, shown.status), (DeliveryState::Delivered, Some(204)));
    assert!(!resend(&DeliveryId::from_trusted("other")).await);
    assert!(store.webhook_delete(&organization(), &id).await.unwrap());
    assert!(!store.webhook_delete(&organization(), &id).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_gone_gets_nothing_more_until_it_is_turned_on_again() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    store.event_publish().await.unwrap();
    let (id, other) = (webhook(&store, "w", &[], &[]).await, webhook(&store, "v", &[], &[]).await);
    happen(&store, &mut sql, 3).await;
    let waiting: Vec<_> = store.delivery_due(1000).await.unwrap();
    let own: Vec<_> = waiting.iter().filter(|due| due.webhook == id).map(|due| due.id.clone()).collect();
    let claimed = store.delivery_claim(&own[..1], LEASE).await.unwrap();
    store.delivery_end(&claimed[0], &end(AfterAttempt::Gone, 410)).await.unwrap();
    let webhook = store.webhook_find(&organization(), &id).await.unwrap().unwrap();
    assert!(webhook.is_gone && !webhook.is_enabled);
    let listed = store.delivery_list(&id, None, 10).await.unwrap();
    assert!(listed.iter().all(|delivery| delivery.state == DeliveryState::Failed), "{listed:?}");
    assert_eq!(due(&store).await.len(), 3, "the other's");
    happen(&store, &mut sql, 1).await;
    assert_eq!(store.delivery_list(&id, None, 10).await.unwrap().len(), 3);
    assert_eq!(store.delivery_list(&other, None, 10).await.unwrap().len(), 4);
    let mut tx = store.begin().await.unwrap();
    let on = coppice_core::webhook::Webhook { is_enabled: true, ..webhook };
    let on = store.webhook_update_in_tx(&mut tx, &on).await.unwrap();
    tx.commit().await.unwrap();
    assert!(on.is_enabled && !on.is_gone);
    happen(&store, &mut sql, 1).await;
    assert_eq!(store.delivery_list(&id, None, 10).await.unwrap().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_was_gone_turns_off_no_webhook_that_has_another_one_by_now() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    store.event_publish().await.unwrap();
    let id = webhook(&store, "w", &[], &[]).await;
    happen(&store, &mut sql, 2).await;
    let waiting = due(&store).await;
    let claimed = store.delivery_claim(&waiting[..1], LEASE).await.unwrap();
    run(&mut sql, "update webhooks set url = 'https://new.example.com'").await;
    store.delivery_end(&claimed[0], &end(AfterAttempt::Gone, 410)).await.unwrap();
    let webhook = store.webhook_find(&organization(), &id).await.unwrap().unwrap();
    assert!(webhook.is_enabled && !webhook.is_gone);
    assert_eq!(due(&store).await.len(), 2, "it is tried at the new one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_secret_signs_for_a_day() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    store.event_publish().await.unwrap();
    let id = webhook(&store, "w", &[], &[]).await;
    let mut tx = store.begin().await.unwrap();
    let rotated = store.webhook_rotate_in_tx(&mut tx, &organization(), &id, b"t").await.unwrap().unwrap();
    tx.commit().await.unwrap();
    assert!(rotated.former_secret_until > Some(chrono::Utc::now() + Duration::from_secs(23 * 3600)));
    let secrets = async |sql: &mut PgConnection| {
        happen(&store, sql, 1).await;
        let claimed = store.delivery_claim(&due(&store).await, LEASE).await.unwrap();
        claimed[0].secrets_sealed.clone()
    };
    assert_eq!(secrets(&mut sql).await, [b"t".to_vec(), b"s".to_vec()], "the new one first");
    run(&mut sql, "update webhooks set former_until = now()").await;
    assert_eq!(secrets(&mut sql).await, [b"t".to_vec()]);
    let shown = store.webhook_find(&organization(), &id).await.unwrap().unwrap();
    assert_eq!(shown.former_secret_until, None);
    store.webhook_forget_former_secrets().await.unwrap();
    let kept: Option<Vec<u8>> =
        sqlx::query_scalar("select former_secret_sealed from webhooks").fetch_one(&mut sql).await.unwrap();
    assert_eq!(kept, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_tried_by_turns_of_owners_and_who_is_slow_comes_after_all_others() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    store.event_publish().await.unwrap();
    for id in ["one", "two", "other"] {
        webhook(&store, id, &["member.added"], &[]).await;
    }
    // Two organizations of one person, and one of another.
    run(
        &mut sql,
        "insert into organizations (id, name) values ('o2', 'o2'), ('p', 'p');
         insert into users (id, email, name) values ('many', 'many@example.com', ''), ('few', 'few@example.com', '');
         insert into members (organization_id, user_id, role)
             values ('o', 'many', 'owner'), ('o2', 'many', 'owner'), ('p', 'few', 'owner')",
    )
    .await;
    store.event_publish().await.unwrap();
    run(
        &mut sql,
        "delete from webhook_deliveries;
         update webhooks set organization_id = 'o2' where id = 'two';
         update webhooks set organization_id = 'p' where id = 'other'",
    )
    .await;
    happen(&store, &mut sql, 2).await;
    run(
        &mut sql,
        "insert into webhook_deliveries (id, webhook_id, event_seq)
         select w || '-' || event_seq, w, event_seq from webhook_deliveries, unnest(array['two', 'other']) w
         where webhook_id = 'one';
         update webhook_deliveries set due_at = now() - case webhook_id
             when 'one' then interval '3 hours' when 'two' then interval '2 hours' else interval '1 hour' end",
    )
    .await;
    let order = async || {
        let due = store.delivery_due(1000).await.unwrap().into_iter();
        due.map(|due| format!("{} {}", due.holder.as_str(), due.webhook)).collect::<Vec<_>>()
    };
    let (one, two, other) = ("many one", "many two", "few other");
    assert_eq!(order().await, [one, other, two, other, one, two]);
    let attempt = async |webhook: &str, end: AttemptEnd| {
        let due = store.delivery_due(1000).await.unwrap();
        let first = due.iter().find(|due| due.webhook.as_str() == webhook).unwrap().id.clone();
        let claimed = store.delivery_claim(&[first], LEASE).await.unwrap().remove(0);
        store.delivery_end(&claimed, &end).await.unwrap();
        claimed.due
    };
    let taken = attempt("one", end(AfterAttempt::Delivered, 200)).await;
    assert_eq!((taken.holder.as_str(), taken.is_slow), ("many", false));
    assert_eq!(order().await, [other, one, other, two, two], "whoever had no turn for longest");
    attempt("other", end(AfterAttempt::Delivered, 200)).await;
    assert_eq!(order().await, [one, other, two, two]);
    let late = AttemptEnd { is_slow: true, ..end(AfterAttempt::Delivered, 200) };
    attempt("two", late).await;
    assert_eq!(order().await, [other, one, two], "it took the last one late");
    let due = store.delivery_due(1000).await.unwrap();
    assert_eq!(due.iter().map(|due| due.is_slow).collect::<Vec<_>>(), [false, false, true]);
    attempt("other", AttemptEnd { status: None, ..end(AfterAttempt::Again(Duration::ZERO), 0) }).await;
    assert_eq!(order().await, [one, two, other], "it did not take the last one");
    attempt("other", end(AfterAttempt::Delivered, 200)).await;
    assert_eq!(order().await, [one, two]);
}
