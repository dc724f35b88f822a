//! What happened in an organization: in which order, for whom, and how it is
//! waited for.

use std::time::Duration;

use coppice_test_support::{fields, text_of, wait_for};
use serde_json::{Value, json};

use crate::{Http, is_timestamp, shared};

fn at(organization: &str, query: &str) -> String {
    format!("/organizations/{organization}/events?{query}")
}

/// Events from the first on, as soon as there are so many.
fn events(http: &Http, organization: &str, count: usize) -> (Vec<Value>, String) {
    wait_for("the events", Duration::from_secs(60), || {
        let list = http.get(&at(organization, "wait=10")).expect(200);
        let events = list["events"].as_array().expect("events").clone();
        (events.len() >= count).then(|| (events, text_of(&list["cursor"])))
    })
}

fn types(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| text_of(&event["type"])).collect()
}

#[test]
fn what_happens_is_listed_once_each_in_its_order() {
    let http = shared();
    let organization = http.new_organization("of events");
    let keys = format!("/organizations/{organization}/api-keys");
    let key = http.new_key(&keys, json!({ "name": "planted-name" }));
    let delete = http.with("DELETE", &keys, &json!({ "ids": [key["id"]] }));
    assert_eq!(delete.status, 204);
    let (seen, cursor) = events(&http, &organization, 3);
    assert_eq!(types(&seen), ["member.added", "key.created", "key.deleted"]);
    let user = text_of(&http.get("/user").expect(200)["id"]);
    assert_eq!(seen[0]["data"], json!({ "organization_id": organization, "user_id": user }));
    for event in &seen {
        assert_eq!(fields(event), ["data", "id", "timestamp", "type"]);
        assert!(text_of(&event["id"]).starts_with("evt_"));
        is_timestamp(&event["timestamp"]);
    }
    for event in &seen[1..] {
        assert_eq!(event["data"], json!({ "organization_id": organization, "key_id": key["id"] }));
    }
    // From one to the next, one at a time, to the end.
    let (mut after, mut one_by_one) = (String::new(), vec![]);
    for _ in 0..4 {
        let page = http.get(&at(&organization, &format!("limit=1&after={after}"))).expect(200);
        one_by_one.extend(page["events"].as_array().expect("events").clone());
        after = text_of(&page["cursor"]);
    }
    assert_eq!((one_by_one, after), (seen.clone(), cursor.clone()));
    let only = http.get(&at(&organization, "types=key.deleted,branch.ready")).expect(200);
    assert_eq!(only, json!({ "events": [seen[2]], "cursor": cursor }), "it has looked at the others, too");
    let none = http.get(&at(&organization, "types=branch.failed&limit=1")).expect(200);
    assert_eq!(none, json!({ "events": [], "cursor": cursor }));
}

#[test]
fn whoever_waits_is_answered_when_something_happens() {
    let http = shared();
    let organization = http.new_organization("of one who waits");
    let (_, cursor) = events(&http, &organization, 1);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            wait_for("an event", Duration::from_secs(60), || {
                let answer = http.get(&at(&organization, &format!("wait=30&after={cursor}"))).expect(200);
                answer["events"].as_array().expect("events").first().cloned()
            })
        });
        http.new_key(&format!("/organizations/{organization}/api-keys"), json!({}));
        assert_eq!(waiting.join().expect("it is answered")["type"], "key.created");
    });
}

#[test]
fn whoever_is_shut_out_while_waiting_is_told_nothing_of_what_happens_since() {
    let http = shared();
    let organization = http.new_organization("of one who is shut out");
    let keys = format!("/organizations/{organization}/api-keys");
    let key = http.new_key(&keys, json!({}));
    let (_, cursor) = events(&http, &organization, 2);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let path = at(&organization, &format!("wait=30&after={cursor}"));
            http.as_key(&text_of(&key["token"]), "GET", &path, None)
        });
        // Its own end is what it would be told first.
        let is_there = || {
            let shown = http.get(&keys).expect(200)["keys"][0].clone();
            (!shown["last_used"].is_null()).then_some(())
        };
        wait_for("its use is written down", Duration::from_secs(60), is_there);
        assert_eq!(http.with("DELETE", &keys, &json!({ "ids": [key["id"]] })).status, 204);
        waiting.join().expect("it is answered").expect_error(401, "invalid_token");
    });
}

#[test]
fn a_key_with_limits_sees_what_is_about_its_projects_and_branches_only() {
    let http = shared();
    let organization = http.new_organization("of a key with limits");
    let keys = format!("/organizations/{organization}/api-keys");
    let limits = [json!({ "projects": ["prj_1"] }), json!({ "branches": ["b1"] })];
    let limited = limits.map(|limits| http.new_token(&keys, limits));
    let (_, cursor) = events(&http, &organization, 3);
    for key in limited {
        let list = http.as_key(&key, "GET", &at(&organization, ""), None).expect(200);
        assert_eq!(list, json!({ "events": [], "cursor": cursor }));
    }
}

#[test]
fn what_is_asked_of_events_has_bounds() {
    let http = shared();
    let organization = http.new_organization("of bounds");
    let ask = |query: &str| http.get(&at(&organization, query));
    events(&http, &organization, 1);
    for cursor in ["x", "-1", "999999", "1.5", "%00"] {
        ask(&format!("after={cursor}")).expect_error(400, "invalid_cursor");
    }
    for wrong in ["wait=31", "wait=-1", "limit=0", "limit=201", "types=branch.gone", "types=branch.ready,,"] {
        ask(wrong).expect_error(400, "invalid_query_parameter");
    }
    for right in ["", "wait=0", "limit=200", "types=", "types=branch.ready,%20branch.woken", "after=0"] {
        ask(right).expect(200);
    }
}
