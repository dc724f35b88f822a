//! The way to the console, and its door.

use serde_json::json;

use crate::shared;

const HOST: (&str, &str) = ("host", "127.0.0.1:7070");
const OWN: (&str, &str) = ("x-coppice-console", "1");

#[test]
fn the_root_leads_people_to_the_console_and_is_nothing_for_programs() {
    let http = shared();
    let people = [HOST, ("accept", "text/html,*/*;q=0.8")];
    let led = http.anonymous("GET", "/", &people);
    assert_eq!((led.status, led.header("location")), (303, "/console/"));
    http.anonymous("GET", "/", &[HOST]).expect_error(404, "route_not_found");
    http.anonymous("POST", "/", &people).expect_error(404, "route_not_found");
    let gone = http.anonymous("GET", "/console/assets/index-0.js", &[HOST]);
    assert_eq!((gone.status, gone.header("cache-control")), (404, "no-store"));
}

#[test]
fn the_door_takes_a_cookie_of_a_page_of_this_site_and_nothing_else() {
    let http = shared();
    let ask = |more: &[(&str, &str)]| {
        let headers: Vec<_> = [HOST].iter().chain(more).copied().collect();
        http.anonymous("GET", "/console/api/organizations", &headers)
    };
    ask(&[]).expect_error(403, "cross_origin_request");
    for foreign in [
        ("origin", "https://evil.example"),
        ("origin", "http://127.0.0.1:7071"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "cross-site"),
        ("host", "evil.example"),
    ] {
        let headers = [OWN, foreign];
        let refused = match foreign.0 {
            "host" => http.anonymous("GET", "/console/api/organizations", &headers),
            _ => ask(&headers),
        };
        refused.expect_error(403, "cross_origin_request");
    }
    let own = ask(&[OWN, ("origin", "http://127.0.0.1:7070"), ("sec-fetch-site", "same-origin")]);
    own.expect_error(401, "missing_token");
    let bearer = format!("Bearer {}", http.key());
    let with_key = [OWN, ("authorization", bearer.as_str())];
    ask(&with_key).expect_error(401, "missing_token");
    ask(&[OWN, ("cookie", "coppice-session=made-up")]).expect_error(401, "invalid_token");
    let preflight = [("origin", "https://evil.example"), ("access-control-request-method", "POST")];
    let asked = http.anonymous("OPTIONS", "/console/api/organizations", &preflight);
    assert_eq!((asked.status, asked.header("access-control-allow-origin")), (403, ""), "no CORS");
    let cookie_only = http.anonymous("GET", "/organizations", &[("cookie", "coppice-session=made-up")]);
    cookie_only.expect_error(401, "missing_token");
}

#[test]
fn the_tree_is_sent_once_as_long_as_it_is_the_same() {
    let http = shared();
    let project = http.new_project("tree");
    let path = format!("{project}/tree");
    let bearer = format!("Bearer {}", http.key());
    let ask =
        |known: &str| http.anonymous("GET", &path, &[("authorization", &bearer), ("if-none-match", known)]);
    let first = ask("");
    assert_eq!(first.json(), json!({ "branches": [] }));
    let tag = first.header("etag").to_owned();
    assert!(tag.starts_with("W/\""), "{tag}");
    assert_eq!(first.header("cache-control"), "private, no-cache");
    let again = ask(&tag);
    assert_eq!((again.status, again.bytes.len(), again.header("etag")), (304, 0, tag.as_str()));
    assert_eq!(ask("W/\"another\"").status, 200);
}

#[test]
fn whoever_is_not_signed_in_is_told_so_and_no_more() {
    let http = shared();
    let ask = |path: &str, more: &[(&str, &str)]| {
        let headers: Vec<_> = [HOST, OWN].iter().chain(more).copied().collect();
        http.anonymous("GET", path, &headers)
    };
    assert_eq!(ask("/console/api/session", &[]).expect(200), json!(null));
    let stale = [("cookie", "coppice-session=made-up")];
    assert_eq!(ask("/console/api/session", &stale).expect(200), json!(null));
    ask("/console/api/github-app", &[]).expect_error(401, "missing_token");
    let elsewhere = http.anonymous("GET", "/console/api/session", &[HOST]);
    elsewhere.expect_error(403, "cross_origin_request");
}
