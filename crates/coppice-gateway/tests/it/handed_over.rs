//! Sessions that another client had before, who meant ill.

use std::time::Duration;

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::gateway::TestGateway;
use crate::raw::{Message, Raw};

/// Carries SQL out where no tag and no word of a statement tells.
const HIDE: &str = "create function hide(hidden text) returns void language plpgsql
                    as $$ begin execute hidden; end $$";
const TEXT: &str = "select 'as it should be'::text";

async fn pooled(gateway: &TestGateway) -> Client {
    gateway.connect_as(&format!("{}-pooler", gateway.user()), |_| {}).await
}

async fn text(client: &Client, sql: &str) -> String {
    client.query_one(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
}

const BY_SQL: &str = "select name from pg_prepared_statements where from_sql";

async fn simple(client: &Client, sql: &str) -> Vec<String> {
    let messages = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let values = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    values.collect()
}

#[tokio::test]
async fn statements_that_were_changed_where_nobody_saw_it_stay_with_who_did() {
    let gateway = TestGateway::start().await;
    let (hostile, victim) = (pooled(&gateway).await, pooled(&gateway).await);
    hostile.batch_execute(HIDE).await.unwrap();
    let statement = victim.prepare(TEXT).await.unwrap();
    let names = "select name from pg_prepared_statements where statement like '%should be%' and not from_sql";
    for changes in [
        "deallocate {name}; prepare {name} as select ''as it should not''::text",
        "deallocate {name}",
        "deallocate all",
        "prepare mine as select 1",
    ] {
        assert_eq!(victim.query_one(&statement, &[]).await.unwrap().get::<_, &str>(0), "as it should be");
        let name = simple(&hostile, names).await.pop().expect("the session that the victim had");
        let hidden: Vec<_> = changes.replace("{name}", &name).split("; ").map(str::to_owned).collect();
        for hidden in hidden {
            simple(&hostile, &format!("select hide('{hidden}')")).await;
        }
        let got = victim.query_one(&statement, &[]).await;
        assert_eq!(got.unwrap().get::<_, &str>(0), "as it should be", "{changes}");
        assert!(simple(&victim, BY_SQL).await.is_empty());
    }
    // Also in a session that the gateway knows to have none.
    let name = simple(&hostile, names).await.pop().expect("the session that the victim had");
    simple(&hostile, "deallocate all").await;
    let hidden = format!("prepare {name} as select ''as it should not''::text");
    simple(&hostile, &format!("select hide('{hidden}')")).await;
    assert_eq!(simple(&hostile, BY_SQL).await, [name]);
    assert!(simple(&victim, BY_SQL).await.is_empty());
    let got = victim.query_one(&statement, &[]).await;
    assert_eq!(got.unwrap().get::<_, &str>(0), "as it should be");
}

#[tokio::test]
async fn answers_that_one_client_had_coming_are_nobody_elses() {
    let gateway = TestGateway::start().await;
    let (mut hostile, victim) =
        (Raw::connect(&gateway, &format!("{}-pooler", gateway.user())).await, pooled(&gateway).await);
    victim.batch_execute("create table t (i int)").await.unwrap();
    // The copy fails before this Sync, which it would have swallowed after it.
    let (sync, end): (Message, Message) = ((b'S', b""), (b'c', b""));
    let parse = |text: &'static [u8]| (b'P', text);
    hostile
        .send(&[
            parse(b"\0copy t from stdin\0\0\0"),
            (b'B', &[0; 8]),
            (b'E', &[0; 5]),
            (b'd', b"no number\n"),
            sync,
            end,
            parse(b"\0select 'not mine', pg_sleep(0.5)\0\0\0"),
            (b'B', &[0; 8]),
            (b'E', &[0; 5]),
            sync,
        ])
        .await;
    assert!(hostile.hears(b'Z').await);
    for number in ["1", "2", "3"] {
        assert_eq!(simple(&victim, &format!("select '{number}'")).await, [number]);
    }
    let next = pooled(&gateway).await;
    assert_eq!(simple(&next, "select 'next'").await, ["next"]);
}

#[tokio::test]
async fn a_copy_that_a_trigger_forbids_ends_like_any_other_statement() {
    let gateway = TestGateway::start().await;
    let client = pooled(&gateway).await;
    let forbid = "create table t (i int);
        create function forbid() returns trigger language plpgsql as $$ begin raise 'not here'; end $$;
        create trigger forbid before insert on t for each statement execute function forbid()";
    client.batch_execute(forbid).await.unwrap();
    let mut copying = Raw::connect(&gateway, &format!("{}-pooler", gateway.user())).await;
    let copy: Message = (b'P', b"\0copy t from stdin\0\0\0");
    for _ in 0..5 {
        // As libpq does: with the Sync, before the server says that it takes data.
        copying.send(&[copy, (b'B', &[0; 8]), (b'E', &[0; 5]), (b'S', b"")]).await;
        assert!(copying.hears(b'E').await && copying.hears(b'Z').await);
    }
    assert_eq!(simple(&client, "select count(*) from t").await, ["0"]);
}

#[tokio::test]
async fn a_message_that_silences_a_server_is_refused() {
    let gateway = TestGateway::start().await;
    for _ in 0..5 {
        let mut hostile = Raw::connect(&gateway, &format!("{}-pooler", gateway.user())).await;
        hostile.send(&[(b'Q', b"select 1\0"), (b'H', b"x")]).await;
        assert!(!hostile.hears(b'?').await, "its connection ends");
        let next = tokio::time::timeout(Duration::from_secs(15), pooled(&gateway)).await;
        assert_eq!(simple(&next.expect("in time"), "select 'next'").await, ["next"]);
    }
}

#[tokio::test]
async fn a_literal_means_what_it_says_under_the_settings_of_its_client() {
    let gateway = TestGateway::start().await;
    let (european, other) = (pooled(&gateway).await, pooled(&gateway).await);
    european.batch_execute("set datestyle = 'ISO, DMY'").await.unwrap();
    let month = "select extract(month from '01/02/2026'::date)::text";
    let statement = european.prepare(month).await.unwrap();
    for _ in 0..2 {
        assert_eq!(european.query_one(&statement, &[]).await.unwrap().get::<_, &str>(0), "2");
        assert_eq!(text(&other, month).await, "1");
    }
    // Also when it was set for a transaction only, and when it is set later.
    other.batch_execute("begin; set local datestyle = 'ISO, DMY'").await.unwrap();
    let day = "select extract(day from '01/02/2026'::date)::text";
    let inside = other.prepare(day).await.unwrap();
    assert_eq!(other.query_one(&inside, &[]).await.unwrap().get::<_, &str>(0), "1");
    other.batch_execute("commit").await.unwrap();
    assert_eq!(other.query_one(&inside, &[]).await.unwrap().get::<_, &str>(0), "2");
    assert_eq!(text(&pooled(&gateway).await, day).await, "2");
    assert_eq!(text(&european, day).await, "1");
}

#[tokio::test]
async fn a_statement_that_others_have_is_not_read_by_what_a_function_set() {
    let gateway = TestGateway::start().await;
    gateway.limit(1).await;
    let (hostile, victim) = (pooled(&gateway).await, pooled(&gateway).await);
    let set = "create function hide(value text) returns text language sql \
               as $$select set_config('transform_null_equals', value, false)$$";
    hostile.batch_execute(set).await.unwrap();
    let nothing = "select count(*) from (values (null)) as v (i) where i = null";
    let statement = victim.prepare(nothing).await.unwrap();
    simple(&hostile, "select hide('on')").await;
    let own = hostile.prepare(nothing).await.unwrap();
    assert_eq!(hostile.query_one(&own, &[]).await.unwrap().get::<_, i64>(0), 1);
    simple(&hostile, "select hide('off')").await;
    assert_eq!(victim.query_one(&statement, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_copy_leaves_no_lock_behind() {
    let gateway = TestGateway::start().await;
    let next = pooled(&gateway).await;
    next.batch_execute("create table t (i int)").await.unwrap();
    for says_goodbye in [true, false] {
        let mut copying = Raw::connect(&gateway, &format!("{}-pooler", gateway.user())).await;
        copying.send(&[(b'Q', b"copy t from stdin\0")]).await;
        assert!(copying.hears(b'G').await);
        let last: [Message; 2] = [(b'd', b"1\n"), (b'X', b"")];
        copying.send(if says_goodbye { &last } else { &last[..1] }).await;
        drop(copying);
        let locked =
            tokio::time::timeout(Duration::from_secs(60), next.batch_execute("begin; lock t; commit"));
        locked.await.expect("in time").unwrap();
        assert_eq!(simple(&next, "select count(*) from t").await, ["0"], "{says_goodbye}");
    }
}

#[tokio::test]
async fn a_session_is_free_again_after_a_copy_whatever_was_sent_meanwhile() {
    let gateway = TestGateway::start().await;
    gateway.limit(1).await;
    let next = pooled(&gateway).await;
    next.batch_execute("create table t (i int)").await.unwrap();
    let row_of_next = async |told: &str| {
        let told_next = tokio::time::timeout(Duration::from_secs(60), simple(&next, "select 'next'")).await;
        assert_eq!(told_next.expect(told), ["next"]);
    };
    // A server that copies in ignores Sync, before it says that it does and after.
    let copy: Message = (b'Q', b"copy t from stdin\0");
    let (row, end, sync): (Message, Message, Message) = ((b'd', b"1\n"), (b'c', b""), (b'S', b""));
    let mut copying = Raw::connect(&gateway, &format!("{}-pooler", gateway.user())).await;
    copying.send(&[copy, sync]).await;
    assert!(copying.hears(b'G').await);
    copying.send(&[row, sync, row, end]).await;
    assert!(copying.hears(b'Z').await);
    row_of_next("a Sync is no end of a copy").await;
    assert_eq!(simple(&next, "select count(*) from t").await, ["2"]);
    // What is not of a copy ends the connection, as a server of one's own does.
    let batch = [(b'C', &b"Sa\0"[..]), sync, (b'P', b"\0select 1\0\0\0"), sync];
    for message in batch {
        let mut copying = Raw::connect(&gateway, &format!("{}-pooler", gateway.user())).await;
        copying.send(&[copy]).await;
        assert!(copying.hears(b'G').await);
        copying.send(&[message]).await;
        copying.send(&batch).await;
        let ended = tokio::time::timeout(Duration::from_secs(60), copying.hears(b'?')).await;
        assert!(!ended.expect("in time"), "its connection ends");
        gateway.has_room(1).await;
        row_of_next("its session has ended").await;
    }
}

#[tokio::test]
async fn a_notification_reaches_who_has_just_begun_to_listen() {
    let gateway = TestGateway::start().await;
    let other = gateway.connect().await;
    for round in 0..50 {
        let mut listening = Raw::connect(&gateway, &format!("{}-pooler", gateway.user())).await;
        listening.send(&[(b'Q', b"listen news\0")]).await;
        assert!(listening.hears(b'Z').await);
        // While the pool asks what is left in the session.
        other.batch_execute("notify news").await.unwrap();
        let told = tokio::time::timeout(Duration::from_secs(60), listening.hears(b'A')).await;
        assert!(told.unwrap_or_else(|_| panic!("not in time: {round}")));
    }
}
