//! What is too much, and what ends with its request.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::branch::{Branch, DOMAIN, PASSWORD_IN_URL};

#[tokio::test]
async fn what_a_client_that_leaves_was_waiting_for_is_cancelled() {
    let branch = Branch::start().await;
    let body = json!({ "queries": [{ "query": "create table t ()" }, { "query": "select pg_sleep(600)" }] });
    tokio::select! {
        answered = branch.ask(&body) => panic!("{}", answered.body),
        () = branch.eventually("it sleeps", async || branch.count_busy("pg_sleep(600)").await > 0) => {}
    }
    branch.eventually("it was cancelled", async || branch.count_busy("pg_sleep(600)").await == 0).await;
    assert_eq!(branch.rows("select to_regclass('t') as t").await, json!([{ "t": null }]));
}

#[tokio::test]
async fn where_all_places_are_taken_it_says_so_each_time() {
    let branch = Branch::start_with_places(1).await;
    let slow = json!({ "query": "select pg_sleep(600)" });
    let others = async {
        branch.eventually("it sleeps", async || branch.count_busy("pg_sleep(600)").await > 0).await;
        let query = json!({ "query": "select 1" });
        let answers = futures_util::future::join_all((0..50).map(|_| branch.ask(&query))).await;
        let told = |status: u16, code: &str| {
            answers.iter().filter(|one| one.status == status && one.body["code"] == code).count()
        };
        // Some are let in as far as to be told by the gateway.
        let (by_gateway, at_once) = (told(400, "53300"), told(503, "UNAVAILABLE"));
        assert!(at_once > 20 && by_gateway + at_once == 50, "{at_once} {by_gateway}");
    };
    tokio::select! {
        answered = branch.ask(&slow) => panic!("{}", answered.body),
        () = others => {}
    }
}

#[tokio::test]
async fn a_result_has_its_limit_and_the_statement_ends_there() {
    let branch = Branch::start().await;
    let endless = json!({ "query": "select repeat('x', 1000), generate_series(1, 1000000000)" });
    let answered = branch.ask(&endless).await;
    let (status, code, message) = answered.refusal();
    assert_eq!((status, code.as_str()), (507, "RESPONSE_TOO_LARGE"), "{message}");
    branch.eventually("it ends", async || branch.count_busy("generate_series").await == 0).await;
    let wide = |bytes: usize| json!({ "query": format!("select repeat('x', {bytes}) as x") });
    let one_value = branch.ask(&wide(11 << 20)).await;
    assert_eq!(one_value.refusal().1, "RESPONSE_TOO_LARGE");
    let fits = branch.ask(&wide((10 << 20) - 1000)).await;
    assert_eq!(fits.body["rows"][0]["x"].as_str().map(str::len), Some((10 << 20) - 1000));
    let batch: Vec<Value> = (0..12).map(|_| wide(1 << 20)).collect();
    assert_eq!(branch.ask(&json!(batch)).await.refusal().1, "RESPONSE_TOO_LARGE", "of a batch, too");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_or_while_it_comes() {
    let branch = Branch::start().await;
    let url = branch.url();
    let length = (64_usize << 20) + 1;
    let announced = Body::from(vec![b' '; length]);
    let answered = branch.send(&[("connection-string", &url)], announced).await;
    assert_eq!((answered.status, &answered.body["code"]), (413, &json!("BODY_TOO_LARGE")));
    // One whose length nobody says.
    let piece = Bytes::from(vec![b' '; 1 << 20]);
    let endless = Body::new(Endless(Some(piece)));
    let answered = branch.send(&[("connection-string", &url)], endless).await;
    assert_eq!((answered.status, &answered.body["code"]), (413, &json!("BODY_TOO_LARGE")));
}

/// A body that always goes on, or never does.
struct Endless(Option<Bytes>);

impl axum::body::HttpBody for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &self.0 {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece.clone())))),
            None => Poll::Pending,
        }
    }
}

#[tokio::test]
async fn the_session_of_a_client_that_leaves_before_its_body_came_ends() {
    let branch = Branch::start().await;
    let url = branch.url_as(&branch.role, PASSWORD_IN_URL, &format!("{}-rw.{DOMAIN}", branch.id));
    let sessions = "select count(*) from pg_stat_activity where usename = $1";
    let count =
        async || -> i64 { branch.admin.query_one(sessions, &[&branch.role]).await.expect("a row").get(0) };
    let (silent, headers) = (Body::new(Endless(None)), [("connection-string", url.as_str())]);
    tokio::select! {
        answered = branch.send(&headers, silent) => panic!("{}", answered.body),
        () = branch.eventually("it has a session", async || count().await == 1) => {}
    }
    branch.eventually("the session ends with its request", async || count().await == 0).await;
}

#[tokio::test]
async fn a_password_that_takes_too_much_work_is_refused() {
    let branch = Branch::start().await;
    let verifier = |iterations| {
        format!("SCRAM-SHA-256${iterations}:c2FsdHNhbHRzYWx0c2FsdA==${0}:{0}", "A".repeat(43) + "=")
    };
    for (iterations, status, code) in [(20_000, 400, "28P01"), (20_001, 400, "0A000")] {
        let change = format!("alter role {} password '{}'", branch.role, verifier(iterations));
        branch.admin.batch_execute(&change).await.expect("it is done");
        let (got, told, message) = branch.ask(&json!({ "query": "select 1" })).await.refusal();
        assert_eq!((got, told.as_str()), (status, code), "{message}");
    }
}
