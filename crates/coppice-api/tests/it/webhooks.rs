//! Webhooks: what they may be, and who is told their secrets.

use coppice_test_support::{fields, text_of};
use serde_json::{Value, json};

use crate::{Http, is_timestamp, shared};

const URL: &str = "https://hook.invalid/coppice";

fn at(organization: &str) -> String {
    format!("/organizations/{organization}/webhooks")
}

fn make(http: &Http, organization: &str, more: Value) -> coppice_test_support::Answer {
    let mut body = json!({ "url": URL });
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    http.post(&at(organization), &body)
}

#[test]
fn a_webhook_tells_its_secret_when_it_gets_it_and_never_again() {
    let http = shared();
    let organization = http.new_organization("of webhooks");
    let made =
        make(&http, &organization, json!({ "types": ["branch.ready"], "projects": ["prj_1"] })).expect(201);
    let expected = [
        "created_at",
        "description",
        "enabled",
        "former_until",
        "gone",
        "id",
        "projects",
        "secret",
        "types",
        "updated_at",
        "url",
    ];
    assert_eq!(fields(&made), expected);
    assert!(text_of(&made["secret"]).starts_with("whsec_") && text_of(&made["id"]).starts_with("whk_"));
    assert_eq!((&made["url"], &made["description"]), (&json!(URL), &json!("")));
    assert_eq!(
        (&made["enabled"], &made["gone"], &made["former_until"]),
        (&json!(true), &json!(false), &json!(null))
    );
    let one = format!("{}/{}", at(&organization), text_of(&made["id"]));
    let mut shown = made.clone();
    shown.as_object_mut().expect("an object").remove("secret");
    assert_eq!(http.get(&one).expect(200), shown);
    assert_eq!(http.get(&at(&organization)).expect(200), json!({ "webhooks": [shown] }));
    let rotated = http.call("POST", &format!("{one}/rotate")).expect(200);
    assert_ne!(rotated["secret"], made["secret"]);
    is_timestamp(&rotated["former_until"]);
    let change = json!({ "types": [], "enabled": false, "description": "chat" });
    let changed = http.with("PATCH", &one, &change).expect(200);
    assert_eq!((&changed["types"], &changed["projects"]), (&json!([]), &json!(["prj_1"])));
    assert_eq!((&changed["enabled"], &changed["description"]), (&json!(false), &json!("chat")));
    assert_eq!(changed.get("secret"), None);
    let deliveries = format!("{one}/deliveries");
    assert_eq!(http.get(&deliveries).expect(200), json!({ "deliveries": [], "next_cursor": null }));
    http.call("POST", &format!("{deliveries}/dlv_none/resend")).expect_error(404, "delivery_not_found");
    let elsewhere = http.new_organization("another with webhooks");
    let foreign = format!("{}/{}", at(&elsewhere), text_of(&made["id"]));
    for (method, path) in [("GET", ""), ("DELETE", ""), ("POST", "/rotate"), ("GET", "/deliveries")] {
        http.call(method, &format!("{foreign}{path}")).expect_error(404, "webhook_not_found");
    }
    assert_eq!(http.delete(&one).status, 204);
    http.delete(&one).expect_error(404, "webhook_not_found");
}

#[test]
fn a_url_is_shown_as_a_whole_to_whoever_may_change_it() {
    let http = shared();
    let organization = http.new_organization("of secret URLs");
    let url = "https://chat.invalid:8443/services/T0/planted?token=planted";
    let made = make(&http, &organization, json!({ "url": url })).expect(201);
    let one = format!("{}/{}", at(&organization), text_of(&made["id"]));
    let keys = format!("/organizations/{organization}/api-keys");
    let key = |scopes| http.new_token(&keys, json!({ "scopes": scopes }));
    let (reads, writes) = (key(json!(["org:read"])), key(json!(["org:read", "org:write"])));
    for (key, expected) in [(&reads, "https://chat.invalid:8443/…"), (&writes, url)] {
        assert_eq!(http.as_key(key, "GET", &one, None).expect(200)["url"], json!(expected));
        let listed = http.as_key(key, "GET", &at(&organization), None).expect(200);
        assert_eq!(listed["webhooks"][0]["url"], json!(expected));
    }
}

#[test]
fn a_webhook_leads_to_the_internet_by_https() {
    let http = shared();
    let organization = http.new_organization("of inner webhooks");
    for inner in [
        "",
        "hook",
        "http://shop.example/",
        "https://127.0.0.1/",
        "https://[::ffff:10.0.0.1]/",
        "https://2130706433/",
        "https://a:b@shop.example/",
        "https://169.254.169.254/latest/meta-data/",
    ] {
        make(&http, &organization, json!({ "url": inner })).expect_error(400, "invalid_field");
    }
    for wrong in [
        json!({ "types": ["branch.gone"] }),
        json!({ "types": "branch.ready" }),
        json!({ "projects": ["a b"] }),
        json!({ "description": "x".repeat(101) }),
    ] {
        make(&http, &organization, wrong).expect_error(400, "invalid_field");
    }
    let made = make(&http, &organization, json!({})).expect(201);
    let one = format!("{}/{}", at(&organization), text_of(&made["id"]));
    let inward = json!({ "url": "https://10.0.0.1/" });
    http.with("PATCH", &one, &inward).expect_error(400, "invalid_field");
    for _ in 1..10 {
        make(&http, &organization, json!({})).expect(201);
    }
    make(&http, &organization, json!({})).expect_error(400, "webhook_limit_reached");
}
