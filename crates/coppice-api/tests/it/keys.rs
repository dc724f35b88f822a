//! API keys: what they look like, what they may do, how they end.

use std::time::Duration;

use coppice_core::limits::KEY_MAKERS_MAX;
use coppice_test_support::{fields, text_of, wait_for};
use serde_json::{Value, json};

use crate::{Http, is_timestamp, shared};

const USER: &str = "/api-keys";
const ORGANIZATION: &str = "/organizations/{org}/api-keys";

/// A key without its token has exactly these.
const FIELDS: [&str; 11] = [
    "branches",
    "created_at",
    "created_by",
    "created_by_key",
    "expiry",
    "id",
    "last_used",
    "name",
    "preview",
    "projects",
    "scopes",
];

fn listed(http: &Http, at: &str, id: &str) -> Option<Value> {
    let keys = http.get(at).expect(200);
    assert_eq!(fields(&keys), ["keys"]);
    let keys = keys["keys"].as_array().expect("keys").clone();
    keys.into_iter().find(|key| key["id"] == id)
}

fn own_id(http: &Http) -> String {
    let own = http.get(USER).expect(200)["keys"].as_array().expect("keys")[0].clone();
    text_of(&own["id"])
}

#[test]
fn a_key_has_exactly_the_documented_fields() {
    let http = shared();
    let user = text_of(&http.get("/user").expect(200)["id"]);
    for (at, prefix) in [(USER, "pku_"), (ORGANIZATION, "pko_")] {
        let body = json!({
            "name": "  minimal  ", "expiry": null, "scopes": null, "projects": null, "branches": null,
            "unknown": { "deep": 1 }, "token": "mine", "id": "key_mine",
        });
        let answer = http.post(at, &body).expect(201);
        assert_eq!(fields(&answer), ["key"]);
        let key = &answer["key"];
        let mut with_token = FIELDS.to_vec();
        with_token.push("token");
        with_token.sort_unstable();
        assert_eq!(fields(key), with_token);
        let (id, token) = (text_of(&key["id"]), text_of(&key["token"]));
        assert!(id.starts_with("key_") && id.len() == 30, "{id}");
        assert!(token.starts_with(prefix) && token.len() == 37, "a key of its kind");
        assert_eq!(key["preview"], format!("{prefix}...{}", &token[33..]));
        assert_eq!(key["name"], "minimal");
        assert_eq!((&key["expiry"], &key["last_used"]), (&json!(null), &json!(null)));
        assert_eq!([&key["scopes"], &key["projects"], &key["branches"]], [&json!([]); 3]);
        assert_eq!((&key["created_by"], &key["created_by_key"]), (&json!(user), &json!(own_id(&http))));
        is_timestamp(&key["created_at"]);
        let shown = listed(&http, at, &id).expect("it is listed");
        assert_eq!(fields(&shown), FIELDS, "without its token");
    }
}

#[test]
fn bounds_of_a_key_hold() {
    let http = shared();
    let make = |body: Value| http.post(USER, &body);
    make(json!({})).expect_error(400, "missing_field");
    make(json!({ "name": null })).expect_error(400, "missing_field");
    make(json!({ "name": 1 })).expect_error(400, "invalid_field");
    for (name, status) in [("", 400), ("   ", 400), ("x", 201), ("a\u{7}b", 400), ("a\nb", 400)] {
        assert_eq!(make(json!({ "name": name })).status, status, "{name:?}");
    }
    make(json!({ "name": format!(" {} ", "é".repeat(128)) })).expect(201);
    make(json!({ "name": "é".repeat(129) })).expect_error(400, "invalid_field");
    for field in ["scopes", "projects", "branches"] {
        let items = |count: usize| vec!["same"; count];
        let made = make(json!({ "name": "x", field: items(50) })).expect(201);
        assert_eq!(made["key"][field], json!(["same"]), "duplicates are dropped");
        let message = make(json!({ "name": "x", field: items(51) })).expect_error(400, "too_many_items");
        assert_eq!(message, format!("{field} accepts at most 50 items"));
        make(json!({ "name": "x", field: "same" })).expect_error(400, "invalid_field");
        make(json!({ "name": "x", field: [1] })).expect_error(400, "invalid_field");
        make(json!({ "name": "x", field: [""] })).expect_error(400, "invalid_field");
        make(json!({ "name": "x", field: ["x".repeat(64)] })).expect(201);
        make(json!({ "name": "x", field: ["x".repeat(65)] })).expect_error(400, "invalid_field");
    }
}

#[test]
fn lists_of_a_key_are_normalised_and_returned_as_sent() {
    let http = shared();
    let make = |scopes: Value| http.new_key(USER, json!({ "scopes": scopes, "projects": scopes }));
    for (sent, kept) in [
        (json!([]), json!([])),
        (json!(["*"]), json!(["*"])),
        (json!(["a", "*", "b"]), json!(["*"])),
        (json!(["b", "a", "b"]), json!(["b", "a"])),
    ] {
        let key = make(sent.clone());
        assert_eq!((&key["scopes"], &key["projects"]), (&kept, &kept), "{sent}");
        let shown = listed(&http, USER, &text_of(&key["id"])).expect("it is listed");
        assert_eq!(shown["scopes"], kept);
    }
    let nothing = http.new_token(USER, json!({ "scopes": ["unknown:scope"] }));
    let answer = http.as_key(&nothing, "GET", "/organizations/{org}", None);
    answer.expect_error(403, "insufficient_scope");
}

#[test]
fn a_key_grants_no_more_than_its_maker_has() {
    let http = shared();
    let project = http.new_project("granted");
    let project = project.rsplit('/').next().expect("an id");
    let maker =
        json!({ "scopes": ["keys:write", "project:read"], "projects": [project], "branches": ["b1"] });
    let maker = http.new_key(ORGANIZATION, maker);
    let token = text_of(&maker["token"]);
    let make = |more: Value| {
        let mut body = json!({ "name": "child" });
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        http.as_key(&token, "POST", ORGANIZATION, Some(&body))
    };
    for inherited in [json!({}), json!({ "scopes": [], "projects": null, "branches": [] })] {
        let child = make(inherited).expect(201)["key"].clone();
        assert_eq!(child["scopes"], json!(["keys:write", "project:read"]));
        assert_eq!((&child["projects"], &child["branches"]), (&json!([project]), &json!(["b1"])));
        assert_eq!(child["created_by"], json!(null), "a key of the organization is nobody");
        assert_eq!(child["created_by_key"], maker["id"]);
    }
    assert_eq!(
        make(json!({ "scopes": ["project:read"] })).expect(201)["key"]["scopes"],
        json!(["project:read"])
    );
    for (beyond, message) in [
        (json!({ "scopes": ["keys:read"] }), "cannot grant scope keys:read"),
        (json!({ "scopes": ["*"] }), "cannot grant scope *"),
        (json!({ "scopes": ["project:read", "*"] }), "cannot grant scope *"),
        (json!({ "projects": ["prj_other"] }), "cannot grant project prj_other"),
        (json!({ "projects": ["*"] }), "cannot grant project *"),
        (json!({ "branches": ["b1", "b2"] }), "cannot grant branch b2"),
    ] {
        assert_eq!(make(beyond).expect_error(403, "scope_not_grantable"), message);
    }
}

#[test]
fn a_user_key_and_an_organization_key_act_for_different_callers() {
    let http = shared();
    let organization = http.new_organization("of keys");
    let at = format!("/organizations/{organization}/api-keys");
    let token = http.new_token(&at, json!({}));
    let own = http.as_key(&token, "GET", "/organizations", None).expect(200);
    assert_eq!(own["organizations"].as_array().map(Vec::len), Some(1));
    assert_eq!(own["organizations"][0]["id"], json!(organization));
    for (method, path) in [
        ("GET", "/user"),
        ("PATCH", "/user"),
        ("GET", USER),
        ("POST", USER),
        ("DELETE", USER),
        ("DELETE", &format!("/organizations/{organization}")),
    ] {
        let message = http.as_key(&token, method, path, None).expect_error(403, "user_required");
        assert!(message.starts_with("access denied: "), "{message}");
    }
    let refused = http.as_key(&token, "POST", "/organizations", Some(&json!({ "name": "x" })));
    assert_eq!(refused.expect_error(403, "user_required"), "invalid API key");
    http.as_key(&token, "GET", "/organizations/{org}", None).expect_error(403, "organization_access_denied");
}

#[test]
fn an_expired_key_is_told_apart_and_stays_listed() {
    let http = shared();
    // PostgreSQL's clock and ours are the same machine's.
    let soon = std::time::SystemTime::now() + Duration::from_millis(2500);
    let soon = soon.duration_since(std::time::UNIX_EPOCH).expect("a time").as_millis() as i64;
    let expiry = chrono::DateTime::from_timestamp_millis(soon).expect("a time");
    let key = http.new_key(USER, json!({ "expiry": expiry.to_rfc3339() }));
    let token = text_of(&key["token"]);
    let refused = || {
        let answer = http.as_key(&token, "GET", "/organizations", None);
        Some(answer).filter(|answer| answer.status != 200)
    };
    let refused = wait_for("the key ends", Duration::from_secs(60), refused);
    assert_eq!(refused.expect_error(401, "expired_token"), "invalid API key");
    assert_eq!(refused.header("www-authenticate"), r#"Bearer realm="platform", error="invalid_token""#);
    assert!(listed(&http, USER, &text_of(&key["id"])).is_some());
}

#[test]
fn the_expiry_comes_back_in_utc() {
    let http = shared();
    let make = |expiry: Value| http.post(USER, &json!({ "name": "x", "expiry": expiry }));
    for (sent, shown) in [
        ("2099-01-02T03:04:05Z", "2099-01-02T03:04:05Z"),
        ("2099-01-02T03:04:05.000Z", "2099-01-02T03:04:05Z"),
        ("2099-01-02T03:04:05.5Z", "2099-01-02T03:04:05.500Z"),
        ("2099-01-02T03:04:05.678Z", "2099-01-02T03:04:05.678Z"),
        ("2099-01-02T03:04:05.678901Z", "2099-01-02T03:04:05.678Z"),
        ("2099-01-02T03:04:05.000400Z", "2099-01-02T03:04:05Z"),
        ("2099-01-02T03:04:05+02:00", "2099-01-02T01:04:05Z"),
        ("2099-01-02T03:04:05.000000001-02:00", "2099-01-02T05:04:05Z"),
        ("2099-01-02T03:04:05", "2099-01-02T03:04:05Z"),
        ("2099-01-02t03:04:05z", "2099-01-02T03:04:05Z"),
    ] {
        let key = make(json!(sent)).expect(201)["key"].clone();
        assert_eq!(key["expiry"], shown, "{sent}");
        let shown_later = listed(&http, USER, &text_of(&key["id"])).expect("it is listed");
        assert_eq!(shown_later["expiry"], shown, "{sent} in the list");
    }
    assert_eq!(
        make(json!("2001-01-01T00:00:00Z")).expect_error(400, "expiry_in_past"),
        "expiry must be in the future"
    );
    for wrong in [
        json!(""),
        json!("tomorrow"),
        json!("2099-01-02"),
        json!(4_000_000_000_u32),
        json!("2099-13-02T03:04:05Z"),
        // Its year in UTC has five digits, which no timestamp of ours has.
        json!("9999-12-31T23:59:59-23:00"),
    ] {
        make(wrong).expect_error(400, "invalid_field");
    }
}

#[test]
fn a_deleted_key_ends_at_once() {
    let http = shared();
    for at in [USER, ORGANIZATION] {
        let keys: Vec<_> = (0..2).map(|_| http.new_key(at, json!({}))).collect();
        let token = text_of(&keys[0]["token"]);
        http.as_key(&token, "GET", "/organizations", None).expect(200);
        let foreign = http.new_key(if at == USER { ORGANIZATION } else { USER }, json!({}));
        let ids = json!({ "ids": [keys[0]["id"], "key_unknown", "", "a b", foreign["id"]] });
        let answer = http.with("DELETE", at, &ids);
        assert_eq!((answer.status, answer.bytes.len(), answer.header("content-type")), (204, 0, ""));
        http.as_key(&token, "GET", "/organizations", None).expect_error(401, "invalid_token");
        let foreign = text_of(&foreign["token"]);
        http.as_key(&foreign, "GET", "/organizations", None).expect(200);
        assert_eq!(http.with("DELETE", at, &ids).status, 204, "again");
        // A key may end itself.
        let own = text_of(&keys[1]["token"]);
        let answer = http.as_key(&own, "DELETE", at, Some(&json!({ "ids": [keys[1]["id"]] })));
        assert_eq!(answer.status, 204);
        http.as_key(&own, "GET", "/organizations", None).expect_error(401, "invalid_token");
    }
}

#[test]
fn keys_outlive_the_key_that_made_them() {
    let http = shared();
    let maker = http.new_key(ORGANIZATION, json!({}));
    let token = text_of(&maker["token"]);
    let made = http.as_key(&token, "POST", ORGANIZATION, Some(&json!({ "name": "made" })));
    let made = made.expect(201)["key"].clone();
    assert_eq!(http.with("DELETE", ORGANIZATION, &json!({ "ids": [maker["id"]] })).status, 204);
    http.as_key(&token, "GET", "/organizations", None).expect_error(401, "invalid_token");
    http.as_key(&text_of(&made["token"]), "GET", "/organizations", None).expect(200);
    let shown = listed(&http, ORGANIZATION, &text_of(&made["id"])).expect("it is listed");
    assert_eq!((&shown["created_by_key"], &shown["created_by"]), (&maker["id"], &json!(null)));
}

#[test]
fn what_a_key_made_goes_with_it_also_where_the_keys_between_are_gone() {
    let http = shared();
    let make = |with: &Value, at: &str| {
        let made = http.as_key(&text_of(&with["token"]), "POST", at, Some(&json!({ "name": "made" })));
        made.expect(201)["key"].clone()
    };
    let delete = |at: &str, body: Value| assert_eq!(http.with("DELETE", at, &body).status, 204);
    let made_with = |at: &str, id: &Value| {
        let listed = http.get(&format!("{at}?made_with=key_unknown,{}", text_of(id))).expect(200);
        let ids = listed["keys"].as_array().expect("keys").iter().map(|key| text_of(&key["id"]));
        ids.collect::<Vec<_>>()
    };
    let works = |key: &Value| http.as_key(&text_of(&key["token"]), "GET", "/organizations", None).status;
    for at in [USER, ORGANIZATION] {
        let (stolen, other) = (http.new_key(at, json!({})), http.new_key(at, json!({})));
        let between = make(&stolen, at);
        // What the organization has of it is its own business.
        let (last, elsewhere) = (make(&between, at), make(&between, ORGANIZATION));
        delete(at, json!({ "ids": [between["id"]] }));
        let here = if at == USER { vec![&last] } else { vec![&last, &elsewhere] };
        let ids: Vec<_> = here.iter().map(|key| text_of(&key["id"])).collect();
        assert_eq!(made_with(at, &stolen["id"]), ids);
        delete(at, json!({ "ids": [stolen["id"]], "with_made": true }));
        assert_eq!([&stolen, &last, &other].map(works), [401, 401, 200]);
        assert_eq!(works(&elsewhere), if at == USER { 200 } else { 401 });
        delete(ORGANIZATION, json!({ "ids": [stolen["id"]], "with_made": true }));
        assert_eq!([&elsewhere, &other].map(works), [401, 200]);
    }
    assert_eq!(http.get(&format!("{USER}?made_with=key_unknown,%20x")).expect(200)["keys"], json!([]));
}

#[test]
fn keys_that_made_one_another_come_to_an_end() {
    let http = shared();
    let organization = http.new_organization("of keys in a row");
    let at = format!("/organizations/{organization}/api-keys");
    let make = |token: &str| http.as_key(token, "POST", &at, Some(&json!({ "name": "next" })));
    // The caller's own key is the first that led to it.
    let first = http.new_key(&at, json!({}));
    let (mut id, mut token) = (text_of(&first["id"]), text_of(&first["token"]));
    for _ in 1..KEY_MAKERS_MAX {
        let next = make(&token).expect(201)["key"].clone();
        assert_eq!(http.with("DELETE", &at, &json!({ "ids": [id] })).status, 204);
        (id, token) = (text_of(&next["id"]), text_of(&next["token"]));
    }
    let message = make(&token).expect_error(400, "api_key_limit_reached");
    assert!(message.ends_with("makes no more: sign in, and make the key from there"), "{message}");
    http.as_key(&token, "GET", "/organizations", None).expect(200);
    let made = http.get(&format!("{at}?made_with={}", text_of(&first["id"]))).expect(200);
    assert_eq!(made["keys"][0]["id"], json!(id), "it is known what led to it");
    http.new_key(&at, json!({}));
}

#[test]
fn bulk_deletion_is_bounded() {
    let http = shared();
    let delete = |body: Value| http.with("DELETE", USER, &body);
    assert_eq!(delete(json!({ "ids": [] })).status, 204);
    assert_eq!(delete(json!({ "ids": vec!["key_x"; 50] })).status, 204);
    let message = delete(json!({ "ids": vec!["key_x"; 51] })).expect_error(400, "too_many_api_keys");
    assert_eq!(message, "at most 50 API keys can be deleted at once");
    delete(json!({})).expect_error(400, "missing_field");
    delete(json!({ "ids": null })).expect_error(400, "missing_field");
    delete(json!({ "ids": "key_x" })).expect_error(400, "invalid_field");
    delete(json!({ "ids": [1] })).expect_error(400, "invalid_field");
    http.delete(USER).expect_error(400, "invalid_json");
}

#[test]
fn what_comes_after_a_key_has_ended_is_not_done_although_its_request_began_before() {
    let http = shared();
    let key = http.new_key(USER, json!({}));
    let end = || assert_eq!(http.with("DELETE", USER, &json!({ "ids": [key["id"]] })).status, 204);
    let token = text_of(&key["token"]);
    let wanted = json!({ "name": "late" });
    http.as_key_slowly(&token, ("POST", "/organizations/{org}/projects"), &wanted, || {}).expect(201);
    let late = http.as_key_slowly(&token, ("POST", "/organizations/{org}/projects"), &wanted, end);
    late.expect_error(401, "invalid_token");
}
