//! What people are shown, and when.

use super::browser::{Browser, encode};
use super::{APP_URI, SPA_URI, code_request, shared};

#[test]
fn the_client_says_when_people_sign_in_anew() {
    let http = shared();
    let mut browser = Browser::new(&http);
    let request = |more: &[(&str, &str)]| code_request("spa", SPA_URI, more);
    let silent = browser.get(&request(&[("prompt", "none")]));
    assert_eq!(silent.parameter('?', "error"), "login_required");
    let page = browser.get(&request(&[("login_hint", "hint@example.com")]));
    assert!(page.text.contains("value=\"hint@example.com\""), "{}", page.text);
    assert!(page.text.contains("to continue to <strong>spa</strong>"));
    browser.code(&request(&[]));
    // Allowed once, for a site that only its owner has.
    assert!(!browser.get(&request(&[])).parameter('?', "code").is_empty());
    assert!(!browser.get(&request(&[("prompt", "none")])).parameter('?', "code").is_empty());
    assert!(!browser.get(&request(&[("max_age", "3600")])).parameter('?', "code").is_empty());
    for more in [("prompt", "login"), ("prompt", "select_account"), ("max_age", "0")] {
        let page = browser.get(&request(&[more]));
        assert_eq!(page.title(), "Sign in", "{more:?}");
        let next = browser.fill_in(&page).location().to_owned();
        assert!(!browser.get(&next).parameter('?', "code").is_empty(), "{more:?}: once is enough");
    }
    assert_eq!(browser.get(&request(&[("prompt", "consent")])).title(), "Allow spa to use your account?");
    for wrong in [("prompt", "none login"), ("prompt", "create"), ("max_age", "x")] {
        assert_eq!(browser.get(&request(&[wrong])).parameter('?', "error"), "invalid_request", "{wrong:?}");
    }
    assert_eq!(browser.get(&request(&[("request", "x")])).parameter('?', "error"), "request_not_supported");
}

#[test]
fn the_console_asks_unless_it_is_where_the_platform_is() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let own = format!("{}/callback", http.platform.api());
    assert!(!browser.get(&code_request("console", &own, &[])).parameter('?', "code").is_empty());
    let same_machine = own.replace("127.0.0.1", "localhost");
    for elsewhere in ["https://console.example.com/callback", &same_machine] {
        let page = browser.get(&code_request("console", elsewhere, &[]));
        assert_eq!(page.title(), "Allow Coppice console to use your account?", "{elsewhere}");
        let silent = browser.get(&code_request("console", elsewhere, &[("prompt", "none")]));
        assert_eq!(silent.parameter('?', "error"), "consent_required", "{elsewhere}");
    }
}

#[test]
fn what_was_allowed_counts_for_no_more_than_that() {
    let http = shared();
    let email = super::new_user(&http, "cautious", "a cautious password");
    let mut browser = Browser::of(&http, &email, "a cautious password");
    let request = |scope: &str| code_request("app", APP_URI, &[("scope", scope)]);
    browser.sign_in();
    let silent = browser.get(&code_request("app", APP_URI, &[("prompt", "none")]));
    assert_eq!(silent.parameter('?', "error"), "consent_required");
    let page = browser.get(&request("project:read branch:read"));
    assert!(page.text.contains("See projects") && page.text.contains(&email), "{}", page.text);
    browser.submit(&page, &[("answer", "allow")]);
    assert!(!browser.get(&request("branch:read")).parameter('?', "code").is_empty());
    for more in ["branch:write", "", "*", "branch:read offline_access"] {
        assert!(browser.get(&request(more)).title().starts_with("Allow "), "{more}");
    }
    // Nor for somebody else.
    let mut other = Browser::signed_in(&http);
    let page = other.get(&code_request("second", "https://second.example.com/callback", &[]));
    assert!(page.title().starts_with("Allow "));
}

#[test]
fn a_program_on_the_own_machine_asks_each_time() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let request = code_request("cli", "http://127.0.0.1:4711/callback", &[("scope", "offline_access")]);
    for _ in 0..2 {
        let page = browser.get(&request);
        assert_eq!(page.title(), "Allow Coppice CLI to use your account?");
        assert!(page.text.contains("a program on this computer"));
        let answer = browser.submit(&page, &[("answer", "allow")]);
        let code = answer.parameter('?', "code");
        let client = [("client_id", "cli"), ("client_secret", "coppice-cli")];
        super::redeem(&http, &code, "http://127.0.0.1:4711/callback", &client).json(200);
    }
    // Everybody knows its secret, so it proves who it is like a client without one.
    let without = [("code_challenge", ""), ("code_challenge_method", "")];
    let refused = browser.get(&code_request("cli", "http://127.0.0.1:4711/callback", &without));
    assert_eq!(refused.parameter('?', "error"), "invalid_request");
}

#[test]
fn a_request_may_come_as_a_form_of_another_site() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let request = code_request("spa", SPA_URI, &[]);
    let (path, query) = request.split_once('?').expect("a query");
    let pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    // Sent without cookies, as browsers do; asked again, with them.
    let mut without = Browser::new(&http);
    let next = without.post(path, &pairs).location().to_owned();
    assert_eq!(next, format!("{path}?{}", encode(&pairs)));
    assert_ne!(browser.get(&next).title(), "Sign in");
}

#[test]
fn discovery_leads_to_every_endpoint() {
    let http = shared();
    let mut client = Browser::new(&http);
    let metadata = client.get("/realms/main/.well-known/openid-configuration").json(200);
    let issuer = format!("{}/realms/main", http.platform.api());
    assert_eq!(metadata["issuer"], issuer.as_str());
    for path in [
        "/.well-known/oauth-authorization-server/realms/main",
        "/.well-known/openid-configuration/realms/main",
        "/realms/main/.well-known/oauth-authorization-server",
    ] {
        assert_eq!(client.get(path).json(200), metadata, "{path}");
    }
    assert_eq!(metadata["code_challenge_methods_supported"], serde_json::json!(["S256"]));
    let auth_url = http.platform.setting("COPPICE_AUTH_URL");
    assert_eq!(metadata["authorization_endpoint"], auth_url);
    // Whoever knows nothing but where the site is finds an issuer of that name.
    let site = client.get("/.well-known/oauth-authorization-server").json(200);
    assert_eq!(client.get("/.well-known/openid-configuration").json(200), site);
    assert_eq!(site["issuer"], http.platform.api());
    assert_eq!(site["token_endpoint"], format!("{}/oauth/token", http.platform.api()));
    let fields = [&metadata, &site].map(|metadata| metadata.as_object().expect("an object").iter());
    let endpoints = fields.into_iter().flatten();
    let endpoints = endpoints.filter(|(name, _)| name.ends_with("_endpoint") || *name == "jwks_uri");
    let endpoints: Vec<_> = endpoints.map(|(_, url)| url.as_str().expect("a URL").to_owned()).collect();
    assert_eq!(endpoints.len(), 18, "{endpoints:?}");
    for endpoint in endpoints {
        assert_ne!(client.get(&endpoint).status, 404, "{endpoint}");
    }
    for (path, resource) in [("", ""), ("/mcp", "/mcp")] {
        let found = client.get(&format!("/.well-known/oauth-protected-resource{path}")).json(200);
        assert_eq!(found["resource"], format!("{}{resource}", http.platform.api()));
        assert_eq!(found["authorization_servers"], serde_json::json!([issuer]));
    }
}
