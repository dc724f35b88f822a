//! `Idempotency-Key`: a repeated POST gets its first answer again.

use coppice_test_support::{Options, Platform};
use serde_json::{Value, json};

use super::{custom, shared};
use crate::http::{Answer, Http, text_of};
use crate::people::Person;
use crate::servers::OwnServer;
use crate::setup::{PROGRAM, options};

const PROJECTS: &str = "/organizations/{org}/projects";

fn post(http: &Http, path: &str, key: &str, body: &Value) -> Answer {
    http.send(http.request("POST", path).header("idempotency-key", key).json(body))
}

#[test]
fn a_repeated_post_gets_its_first_answer_again() {
    let http = shared();
    let key = "once, with blanks ~";
    let body = json!({ "name": "once" });
    let first = post(&http, PROJECTS, key, &body);
    first.expect(201);
    assert_eq!(first.header("idempotency-replayed"), "");
    for path in [PROJECTS.to_owned(), format!("{PROJECTS}/")] {
        let again = post(&http, &path, key, &body);
        assert_eq!((again.status, &again.bytes), (201, &first.bytes), "{path}");
        assert_eq!(again.header("idempotency-replayed"), "true");
        assert_eq!(again.header("content-type"), "application/json");
    }
    let message =
        post(&http, PROJECTS, key, &json!({ "name": "twice" })).expect_error(409, "idempotency_mismatch");
    assert_eq!(message, "the idempotency key was used with another request");
    let list = http.get(PROJECTS).expect(200);
    let made =
        list["projects"].as_array().expect("a list").iter().filter(|one| one["name"] == "once").count();
    assert_eq!(made, 1);

    // Another path, another caller, another key: each is a request of its own.
    post(&http, "/organizations", key, &body).expect(201);
    let other = http.new_token("/api-keys", json!({}));
    let request = http.anonymous("POST", PROJECTS).bearer_auth(&other).header("idempotency-key", key);
    let theirs = http.send(request.json(&body));
    assert_ne!(theirs.expect(201)["id"], first.json()["id"]);
    assert_ne!(post(&http, PROJECTS, "another", &body).expect(201)["id"], first.json()["id"]);
}

#[test]
fn the_answer_that_holds_a_key_is_repeated_too() {
    let http = shared();
    let body = json!({ "name": "kept" });
    let first = post(&http, "/api-keys", "key once", &body).expect(201);
    let again = post(&http, "/api-keys", "key once", &body);
    assert_eq!(again.expect(201), first);
    let token = text_of(&first["key"]["token"]);
    http.as_key(&token, "GET", "/organizations", None).expect(200);
}

#[test]
fn refusals_are_repeated_and_strangers_learn_nothing() {
    let http = shared();
    let refused = post(&http, PROJECTS, "refused", &json!({}));
    refused.expect_error(400, "missing_field");
    let again = post(&http, PROJECTS, "refused", &json!({}));
    assert_eq!((again.status, again.header("idempotency-replayed")), (400, "true"));
    assert_eq!(again.bytes, refused.bytes);
    // Nothing is kept for who can't do such a thing anywhere.
    let reading = http.new_token("/api-keys", json!({ "scopes": ["project:read"] }));
    for _ in 0..2 {
        let request =
            http.anonymous("POST", PROJECTS).bearer_auth(&reading).header("idempotency-key", "read");
        let answer = http.send(request.json(&json!({ "name": "x" })));
        answer.expect_error(403, "insufficient_scope");
        assert_eq!(answer.header("idempotency-replayed"), "");
    }

    let body = json!({ "name": "x" });
    let request = || http.anonymous("POST", PROJECTS).header("idempotency-key", "refused").json(&body);
    http.send(request()).expect_error(401, "missing_token");
    http.send(request().bearer_auth("pku_nonsense")).expect_error(401, "invalid_token");
    let ended = http.new_key("/api-keys", json!({}));
    let token = text_of(&ended["token"]);
    http.send(request().bearer_auth(&token)).expect(201);
    http.with("DELETE", "/api-keys", &json!({ "ids": [ended["id"]] }));
    http.send(request().bearer_auth(&token)).expect_error(401, "invalid_token");
}

#[test]
fn a_long_refusal_is_repeated_too() {
    let http = shared();
    let branches = format!("{}/branches", http.new_project("long"));
    let of = |count: usize, length: usize| {
        let named = |index: usize| (format!("{index:0>length$}"), json!("x"));
        let parameters: serde_json::Map<_, _> = (0..count).map(named).collect();
        custom("x", json!({ "postgresConfigurationParameters": parameters }))
    };
    for (body, id) in [
        (of(200, 5000), "invalid_postgres_parameter"),
        (of(201, 4), "too_many_items"),
        (of(50_000, 5), "too_many_items"),
    ] {
        for _ in 0..2 {
            let key = format!("long {}", body.to_string().len());
            let answer = post(&http, &branches, &key, &body);
            answer.expect_error(400, id);
            // It is worked out anew where it would take much room.
            assert!(answer.bytes.len() < 16 << 10 || answer.header("idempotency-replayed").is_empty());
        }
    }
}

#[test]
fn an_idempotency_key_is_printable_and_bounded() {
    let http = shared();
    let body = json!({ "name": "bounded" });
    post(&http, PROJECTS, &"k".repeat(255), &body).expect(201);
    for wrong in ["", &"k".repeat(256), "é"] {
        post(&http, PROJECTS, wrong, &body).expect_error(400, "invalid_field");
    }
    // Other methods are safe to repeat as they are; the header means nothing there.
    let get = http.request("GET", PROJECTS).header("idempotency-key", "k");
    assert_eq!(http.send(get).header("idempotency-replayed"), "");
}

#[test]
fn repetitions_that_come_together_do_the_work_once() {
    let http = shared();
    let branches = format!("{}/branches", http.new_project("together"));
    let body = custom("main", json!({}));
    let request = || http.request("POST", &branches).header("idempotency-key", "together").json(&body);
    let answers = http.send_together((0..6).map(|_| request()).collect());
    let mut worked = 0;
    for answer in &answers {
        match answer.status {
            201 if answer.header("idempotency-replayed").is_empty() => worked += 1,
            201 => {}
            _ => {
                let message = answer.expect_error(409, "idempotency_in_progress");
                assert_eq!(message, "a request with this idempotency key is still running");
                assert_eq!(answer.header("retry-after"), "1");
            }
        }
    }
    assert_eq!(worked, 1);
    assert!(answers.iter().any(|answer| answer.status == 409), "making a branch takes longer than asking");
    let again = http.send(request());
    assert_eq!((again.status, again.header("idempotency-replayed")), (201, "true"));
    assert_eq!(http.get(&branches).expect(200)["branches"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_fault_of_the_server_is_not_repeated() {
    let server = OwnServer::start();
    let flags = vec!["--metastore-url".to_owned(), server.url()];
    let http = Http::new(Platform::start(PROGRAM, Options { flags, ..options() }));
    let body = json!({ "name": "in the end" });
    server.sql("ALTER TABLE projects RENAME TO projects_away");
    let failed = post(&http, PROJECTS, "retried", &body);
    let message = failed.expect_error(500, "internal_error");
    assert_eq!(message, format!("internal error (request {})", failed.header("x-request-id")));
    server.sql("ALTER TABLE projects_away RENAME TO projects");
    let made = post(&http, PROJECTS, "retried", &body);
    assert_eq!((made.status, made.header("idempotency-replayed")), (201, ""), "{}", made.text());
}

#[test]
fn a_repeated_question_gets_its_first_answer_as_long_as_its_caller_may_ask() {
    let http = shared();
    let organization = http.new_organization("readings");
    let projects = format!("/organizations/{organization}/projects");
    let project = http.post(&projects, &json!({ "name": "readings" })).expect(201);
    let branches = format!("{projects}/{}/branches", text_of(&project["id"]));
    let branch = http.post(&branches, &custom("main", json!({}))).expect(201);
    let branch = format!("{branches}/{}", text_of(&branch["id"]));
    let ada = Person::in_organization(&http, &organization, "ada", "viewer");
    let ask = |what: &str, end: &str| {
        let body = json!({ "start": "2026-01-02T03:00:00Z", "end": end, "metrics": ["cpu"] });
        let request = http.anonymous("POST", &format!("{branch}/{what}")).bearer_auth(&ada.key);
        http.send(request.header("idempotency-key", "a reading").json(&body))
    };
    let (end, other) = ("2026-01-02T04:00:00Z", "2026-01-02T05:00:00Z");
    for what in ["metrics", "logs"] {
        let first = ask(what, end);
        assert_eq!(
            (first.expect(200)["end"].clone(), first.header("idempotency-replayed")),
            (json!(end), "")
        );
        let again = ask(what, end);
        assert_eq!((&again.bytes, again.header("idempotency-replayed")), (&first.bytes, "true"), "{what}");
        ask(what, other).expect_error(409, "idempotency_mismatch");
    }
    assert_eq!(http.delete(&format!("/organizations/{organization}/members/{}", ada.id)).status, 204);
    for what in ["metrics", "logs"] {
        ask(what, end).expect_error(403, "organization_access_denied");
    }
}
