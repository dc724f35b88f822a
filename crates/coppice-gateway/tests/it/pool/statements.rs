//! Prepared statements of clients that share sessions.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::{code, one};
use crate::gateway::TestGateway;
use crate::raw::{Message, Raw};

#[tokio::test]
async fn prepared_statements_go_with_their_client_from_session_to_session() {
    let gateway = TestGateway::start().await;
    let (mut client, mut other) = (gateway.pooled().await, gateway.pooled().await);
    let statement = client.prepare("select pg_backend_pid(), $1::text").await.unwrap();
    let mut pids = BTreeSet::new();
    for round in ["a", "b", "c"] {
        // It has to take another one while this one is taken.
        let holding = other.transaction().await.unwrap();
        holding.execute("select 1", &[]).await.unwrap();
        let row = client.query_one(&statement, &[&round]).await.unwrap();
        assert_eq!(row.get::<_, &str>(1), round);
        pids.insert(row.get::<_, i32>(0));
        let transaction = client.transaction().await.unwrap();
        let row = transaction.query_one(&statement, &[&"inside"]).await.unwrap();
        pids.insert(row.get::<_, i32>(0));
        holding.commit().await.unwrap();
        // Now this client waits in the session that the other one had.
        let own = pids.last().copied();
        let taken = other.query_one("select pg_backend_pid()", &[]).await.unwrap().get::<_, i32>(0);
        assert_ne!(own, Some(taken));
        transaction.commit().await.unwrap();
        gateway.end_sessions().await;
    }
    assert!(pids.len() >= 3, "{pids:?}");
    // What one has prepared the other has not.
    let sql = "select count(*) from pg_prepared_statements where name like 'coppice%'";
    assert!(one::<i64>(&client, sql).await >= 1);
    client.batch_execute("deallocate all").await.unwrap();
    assert_eq!(one::<i64>(&client, "select 7::int8").await, 7);
    assert_eq!(code(client.query_one(&statement, &[&"gone"]).await), SqlState::INVALID_SQL_STATEMENT_NAME);
}

#[tokio::test]
async fn the_same_text_is_another_statement_where_it_is_about_another_table() {
    let gateway = TestGateway::start().await;
    gateway.limit(1).await;
    let (one_client, other) = (gateway.pooled().await, gateway.pooled().await);
    one_client
        .batch_execute("create schema a; create table a.t as select 1 i; set search_path = a")
        .await
        .unwrap();
    other
        .batch_execute("create schema b; create table b.t as select 'x' s; set search_path = b")
        .await
        .unwrap();
    let text = "select * from t";
    let statement = one_client.prepare(text).await.unwrap();
    for _ in 0..2 {
        assert_eq!(one_client.query_one(&statement, &[]).await.unwrap().get::<_, i32>(0), 1);
        assert_eq!(one::<String>(&other, text).await, "x");
    }
}

#[tokio::test]
async fn what_is_prepared_after_a_table_was_made_again_is_about_the_new_one() {
    let gateway = TestGateway::start().await;
    gateway.limit(1).await;
    let (client, other) = (gateway.pooled().await, gateway.pooled().await);
    client.batch_execute("create table t (v date); insert into t values ('2026-11-26')").await.unwrap();
    let (text, insert) = ("select v from t", "insert into t values ($1)");
    for client in [&client, &other] {
        let statement = client.prepare(text).await.unwrap();
        assert_eq!(statement.columns()[0].type_(), &Type::DATE);
        client.prepare(insert).await.unwrap();
    }
    other.batch_execute("drop table t; create table t (v int)").await.unwrap();
    let statement = client.prepare(insert).await.unwrap();
    assert_eq!(statement.params(), [Type::INT4]);
    client.execute(&statement, &[&7]).await.unwrap();
    let statement = client.prepare(text).await.unwrap();
    assert_eq!(client.query_one(&statement, &[]).await.unwrap().get::<_, i32>(0), 7);
    let sql = "select count(*) from pg_prepared_statements";
    assert_eq!(one::<i64>(&client, sql).await, 3, "two, and this question: the old ones are closed");
}

#[tokio::test]
async fn a_client_whose_statement_is_not_any_more_what_it_was_is_told_so_in_every_session() {
    let gateway = TestGateway::start().await;
    gateway.limit(2).await;
    let (mut client, mut other) = (gateway.pooled().await, gateway.pooled().await);
    client.batch_execute("create table t as select 7 i").await.unwrap();
    let text = "select i from t";
    let statement = client.prepare(text).await.unwrap();
    assert_eq!(client.query_one(&statement, &[]).await.unwrap().get::<_, i32>(0), 7);
    // A value of this type is of the same length in neither format.
    other.batch_execute("alter table t alter i type bigint").await.unwrap();
    let holding = other.transaction().await.unwrap();
    holding.execute("select 1", &[]).await.unwrap();
    for _ in 0..2 {
        let transaction = client.transaction().await.unwrap();
        assert_eq!(code(transaction.query_one(&statement, &[]).await), SqlState::FEATURE_NOT_SUPPORTED);
        assert_eq!(code(transaction.query_one("select 1", &[]).await), SqlState::IN_FAILED_SQL_TRANSACTION);
        transaction.rollback().await.unwrap();
    }
    let again = client.prepare(text).await.unwrap();
    assert_eq!(client.query_one(&again, &[]).await.unwrap().get::<_, i64>(0), 7);
    assert_eq!(code(client.query_one(&statement, &[]).await), SqlState::FEATURE_NOT_SUPPORTED);
    holding.commit().await.unwrap();
    // One that was prepared before the table was what it is now.
    client.batch_execute("alter table t alter i type int").await.unwrap();
    assert_eq!(client.query_one(&statement, &[]).await.unwrap().get::<_, i32>(0), 7);
    assert_eq!(one::<i32>(&other, text).await, 7);
}

#[tokio::test]
async fn a_batch_of_any_length_is_answered_as_it_was_sent() {
    let gateway = TestGateway::start().await;
    let mut client = Raw::connect(&gateway, &gateway.pooled_user()).await;
    let query: [Message<'_>; 3] = [
        (b'P', b"\0select $1::text\0\0\0"),
        (b'B', b"\0\0\0\0\0\x01\0\0\0\x04text\0\0"),
        (b'E', b"\0\0\0\0\0"),
    ];
    let mut batch = query.repeat(20_000);
    batch.push((b'S', b""));
    client.send(&batch).await;
    let (mut rows, mut completed) = (0, 0);
    loop {
        let frame = client.next().await.expect("it is open");
        match frame.tag {
            b'D' if frame.body.ends_with(b"text") => rows += 1,
            b'C' => completed += 1,
            b'1' | b'2' => {}
            b'Z' => break,
            tag => panic!("{}: {}", tag as char, frame.body.escape_ascii()),
        }
    }
    assert_eq!((rows, completed), (20_000, 20_000));
}

#[tokio::test]
async fn a_portal_lives_on_when_its_statement_is_prepared_once_more() {
    let gateway = TestGateway::start().await;
    let mut client = gateway.pooled().await;
    let text = "select generate_series(1, 4)";
    let statement = client.prepare(text).await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind(&statement, &[]).await.unwrap();
    assert_eq!(transaction.query_portal(&portal, 2).await.unwrap().len(), 2);
    let again = transaction.prepare(text).await.unwrap();
    assert_eq!(transaction.query(&again, &[]).await.unwrap().len(), 4);
    assert_eq!(transaction.query_portal(&portal, 0).await.unwrap().len(), 2);
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn a_statement_is_used_while_another_of_the_same_text_is_being_prepared() {
    let gateway = TestGateway::start().await;
    let mut client = Raw::connect(&gateway, &gateway.pooled_user()).await;
    client.send(&[(b'P', b"a\0select 1\0\0\0"), (b'S', b"")]).await;
    assert!(client.hears(b'Z').await);
    let other: Message<'_> = (b'P', b"b\0select 1\0\0\0");
    client.send(&[other, (b'B', b"\0a\0\0\0\0\0\0\0"), (b'E', b"\0\0\0\0\0"), (b'S', b"")]).await;
    for tag in *b"12DCZ" {
        let frame = tokio::time::timeout(Duration::from_secs(60), client.next()).await;
        assert_eq!(frame.expect("in time").expect("it is open").tag, tag);
    }
}

#[tokio::test]
async fn a_server_has_so_many_statements_of_a_pool_however_often_one_is_prepared() {
    let gateway = TestGateway::start().await;
    let mut client = gateway.pooled().await;
    let transaction = client.transaction().await.unwrap();
    for _ in 0..500 {
        transaction.prepare("select 1").await.unwrap();
    }
    let sql = "select count(*) from pg_prepared_statements";
    let there = transaction.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    assert!(there <= 200, "{there}");
    transaction.commit().await.unwrap();
    assert_eq!(one::<i64>(&client, sql).await, 2, "one of each text");
    gateway.pooled().await.batch_execute("select 1").await.unwrap();
}
