//! Scripts against a real server.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use coppice_sql::{Failure, Full, Login, Memory, Output, Request, Session, Shape, Transaction, Wrong};
use coppice_test_support::Postgres;
use serde_json::{Value, json};
use tokio::net::UnixStream;

const HBA: &str = "local all postgres trust\nlocal all all scram-sha-256\n";

/// Where clients come from.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// There is always room.
struct Enough;

impl Memory for Enough {
    async fn take(&mut self, _: usize) -> Result<(), Full> {
        Ok(())
    }
}

/// A server, and how a role of the caller's own signs in there.
async fn role() -> (Arc<Postgres>, Login) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let postgres = tokio::task::spawn_blocking(|| Postgres::shared(HBA)).await.expect("a server");
    let role = format!("app{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let mut config = tokio_postgres::Config::new();
    config.host_path(postgres.socket_dir()).user("postgres").dbname("postgres");
    let (admin, connection) = config.connect(tokio_postgres::NoTls).await.expect("a session");
    tokio::spawn(connection);
    admin.batch_execute(&format!("create role {role} login password 'secret'")).await.expect("a role");
    let login = Login::parse(&format!("postgres://{role}:secret@localhost/postgres")).expect("a login");
    (postgres, login)
}

/// Runs statements with these limits; also whether the session is of use afterwards.
async fn script(queries: &[&str], rows_max: u32, (bytes_max, patience): (usize, Duration)) -> (Value, bool) {
    let (postgres, login) = role().await;
    let stream =
        UnixStream::connect(postgres.socket_dir().join(".s.PGSQL.5432")).await.expect("a connection");
    let mut session = Session::begin(stream, &login, HERE, patience).await.expect("a session");
    let body =
        json!({ "queries": queries.iter().map(|query| json!({ "query": query })).collect::<Vec<_>>() });
    let body = body.to_string();
    let Ok(Request::Batch(statements)) = Request::parse(body.as_bytes()) else { panic!("statements") };
    let mut out = Output::new(bytes_max, Enough);
    let is_usable = session.script(&statements, rows_max, &mut out).await.expect("an answer");
    let (pieces, _) = out.finish().await.expect("room");
    (serde_json::from_slice(&pieces.concat()).expect("JSON"), is_usable)
}

const ROOMY: (usize, Duration) = (1 << 20, Duration::from_secs(60));

#[tokio::test]
async fn each_statement_has_a_result_and_what_fails_is_the_last_one() {
    let queries = [
        "create temp table t (id int8, name text)",
        "insert into t values (9223372036854775807, null), (-1, '<b>') returning id, name",
        "begin",
        "select nothing",
        "select 1",
    ];
    let (answer, is_usable) = script(&queries, 1000, ROOMY).await;
    let results = answer["results"].as_array().expect("results");
    assert!(is_usable && results.len() == 4, "{answer}");
    let made = &results[1];
    assert_eq!(made["rows"], json!([["9223372036854775807", null], ["-1", "<b>"]]), "as text");
    assert_eq!((&made["command"], &made["rowCount"]), (&json!("INSERT"), &json!(2)));
    assert!(made["isCut"] == false && made["milliseconds"].is_f64(), "{made}");
    let failed = &results[3]["error"];
    assert_eq!((&failed["code"], &failed["position"]), (&json!("42703"), &json!("8")));
    assert_eq!(answer["inTransaction"], true, "what was begun was not committed");
    let (answer, _) = script(&["select 1", "-- nothing"], 1000, ROOMY).await;
    assert_eq!(answer["results"][1]["command"], "", "a comment alone does nothing");
    assert_eq!(answer["inTransaction"], false);
}

#[tokio::test]
async fn a_result_ends_after_so_many_rows_or_bytes_and_the_script_goes_on() {
    let series = |count: u32| format!("select g, repeat('x', 100) from generate_series(1, {count}) g");
    for (count, rows_max, rows, is_cut) in
        [(1000, 1000, 1000, false), (1001, 1000, 1000, true), (5, 1, 1, true), (450, 450, 450, false)]
    {
        let (answer, _) = script(&[&series(count), "select 7"], rows_max, ROOMY).await;
        let first = &answer["results"][0];
        assert_eq!(first["rows"].as_array().map(Vec::len), Some(rows), "{count} of {rows_max}");
        assert_eq!(first["isCut"], is_cut, "{count} of {rows_max}");
        let said = if is_cut { Value::Null } else { json!(count) };
        assert_eq!(first["rowCount"], said, "{count} of {rows_max}");
        assert_eq!(answer["results"][1]["rows"], json!([["7"]]));
    }
    let (answer, _) = script(&[&series(100_000), "select 7"], 100_000, ROOMY).await;
    let first = &answer["results"][0];
    let count = first["rows"].as_array().map_or(0, Vec::len);
    assert!(first["isCut"] == true && (5000..10_000).contains(&count), "{count}");
    // Of what changes rows all are changed, however many are shown.
    let change =
        "with made as (insert into t select generate_series(1, 5000) returning id) select * from made";
    let queries = ["create temp table t (id int)", change, "select count(*) from t"];
    let (answer, _) = script(&queries, 10, ROOMY).await;
    assert_eq!(answer["results"][1]["rows"].as_array().map(Vec::len), Some(10));
    assert_eq!(answer["results"][2]["rows"], json!([["5000"]]));
}

#[tokio::test]
async fn notices_are_passed_on_but_not_without_end() {
    let raise =
        |count: u32| format!("do $$begin for i in 1..{count} loop raise notice '<i>%', i; end loop; end$$");
    let (answer, _) = script(&[&raise(2), &raise(105), "select 1"], 10, ROOMY).await;
    let [two, many, none] = [0, 1, 2].map(|number| answer["results"][number].clone());
    let messages: Vec<_> =
        two["notices"].as_array().expect("notices").iter().map(|notice| notice["message"].clone()).collect();
    assert_eq!(messages, [json!("<i>1"), json!("<i>2")]);
    assert_eq!((many["notices"].as_array().map(Vec::len), &many["noticesLeftOff"]), (Some(100), &json!(5)));
    assert_eq!((&none["notices"], &none["noticesLeftOff"]), (&json!([]), &json!(0)));
}

#[tokio::test]
async fn what_ends_the_session_is_said_after_what_was_done() {
    let quick = (1 << 20, Duration::from_millis(500));
    let (answer, is_usable) = script(&["select 1", "select pg_sleep(600)", "select 2"], 10, quick).await;
    assert!(!is_usable);
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(2), "{answer}");
    assert_eq!(answer["results"][1]["error"]["code"], "57014");
    let (answer, is_usable) = script(&["copy (select 1) to stdout"], 10, ROOMY).await;
    assert!(!is_usable && answer["results"][0]["error"]["message"].is_string(), "{answer}");
    let ended = ["select 1", "select pg_terminate_backend(pg_backend_pid())"];
    let (answer, is_usable) = script(&ended, 10, ROOMY).await;
    // Whether its last words still come through is up to the kernel.
    assert!(!is_usable && answer["results"][1]["error"]["message"].is_string(), "{answer}");
}

#[tokio::test]
async fn a_batch_has_a_time_of_its_own() {
    let (postgres, login) = role().await;
    let stream =
        UnixStream::connect(postgres.socket_dir().join(".s.PGSQL.5432")).await.expect("a connection");
    let mut session =
        Session::begin(stream, &login, HERE, Duration::from_millis(500)).await.expect("a session");
    // Each of them may take as long.
    let body = json!({ "queries": vec![json!({ "query": "select pg_sleep(0.25)" }); 20] }).to_string();
    let Ok(Request::Batch(statements)) = Request::parse(body.as_bytes()) else { panic!("statements") };
    let mut out = Output::new(1 << 20, Enough);
    let ended = session.batch(&statements, Transaction::default(), Shape::default(), &mut out).await;
    assert!(matches!(ended, Err(Wrong::Failure(Failure::TooLong))), "{ended:?}");
}

#[tokio::test]
async fn who_waits_for_the_end_of_a_session_waits_for_its_statement() {
    let (postgres, login) = role().await;
    let begin = async |patience| {
        let socket = postgres.socket_dir().join(".s.PGSQL.5432");
        let stream = UnixStream::connect(socket).await.expect("a connection");
        Session::begin(stream, &login, HERE, patience).await.expect("a session")
    };
    let mut session = begin(Duration::from_millis(100)).await;
    let mut out = Output::new(1 << 20, Enough);
    let ended = session.only_read("select pg_sleep(1)", 1, &mut out).await;
    assert!(matches!(ended, Err(Failure::TooLong)), "{ended:?}");
    session.end_and_wait().await;
    let others =
        "select count(*) from pg_stat_activity where usename = current_user and pid <> pg_backend_pid()";
    let mut out = Output::new(1 << 20, Enough);
    begin(Duration::from_secs(60)).await.only_read(others, 1, &mut out).await.expect("an answer");
    let (pieces, _) = out.finish().await.expect("room");
    let answer: Value = serde_json::from_slice(&pieces.concat()).expect("JSON");
    assert_eq!(answer["rows"], json!([["0"]]), "{answer}");
}
