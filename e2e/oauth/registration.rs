//! Clients that register themselves.

use std::time::Duration;

use coppice_test_support::{Platform, wait_for};
use serde_json::{Value, json};

use super::browser::{Answer, Browser};
use super::{claims, code_request, metastore, redeem, shared, who_am_i, with_clients};
use crate::http::Http;
use crate::setup::{PROGRAM, options};

fn register(http: &Http, metadata: &Value) -> Answer {
    let mut client = Browser::new(http);
    let request = client.request("POST", "/oauth/register").json(metadata);
    client.send(request)
}

#[test]
fn a_client_registers_and_people_let_it_act_for_them() {
    let http = shared();
    let uri = "http://127.0.0.1:33418/callback";
    let metadata = json!({
        "client_name": "An <b>agent</b>",
        "redirect_uris": [uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none"
    });
    let registered = register(&http, &metadata).json(201);
    assert_eq!(registered["token_endpoint_auth_method"], "none");
    assert!(registered.get("client_secret").is_none());
    let id = registered["client_id"].as_str().expect("an id");
    let mut browser = Browser::signed_in(&http);
    // Its port may be another one the next time.
    let uri = "http://127.0.0.1:33999/callback";
    let page = browser.get(&code_request(id, uri, &[("scope", "project:read")]));
    assert!(page.title().contains("agent") && !page.text.contains("<b>agent"), "{}", page.text);
    let code = browser.submit(&page, &[("answer", "allow")]).parameter('?', "code");
    let tokens = redeem(&http, &code, uri, &[("client_id", id)]).json(200);
    assert_eq!(tokens["scope"], "project:read");
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);
    // It gets none without a code, and none without a proof. Nor does it lead
    // anybody anywhere who was not asked.
    let proofless = [("code_challenge", ""), ("code_challenge_method", "")];
    for more in [
        &[("response_type", "token")][..],
        &proofless,
        &[("prompt", "none")],
        &[("scope", "x"), ("max_age", "y")],
    ] {
        let answer = browser.get(&code_request(id, uri, more));
        assert_eq!((answer.status, answer.header("location")), (400, ""), "{more:?}");
    }
}

#[test]
fn an_agent_that_names_no_right_may_look_and_its_token_works_where_agents_are() {
    let http = shared();
    let uri = "cursor://anysphere.cursor-mcp/oauth/callback";
    let uris = [uri, "https://www.cursor.com/agents/mcp/oauth/callback", "http://127.0.0.1:3118/callback"];
    let registered = register(&http, &json!({ "client_name": "An editor", "redirect_uris": uris })).json(201);
    let id = registered["client_id"].as_str().expect("an id");
    let agents = format!("{}/mcp", http.platform.api());
    let mut browser = Browser::signed_in(&http);
    let elsewhere = [("resource", "https://elsewhere.example/mcp")];
    assert_eq!(browser.get(&code_request(id, uri, &elsewhere)).status, 400);
    let answer = browser.authorize(&code_request(id, uri, &[("resource", &agents)]));
    assert!(answer.location().starts_with(&format!("{uri}?code=")), "{answer:?}");
    let code = answer.parameter('?', "code");
    let tokens = redeem(&http, &code, uri, &[("client_id", id), ("resource", &agents)]).json(200);
    assert_eq!(tokens["scope"], "org:read project:read branch:read metrics:read logs:read");
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let is_good = |token: &Value| {
        let token = token.as_str().expect("a token");
        assert_eq!(claims(token)["aud"], agents.as_str());
        let request = http.anonymous("POST", "/mcp").bearer_auth(token).json(&list);
        let answer = http.send(request.header("accept", "application/json, text/event-stream")).expect(200);
        let tools = answer["result"]["tools"].as_array().expect("tools");
        assert!(tools.iter().any(|tool| tool["name"] == "list_branches"), "{answer}");
        for path in ["/credential", "/organizations", "/oauth/userinfo"] {
            assert_eq!(http.as_key(token, "GET", path, None).status, 401, "{path}");
        }
    };
    is_good(&tokens["access_token"]);
    let refresh = |more: &[(&str, &str)], token: &Value| {
        let token = token.as_str().expect("a token");
        let form = [("grant_type", "refresh_token"), ("client_id", id), ("refresh_token", token)];
        Browser::new(&http).post("/oauth/token", &[&form, more].concat())
    };
    let api = http.platform.api();
    refresh(&[("resource", api)], &tokens["refresh_token"]).is_error(400, "invalid_target");
    is_good(&refresh(&[], &tokens["refresh_token"]).json(200)["access_token"]);
}

#[test]
fn what_a_person_allowed_counts_for_the_place_they_saw() {
    let http = shared();
    let (seen, other) = ("https://agent.example.com/cb", "https://evil.example/cb");
    let registered = register(&http, &json!({ "redirect_uris": [seen, other] })).json(201);
    let id = registered["client_id"].as_str().expect("an id");
    let mut browser = Browser::signed_in(&http);
    assert!(browser.get(&code_request(id, seen, &[])).title().starts_with("Allow "));
    browser.code(&code_request(id, seen, &[]));
    assert!(!browser.get(&code_request(id, seen, &[])).parameter('?', "code").is_empty(), "not asked again");
    let silent = [("prompt", "none")];
    assert!(!browser.get(&code_request(id, seen, &silent)).parameter('?', "code").is_empty());
    assert!(browser.get(&code_request(id, other, &[])).title().starts_with("Allow "));
    let refused = browser.get(&code_request(id, other, &silent));
    assert_eq!((refused.status, refused.header("location")), (400, ""));
}

#[test]
fn a_registration_that_makes_no_sense_is_refused() {
    let http = shared();
    let uris = |uri: &str| json!({ "redirect_uris": [uri] });
    for uri in
        ["http://evil.example.com/cb", "javascript:alert(1)", "https://a.example.com/#x", "/cb", "app:cb"]
    {
        register(&http, &uris(uri)).is_error(400, "invalid_redirect_uri");
    }
    register(&http, &json!({})).is_error(400, "invalid_redirect_uri");
    register(&http, &json!([])).is_error(400, "invalid_client_metadata");
    let mut implicit = uris("https://a.example.com/cb");
    implicit["response_types"] = json!(["token"]);
    register(&http, &implicit).is_error(400, "invalid_client_metadata");
}

#[test]
fn an_operator_may_register_clients_alone() {
    let mut options = options();
    options
        .flags
        .extend(["--auth-dynamic-clients", "off", "--auth-signing-algorithm", "EdDSA"].map(str::to_owned));
    let http = Http::new(Platform::start(PROGRAM, options));
    let refused = register(&http, &json!({ "redirect_uris": ["https://a.example.com/cb"] }));
    refused.is_error(400, "invalid_client_metadata");
    let metadata = Browser::new(&http).get("/.well-known/openid-configuration").json(200);
    assert!(metadata.get("registration_endpoint").is_none());
    assert_eq!(metadata["id_token_signing_alg_values_supported"], json!(["EdDSA"]));
    let mut browser = Browser::new(&http);
    let uri = format!("{}/callback", http.platform.api());
    let more = [("response_type", "token"), ("code_challenge", ""), ("code_challenge_method", "")];
    let token = browser.authorize(&code_request("console", &uri, &more)).parameter('#', "access_token");
    assert_eq!(who_am_i(&http, &token.into()).0, 200);
}

#[test]
fn one_address_registers_only_so_many_clients() {
    // A platform of its own: other stories register clients too.
    let http = Http::new(with_clients(&[]));
    let metadata = json!({ "redirect_uris": ["https://a.example.com/cb"] });
    let statuses: Vec<_> = (0..21).map(|_| register(&http, &metadata).status).collect();
    assert_eq!(statuses[..20], [201; 20]);
    let refused = register(&http, &metadata);
    refused.is_error(429, "temporarily_unavailable");
    assert!(!refused.header("retry-after").is_empty());
}

/// Makes the clients that registered themselves 10,000, all `age` old.
fn fill(http: &Http, age: &str, last_used_at: &str) {
    metastore(
        http,
        &format!(
            "insert into oauth_clients (id, name, redirect_uris, created_at, last_used_at)
             select 'dyn_' || lpad(i::text, 26, '0'), 'one', '{{https://a.example.com/cb}}',
                    now() - interval '{age}' + i * interval '1 us', {last_used_at}
             from generate_series(1, 10000 - (select count(*) from oauth_clients)) i"
        ),
    );
}

#[test]
fn nobody_ends_registration_for_others() {
    let mut http = Http::new(with_clients(&[]));
    let metadata = json!({ "redirect_uris": ["https://a.example.com/cb"] });
    let count = |http: &Http, which: &str| {
        metastore(http, &format!("select count(*) from oauth_clients where {which}"))
    };
    fill(&http, "1 hour", "null");
    register(&http, &metadata).json(201);
    assert_eq!(count(&http, "true"), "10000");
    assert_eq!(count(&http, "name = 'one'"), "9999");
    assert_eq!(count(&http, "id = 'dyn_' || lpad('1', 26, '0')"), "0", "the oldest made room");
    // Nor does whoever signed in to each of them once.
    metastore(&http, "update oauth_clients set last_used_at = now()");
    register(&http, &metadata).json(201);
    assert_eq!(count(&http, "true"), "10000");
    metastore(&http, "delete from oauth_clients");
    // What is never used is forgotten after a day.
    fill(&http, "2 days", "null");
    metastore(&http, "update oauth_clients set last_used_at = now() where id like '%77'");
    http.platform.restart();
    wait_for("what nobody uses to be forgotten", Duration::from_secs(60), || {
        (count(&http, "true") == "100").then_some(())
    });
    register(&http, &metadata).json(201);
}
