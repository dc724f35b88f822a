//! Tokens for codes, and tokens without one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::browser::{Browser, encode};
use super::{
    APP, APP_URI, SPA_URI, challenge, claims, code_request, metastore, redeem, shared, tokens_of_app,
    tokens_of_spa, who_am_i,
};

#[test]
fn the_implicit_flow_ends_with_a_bearer_token() {
    let http = shared();
    let mut browser = Browser::new(&http);
    let uri = format!("{}/callback", http.platform.api());
    let pairs = [
        ("response_type", "token"),
        ("client_id", "console"),
        ("redirect_uri", uri.as_str()),
        ("scope", "openid"),
        ("state", "a & b"),
    ];
    // The address that a new installation tells its users.
    let auth_url = http.platform.setting("COPPICE_AUTH_URL").to_owned();
    let answer = browser.authorize(&format!("{auth_url}?{}", encode(&pairs)));
    assert!(answer.location().starts_with(&format!("{uri}#access_token=")), "{answer:?}");
    assert_eq!(answer.parameter('#', "token_type"), "Bearer");
    assert_eq!(answer.parameter('#', "expires_in"), "300");
    assert_eq!(answer.parameter('#', "scope"), "openid *");
    assert_eq!(answer.parameter('#', "state"), "a & b");
    assert_eq!(answer.parameter('#', "refresh_token"), "");
    let token = answer.parameter('#', "access_token");
    let user = http.as_key(&token, "GET", "/user", None).expect(200);
    let found = claims(&token);
    assert_eq!(found["sub"], user["id"]);
    assert_eq!(found["email"], user["email"]);
    assert_eq!((&found["aud"], &found["azp"]), (&"platform-api".into(), &"console".into()));
    assert_eq!(found["typ"], "Bearer");
    assert_eq!(found["exp"].as_i64().expect("a time") - found["iat"].as_i64().expect("a time"), 300);
    let projects = http.as_key(&token, "GET", "/organizations/{org}/projects", None);
    assert!(!projects.expect(200)["projects"].as_array().expect("projects").is_empty());
    // Signed in as the browser is, the next token needs nobody.
    let silent = browser.get(&format!("{auth_url}?{}&prompt=none", encode(&pairs)));
    assert!(!silent.parameter('#', "access_token").is_empty());
}

#[test]
fn a_public_client_redeems_a_code_with_its_proof() {
    let http = shared();
    let mut browser = Browser::new(&http);
    let request = code_request("spa", SPA_URI, &[("scope", "openid email"), ("nonce", "n-1")]);
    let answer = browser.authorize(&request);
    assert_eq!(answer.parameter('?', "state"), "the state");
    let issuer = http.platform.api().to_owned();
    assert_eq!(answer.parameter('?', "iss"), issuer);
    let code = answer.parameter('?', "code");
    let tokens = redeem(&http, &code, SPA_URI, &[("client_id", "spa")]).json(200);
    assert_eq!(tokens["token_type"], "Bearer");
    assert_eq!((&tokens["expires_in"], &tokens["refresh_expires_in"]), (&300.into(), &86_400.into()));
    assert_eq!(tokens["not-before-policy"], 0);
    assert_eq!(tokens["scope"], "openid email *");
    let id = claims(tokens["id_token"].as_str().expect("an ID token"));
    assert_eq!((&id["aud"], &id["nonce"], &id["iss"]), (&"spa".into(), &"n-1".into(), &issuer.into()));
    assert_eq!(id["sid"], tokens["session_state"]);
    assert!(id["auth_time"].is_i64() && id["at_hash"].is_string());
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);
    let refresh = claims(tokens["refresh_token"].as_str().expect("a refresh token"));
    assert!(refresh["exp"].is_i64(), "clients show when the session ends");
}

#[test]
fn a_client_with_a_secret_shows_it_in_the_form_or_in_a_header() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    // The proof is not needed with a secret.
    let without = [("code_challenge", ""), ("code_challenge_method", "")];
    let code = browser.code(&code_request("app", APP_URI, &without));
    let basic = format!("Basic {}", BASE64.encode("app:the+secret+of+the+app"));
    let body = encode(&[("grant_type", "authorization_code"), ("code", &code), ("redirect_uri", APP_URI)]);
    let request = browser.request("POST", "/oauth/token").header("authorization", &basic).body(body);
    let request = request.header("content-type", "application/x-www-form-urlencoded; charset=utf-8");
    let tokens = browser.send(request).json(200);
    assert!(tokens.get("id_token").is_none(), "openid was not asked for");

    let code = browser.code(&code_request("app", APP_URI, &[]));
    for wrong in [
        vec![("client_id", "app"), ("client_secret", "wrong")],
        vec![("client_id", "app")],
        vec![("client_id", "nobody"), ("client_secret", APP.1)],
        vec![("client_id", "spa"), ("client_secret", "x")],
        vec![],
    ] {
        let answer = redeem(&http, &code, APP_URI, &wrong);
        answer.is_error(401, "invalid_client");
        assert!(answer.header("www-authenticate").starts_with("Basic "));
    }
    let right = [("client_id", APP.0), ("client_secret", APP.1)];
    redeem(&http, &code, APP_URI, &right).json(200);
}

#[test]
fn scopes_that_were_asked_for_are_all_that_a_token_has() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let tokens = tokens_of_app(&http, &mut browser, "project:read unknown:scope offline_access");
    assert_eq!(tokens["scope"], "project:read offline_access");
    let token = tokens["access_token"].as_str().expect("a token");
    http.as_key(token, "GET", "/organizations/{org}/projects", None).expect(200);
    let body = serde_json::json!({ "name": "p" });
    let refused = http.as_key(token, "POST", "/organizations/{org}/projects", Some(&body));
    refused.expect_error(403, "insufficient_scope");
    let refused = http.as_key(token, "GET", "/organizations", None);
    refused.expect_error(403, "insufficient_scope");
    // Nor has a key that it makes.
    let all = tokens_of_app(&http, &mut browser, "keys:write project:read");
    let token = all["access_token"].as_str().expect("a token");
    let more = serde_json::json!({ "name": "k", "scopes": ["org:write"] });
    http.as_key(token, "POST", "/api-keys", Some(&more)).expect_error(403, "scope_not_grantable");
    let same = http.as_key(token, "POST", "/api-keys", Some(&serde_json::json!({ "name": "k" }))).expect(201);
    assert_eq!(same["key"]["scopes"], serde_json::json!(["keys:write", "project:read"]));
    assert_eq!(same["key"]["created_by_key"], serde_json::Value::Null);
}

#[test]
fn a_token_is_worth_what_its_users_role_is() {
    let http = shared();
    let email = super::new_user(&http, "viewer", "the viewer's password");
    let organization = http.organization();
    super::metastore(
        &http,
        &format!(
            "insert into members (organization_id, user_id, role)
             select '{organization}', id, 'viewer' from users where email = '{email}'"
        ),
    );
    let mut browser = Browser::of(&http, &email, "the viewer's password");
    let tokens = tokens_of_spa(&http, &mut browser, "openid");
    let token = tokens["access_token"].as_str().expect("a token");
    http.as_key(token, "GET", "/organizations/{org}/projects", None).expect(200);
    let body = serde_json::json!({ "name": "p" });
    let refused = http.as_key(token, "POST", "/organizations/{org}/projects", Some(&body));
    refused.expect_error(403, "role_not_allowed");
    // Nothing of it is in the token, so a change acts at once.
    metastore(
        &http,
        &format!("delete from members where user_id = (select id from users where email = '{email}')"),
    );
    let refused = http.as_key(token, "GET", "/organizations/{org}/projects", None);
    refused.expect_error(403, "organization_access_denied");
}

#[test]
fn user_info_needs_a_token_for_it() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let tokens = tokens_of_app(&http, &mut browser, "openid");
    let mut ask = |token: &str, path: &str| {
        let request = browser.request("GET", path).bearer_auth(token);
        browser.send(request)
    };
    let token = tokens["access_token"].as_str().expect("a token").to_owned();
    for path in ["/oauth/userinfo", "/realms/main/protocol/openid-connect/userinfo"] {
        let info = ask(&token, path).json(200);
        let email = http.platform.setting("COPPICE_EMAIL");
        assert_eq!((&info["email"], &info["preferred_username"]), (&email.into(), &email.into()));
        assert_eq!(info["sub"], claims(&token)["sub"]);
    }
    let refused = ask("nonsense", "/oauth/userinfo");
    refused.is_error(401, "invalid_token");
    assert!(refused.header("www-authenticate").contains("error=\"invalid_token\""));
    let refused = ask(http.admin(), "/oauth/userinfo");
    refused.is_error(401, "invalid_token");
    let other = tokens_of_app(&http, &mut Browser::signed_in(&http), "org:read");
    ask(other["access_token"].as_str().expect("a token"), "/oauth/userinfo")
        .is_error(403, "insufficient_scope");
}

#[test]
fn every_realm_is_an_issuer_of_its_own() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let base = "/realms/other/protocol/openid-connect";
    let metadata = browser.get("/realms/other/.well-known/openid-configuration").json(200);
    let issuer = format!("{}/realms/other", http.platform.api());
    assert_eq!(metadata["issuer"], issuer.as_str());
    let request = code_request("spa", SPA_URI, &[("scope", "openid")]);
    let query = request.split_once('?').expect("a query").1.to_owned();
    let authorize = metadata["authorization_endpoint"].as_str().expect("an endpoint").to_owned();
    let answer = browser.authorize(&format!("{authorize}?{query}"));
    assert_eq!(answer.parameter('?', "iss"), issuer);
    let code = answer.parameter('?', "code");
    let tokens = browser.post(
        &format!("{base}/token"),
        &[
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", SPA_URI),
            ("code_verifier", super::VERIFIER),
            ("client_id", "spa"),
        ],
    );
    let tokens = tokens.json(200);
    assert_eq!(claims(tokens["access_token"].as_str().expect("a token"))["iss"], issuer.as_str());
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);
    for path in ["certs", "auth", "token", "logout"] {
        let path = format!("/realms/third/protocol/openid-connect/{path}");
        let method = if path.ends_with("token") { "POST" } else { "GET" };
        let request = browser.request(method, &path);
        assert_eq!(browser.send(request).status, 404, "{path}");
    }
}

#[test]
fn a_code_is_good_for_a_minute_and_once() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let client = [("client_id", "spa")];
    // No other story's codes go there.
    let uri = "https://spa.example.com/x?y=z";
    let code = browser.code(&code_request("spa", uri, &[]));
    metastore(
        &http,
        &format!("update authorization_codes set expires_at = now() where redirect_uri = '{uri}'"),
    );
    redeem(&http, &code, uri, &client).is_error(400, "invalid_grant");
    let code = browser.code(&code_request("spa", SPA_URI, &[]));
    let tokens = redeem(&http, &code, SPA_URI, &client).json(200);
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);
    redeem(&http, &code, SPA_URI, &client).is_error(400, "invalid_grant");
    // Who has it may have stolen it: what was made from it has ended.
    assert_eq!(who_am_i(&http, &tokens["access_token"]), (401, "invalid_token".to_owned()));
    let refresh = tokens["refresh_token"].as_str().expect("a refresh token");
    let pairs = [("grant_type", "refresh_token"), ("refresh_token", refresh), ("client_id", "spa")];
    browser.post("/oauth/token", &pairs).is_error(400, "invalid_grant");
    redeem(&http, "made-up", SPA_URI, &client).is_error(400, "invalid_grant");
}

#[test]
fn only_who_asked_for_a_code_redeems_it() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let second = [("client_id", "second"), ("client_secret", "the secret of the second")];
    let app = [("client_id", APP.0), ("client_secret", APP.1)];
    let wrong_verifier = "x".repeat(50);
    let other_uri = "https://spa.example.com/x?y=z";
    // Another client, another redirect URI, another proof, none at all.
    let code = browser.code(&code_request("app", APP_URI, &[]));
    redeem(&http, &code, APP_URI, &second).is_error(400, "invalid_grant");
    redeem(&http, &code, APP_URI, &app).is_error(400, "invalid_grant");
    for more in [
        ("redirect_uri", other_uri),
        ("redirect_uri", ""),
        ("code_verifier", &wrong_verifier),
        ("code_verifier", ""),
    ] {
        let code = browser.code(&code_request("spa", SPA_URI, &[]));
        redeem(&http, &code, SPA_URI, &[("client_id", "spa"), more]).is_error(400, "invalid_grant");
        // One try is all there is.
        redeem(&http, &code, SPA_URI, &[("client_id", "spa")]).is_error(400, "invalid_grant");
    }
}

#[test]
fn a_proof_can_not_be_taken_away() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let hash = challenge(super::VERIFIER);
    for more in [
        vec![("code_challenge", ""), ("code_challenge_method", "")],
        vec![("code_challenge_method", "plain")],
        vec![("code_challenge_method", "")],
        vec![("code_challenge", "short")],
        vec![("code_challenge", "")],
    ] {
        let answer = browser.get(&code_request("spa", SPA_URI, &more));
        assert_eq!(answer.parameter('?', "error"), "invalid_request", "{more:?}");
        assert_eq!(answer.parameter('?', "state"), "the state");
        assert_eq!(answer.parameter('?', "code"), "");
    }
    // Removed on the way: the client sends a verifier that nobody asked for.
    let without = [("code_challenge", ""), ("code_challenge_method", "")];
    let code = browser.code(&code_request("app", APP_URI, &without));
    let app = [("client_id", APP.0), ("client_secret", APP.1)];
    redeem(&http, &code, APP_URI, &app).is_error(400, "invalid_grant");
    // The challenge itself is no proof.
    let code = browser.code(&code_request("spa", SPA_URI, &[]));
    redeem(&http, &code, SPA_URI, &[("client_id", "spa"), ("code_verifier", &hash)])
        .is_error(400, "invalid_grant");
}
