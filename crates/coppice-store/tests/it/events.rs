//! What happened, in an order that nobody misses anything in.

use coppice_core::branch::BranchState;
use coppice_core::claim::ClaimToken;
use coppice_core::organization::Role;
use coppice_core::{BranchId, HostId, OrganizationId, ProjectId, UserId};
use coppice_store::{Event, EventFilter, Store};
use sqlx::{Connection, PgConnection};

use crate::postgres::Postgres;
use crate::with_rows;

const BRANCH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaa";

fn organization() -> OrganizationId {
    OrganizationId::from_trusted("o")
}

async fn published(store: &Store, filter: &EventFilter) -> (Vec<Event>, i64) {
    store.event_publish().await.unwrap();
    store.event_list(&organization(), filter, 200).await.unwrap().unwrap()
}

/// Types of the events behind a number, and the last number.
async fn types_after(store: &Store, after: i64) -> (Vec<&'static str>, i64) {
    let (events, last) = published(store, &EventFilter { after, ..EventFilter::default() }).await;
    (events.iter().map(|event| event.kind.as_str()).collect(), last)
}

async fn run(sql: &mut PgConnection, statement: &'static str) {
    sqlx::raw_sql(statement).execute(sql).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_late_comes_behind_what_was_read_before() {
    let server = Postgres::shared();
    let options = server.database();
    let (store, mut sql) = with_rows(&options).await;
    let (_, start) = types_after(&store, 0).await;
    run(
        &mut sql,
        "insert into users (id, email, name) values ('u', 'u@example.com', ''), ('v', 'v@example.com', '')",
    )
    .await;
    let mut other = PgConnection::connect_with(&options).await.unwrap();
    run(
        &mut other,
        "begin; insert into members (organization_id, user_id, role) values ('o', 'u', 'viewer')",
    )
    .await;
    run(&mut sql, "insert into members (organization_id, user_id, role) values ('o', 'v', 'viewer')").await;
    let (early, read) = published(&store, &EventFilter { after: start, ..EventFilter::default() }).await;
    assert_eq!(early.len(), 1);
    assert_eq!(early[0].data["user_id"], "v");
    run(&mut other, "commit").await;
    let (late, _) = published(&store, &EventFilter { after: read, ..EventFilter::default() }).await;
    assert_eq!(late.len(), 1, "it was written first, and nobody has read on beyond it");
    assert_eq!(late[0].data["user_id"], "u");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_that_publish_at_once_number_everything_once_and_readers_miss_nothing() {
    const WRITERS: usize = 4;
    const EACH: usize = 40;
    let server = Postgres::shared();
    let options = server.database();
    let (store, mut sql) = with_rows(&options).await;
    let (_, start) = types_after(&store, 0).await;
    run(&mut sql, "insert into users (id, email, name) select 'u' || n, n || '@example.com', '' from generate_series(1, 160) n").await;
    let mut writing = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (store, options) = (store.clone(), options.clone());
        writing.spawn(async move {
            let mut own = PgConnection::connect_with(&options).await.unwrap();
            for turn in 0..EACH {
                let user = format!("u{}", writer * EACH + turn + 1);
                let insert = sqlx::query(
                    "insert into members (organization_id, user_id, role) values ('o', $1, 'viewer')",
                );
                insert.bind(user).execute(&mut own).await.unwrap();
                store.event_publish().await.unwrap();
            }
        });
    }
    let (mut seen, mut after) = (vec![], start);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while seen.len() < WRITERS * EACH {
        assert!(std::time::Instant::now() < deadline, "{} of {}", seen.len(), WRITERS * EACH);
        let filter = EventFilter { after, ..EventFilter::default() };
        let (events, last) = store.event_list(&organization(), &filter, 7).await.unwrap().unwrap();
        assert!(events.iter().map(|event| event.number).eq(after + 1..after + 1 + events.len() as i64));
        seen.extend(events.iter().map(|event| event.data["user_id"].as_str().unwrap().to_owned()));
        after = last;
    }
    while let Some(done) = writing.join_next().await {
        done.unwrap();
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), WRITERS * EACH);
    assert_eq!(types_after(&store, after).await.0, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_a_branch_is_told_once_each() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let (told, mut last) = types_after(&store, 0).await;
    assert_eq!(told, ["key.created", "branch.created"]);
    let id = BranchId::from_trusted(BRANCH);
    let token = ClaimToken::new(1, 1);
    store.branch_claim(&id, &HostId::from_trusted("h"), token, 60).await.unwrap().unwrap();
    let mut expect = async |state: &[BranchState], types: &[&str]| {
        for state in state {
            store.branch_report(&id, token, *state, "").await.unwrap();
        }
        let (told, now) = types_after(&store, last).await;
        assert_eq!(told, types, "{state:?}");
        last = now;
    };
    use BranchState::{Failed, Hibernated, Hibernating, Ready, Updating, Waking};
    run(&mut sql, "update branches set state = 'creating'").await;
    expect(&[Ready], &["branch.ready"]).await;
    expect(&[Waking, Ready, Updating, Ready], &[]).await;
    expect(&[Failed, Waking, Failed, Waking, Ready], &["branch.failed", "branch.ready"]).await;
    store.branch_report(&id, token, Failed, "no room").await.unwrap();
    let reason = "select data->>'reason' from events where type = 'branch.failed' order by seq";
    let reasons: Vec<Option<String>> = sqlx::query_scalar(reason).fetch_all(&mut sql).await.unwrap();
    assert_eq!(reasons, [None, Some("no room".to_owned())]);
    expect(&[Ready], &["branch.failed", "branch.ready"]).await;
    run(&mut sql, "update branches set goal = 'hibernated'").await;
    expect(&[Hibernating, Hibernated], &["branch.hibernated"]).await;
    run(&mut sql, "update branches set goal = 'running'").await;
    expect(&[Waking, Ready], &["branch.woken"]).await;
    run(&mut sql, "update branches set managed_role_verifier = 'another'").await;
    expect(&[], &["credentials.rotated"]).await;
    for _ in 0..2 {
        run(&mut sql, "update branches set expires_at = now() + interval '25 hours'").await;
        store.branch_tell_expiring().await.unwrap();
    }
    expect(&[], &[]).await;
    run(&mut sql, "update branches set expires_at = now() + interval '23 hours'").await;
    store.branch_tell_expiring().await.unwrap();
    store.branch_tell_expiring().await.unwrap();
    expect(&[], &["branch.expiring"]).await;
    run(
        &mut sql,
        "update branches set goal = 'trashed', deleted_at = now(), purge_at = now() + interval '1 day'",
    )
    .await;
    expect(&[Hibernating, Hibernated], &["branch.deleted"]).await;
    run(&mut sql, "update branches set goal = 'running', deleted_at = null, purge_at = null").await;
    expect(&[Waking, Ready], &["branch.ready"]).await;
    run(
        &mut sql,
        "update branches set goal = 'deleted', deleted_at = now(); delete from branches where false",
    )
    .await;
    expect(&[], &["branch.deleted"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_a_branch_says_where_it_is_and_when_it_ends() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    run(&mut sql, "update branches set expires_at = '2999-01-02 03:04:05.678+00', expiry_told = '2999-01-02 03:04:05.678+00'").await;
    let only = EventFilter {
        types: Some(vec!["branch.expiring".to_owned()]),
        projects: Some(vec!["p".to_owned()]),
        branches: Some(vec![BRANCH.to_owned()]),
        ..EventFilter::default()
    };
    let (events, last) = published(&store, &only).await;
    let expected = serde_json::json!({
        "organization_id": "o", "project_id": "p", "branch_id": BRANCH, "name": "main",
        "expires_at": "2999-01-02T03:04:05.678Z",
    });
    assert_eq!(events.iter().map(|event| &event.data).collect::<Vec<_>>(), [&expected]);
    assert!(events[0].id.as_str().starts_with("evt_"));
    assert_eq!(last, 4, "it has looked at the others, too");
    for other in [
        EventFilter { projects: Some(vec!["q".to_owned()]), ..EventFilter::default() },
        EventFilter { branches: Some(vec!["b".to_owned()]), ..EventFilter::default() },
        EventFilter { types: Some(vec![]), ..EventFilter::default() },
    ] {
        assert_eq!(published(&store, &other).await, (vec![], 4));
    }
    let beyond = EventFilter { after: 5, ..EventFilter::default() };
    assert_eq!(store.event_list(&organization(), &beyond, 1).await.unwrap(), None, "never given");
    let elsewhere = OrganizationId::from_trusted("another");
    assert_eq!(store.event_list(&elsewhere, &EventFilter::default(), 9).await.unwrap(), Some((vec![], 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_undone_is_not_told_and_what_is_old_or_too_much_is_forgotten() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let (_, start) = types_after(&store, 0).await;
    run(&mut sql, "insert into users (id, email, name) values ('u', 'u@example.com', '')").await;
    let mut tx = store.begin().await.unwrap();
    let user = UserId::from_trusted("u");
    store.member_insert_in_tx(&mut tx, &organization(), &user, Role::Viewer).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(types_after(&store, start).await, (vec![], start));
    let mut tx = store.begin().await.unwrap();
    store.member_insert_in_tx(&mut tx, &organization(), &user, Role::Viewer).await.unwrap();
    store.member_delete_in_tx(&mut tx, &organization(), &user).await.unwrap();
    tx.commit().await.unwrap();
    let told = types_after(&store, start).await;
    assert_eq!(told, (vec!["member.added", "member.removed"], start + 2));
    assert_eq!(store.event_purge(7, 1).await.unwrap(), 3, "all but the newest");
    assert_eq!(types_after(&store, 0).await, (vec!["member.removed"], start + 2));
    run(&mut sql, "update events set occurred_at = now() - interval '8 days'").await;
    assert_eq!(store.event_purge(7, 1000).await.unwrap(), 1);
    assert_eq!(types_after(&store, 0).await, (vec![], start + 2), "numbers go on");
    let gone = ProjectId::from_trusted("p");
    let mut tx = store.begin().await.unwrap();
    store.branch_delete_in_tx(&mut tx, &gone, coppice_store::Doomed::Everything, "a test").await.unwrap();
    tx.commit().await.unwrap();
    run(&mut sql, "update organizations set deleted_at = now() - interval '31 days'; delete from branches; delete from projects").await;
    assert_eq!(store.organization_purge().await.unwrap(), 1);
    assert_eq!(
        types_after(&store, start + 2).await,
        (vec!["branch.deleted"], start + 3),
        "its key went silently"
    );
    run(&mut sql, "delete from events").await;
    store.event_purge(7, 1000).await.unwrap();
    assert_eq!(types_after(&store, 0).await, (vec![], 0));
}
