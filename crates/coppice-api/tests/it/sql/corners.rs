//! Who gets no result, and what they learn.

use coppice_core::BranchId;
use coppice_core::branch::BranchState;
use serde_json::{Value, json};

use super::branch::{Branch, DOMAIN, HERE, PASSWORD, PASSWORD_IN_URL};

const ONE: &str = r#"{"query": "select 1 as one"}"#;

#[tokio::test]
async fn a_branch_is_named_by_host_option_or_user() {
    let branch = Branch::start().await;
    let (role, id) = (&branch.role, &branch.id);
    for url in [
        branch.url(),
        branch.url_as(role, PASSWORD_IN_URL, &format!("{id}-rw.{DOMAIN}:7432")),
        branch.url_as(&format!("{role}.{id}"), PASSWORD_IN_URL, "127.0.0.1:1"),
        branch.url_as(role, PASSWORD_IN_URL, "localhost")
            + &format!("?options=endpoint%3D{id}&sslmode=require"),
    ] {
        let answered = branch.send(&[("connection-string", &url)], ONE).await;
        assert_eq!(answered.body["rows"], json!([{ "one": 1 }]), "{url}: {}", answered.body);
    }
    for (host, address) in [(format!("{id}.{DOMAIN}"), ""), (format!("{id}-rw.{DOMAIN}"), &HERE.to_string())]
    {
        let url = branch.url_as(role, PASSWORD_IN_URL, &host)
            + "?application_name=job&options=-c%20statement_timeout%3D7s";
        let query = "select current_user, current_setting('application_name') as name,
            current_setting('statement_timeout') as timeout, current_setting('coppice.client_address') as address";
        let answered =
            branch.send(&[("connection-string", &url)], json!({ "query": query }).to_string()).await;
        let expected = json!([{ "current_user": role, "name": "job", "timeout": "7s", "address": address }]);
        assert_eq!(answered.body["rows"], expected, "{host}");
    }
    for (host, code) in [("elsewhere.example", "INVALID_HOST"), (&*format!("{id}-ro.{DOMAIN}"), "NO_REPLICA")]
    {
        let url = branch.url_as(role, PASSWORD_IN_URL, host);
        let answered = branch.send(&[("connection-string", &url)], ONE).await;
        assert_eq!((answered.status, &answered.body["code"]), (400, &json!(code)), "{}", answered.body);
    }
}

#[tokio::test]
async fn requests_share_sessions_and_nothing_else() {
    let branch = Branch::start().await;
    let ask = async |host: &str, query: &str| {
        let url = branch.url_as(&branch.role, PASSWORD_IN_URL, &format!("{}{host}.{DOMAIN}", branch.id));
        let body = json!({ "query": query, "arrayMode": true }).to_string();
        branch.send(&[("connection-string", &url)], body).await.body["rows"].clone()
    };
    let pid = "select pg_backend_pid()";
    let first = ask("", pid).await;
    ask("", "set work_mem = '7MB'").await;
    assert_eq!(ask("", "show work_mem").await, json!([["4MB"]]));
    assert_eq!(ask("-pooler", pid).await, ask("", pid).await);
    assert_ne!(ask("-rw", pid).await, ask("-rw", pid).await, "{first}");
}

#[tokio::test]
async fn a_wrong_password_an_unknown_role_and_an_unknown_branch_are_told_the_same() {
    let branch = Branch::start().await;
    let (role, host) = (&branch.role, format!("{}.{DOMAIN}", branch.id));
    let nowhere = format!("{}.{DOMAIN}", BranchId::generate());
    for (user, password, host) in [
        (role.as_str(), "wrong", &host),
        ("nobody", PASSWORD_IN_URL, &host),
        (role.as_str(), PASSWORD_IN_URL, &nowhere),
    ] {
        let url = branch.url_as(user, password, host);
        let answered = branch.send(&[("connection-string", &url)], ONE).await;
        let expected = format!("password authentication failed for user \"{user}\"");
        assert_eq!(answered.refusal(), (400, "28P01".to_owned(), expected));
        let fields: Vec<_> = answered.body.as_object().expect("an object").keys().collect();
        assert_eq!(fields, ["code", "message", "severity"]);
    }
    // A body of somebody who is not let in is nobody's business.
    let url = branch.url_as(role, "wrong", &host);
    assert_eq!(branch.send(&[("connection-string", &url)], "no JSON").await.refusal().1, "28P01");
}

#[tokio::test]
async fn only_who_proves_the_password_learns_of_the_address_filter_and_of_sleep() {
    let branch = Branch::start().await;
    let wrong = branch.url_as(&branch.role, "wrong", &format!("{}.{DOMAIN}", branch.id));
    let ask = async |url: &str| branch.send(&[("connection-string", url)], ONE).await.refusal();
    branch.told.lock().state = BranchState::Hibernated;
    branch.told.lock().may_wake = false;
    let (status, code, message) = ask(&branch.url()).await;
    assert_eq!((status, code.as_str()), (409, "BRANCH_HIBERNATED"), "{message}");
    assert_eq!(ask(&wrong).await.1, "28P01");
    branch.told.lock().may_wake = true;
    assert_eq!(ask(&wrong).await.1, "28P01");
    assert_eq!(branch.told.lock().state, BranchState::Hibernated, "a stranger wakes nothing");
    assert_eq!(ask(&branch.url()).await.0, 200);
    assert_eq!(branch.told.lock().state, BranchState::Ready);
    branch.admit_only("192.0.2.0/24");
    let (status, code, message) = ask(&branch.url()).await;
    assert_eq!((status, code.as_str()), (403, "FORBIDDEN"), "{message}");
    assert_eq!(ask(&wrong).await.1, "28P01");
    branch.admit_only("127.0.0.0/8");
    assert_eq!(ask(&branch.url()).await.0, 200);
}

/// Headers, body, and the status and code that they get.
type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, u16, &'a str);

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused_without_repeating_its_secrets() {
    let branch = Branch::start().await;
    let url = branch.url();
    let cases: [Case<'_>; 9] = [
        (&[], ONE, 401, "UNAUTHORIZED"),
        (&[("connection-string", "postgres://host/db")], ONE, 401, "UNAUTHORIZED"),
        (&[("connection-string", &url), ("array-mode", "1")], ONE, 400, "BAD_REQUEST"),
        (&[("connection-string", &url), ("x-connection-string", "other")], ONE, 400, "BAD_REQUEST"),
        (&[("connection-string", &url)], "select 1", 400, "BAD_REQUEST"),
        (&[("connection-string", &url)], "{}", 400, "BAD_REQUEST"),
        (&[("connection-string", &url)], r#"[{"query": ""}]"#, 400, "BAD_REQUEST"),
        (&[("connection-string", &url)], r#"{"query": "select $1", "params": []}"#, 400, "08P01"),
        (&[("connection-string", &url), ("content-encoding", "gzip")], ONE, 415, "UNSUPPORTED_ENCODING"),
    ];
    for (headers, body, status, code) in cases {
        let answered = branch.send(headers, body.to_owned()).await;
        let told = answered.refusal();
        assert_eq!((told.0, told.1.as_str()), (status, code), "{body} {}", told.2);
        let text = answered.body.to_string();
        assert!(!text.contains(PASSWORD) && !text.contains(PASSWORD_IN_URL), "{text}");
    }
    let many: Vec<Value> = (0..101).map(|_| json!({ "query": "select 1" })).collect();
    assert_eq!(branch.ask(&json!({ "queries": many })).await.refusal().1, "BAD_REQUEST");
}

#[tokio::test]
async fn an_error_of_the_server_has_all_its_fields_as_text() {
    let branch = Branch::start().await;
    let answered = branch.ask(&json!({ "query": "select nothing from nowhere" })).await;
    assert_eq!(answered.status, 400);
    let error = answered.body;
    assert_eq!((&error["code"], &error["severity"]), (&json!("42P01"), &json!("ERROR")));
    assert_eq!(
        (&error["position"], &error["message"]),
        (&json!("21"), &json!("relation \"nowhere\" does not exist"))
    );
    assert!(["file", "line", "routine"].iter().all(|name| error[name].is_string()), "{error}");
    for (query, code) in [
        ("select 1; select 2", "42601"),
        ("copy (select 1) to stdout", "0A000"),
        (
            "do $$ begin raise exception 'x' using errcode = 'P0042', hint = 'h', detail = 'd'; end $$",
            "P0042",
        ),
    ] {
        let answered = branch.ask(&json!({ "query": query })).await;
        assert_eq!((answered.status, &answered.body["code"]), (400, &json!(code)), "{}", answered.body);
    }
    branch.rows("create table t (i int)").await;
    assert_eq!(branch.ask(&json!({ "query": "copy t from stdin" })).await.refusal().1, "0A000");
}
