//! Signing out, by oneself and when a client asks for it.

use serde_json::json;

use super::browser::{Browser, encode};
use super::{SPA_URI, code_request, redeem, shared, tokens_of_spa, who_am_i};

#[test]
fn a_client_that_knows_who_is_signed_in_signs_them_out() {
    let http = shared();
    let mut browser = Browser::new(&http);
    let tokens = tokens_of_spa(&http, &mut browser, "openid");
    let offline = tokens_of_spa(&http, &mut browser, "openid offline_access");
    let hint = tokens["id_token"].as_str().expect("an ID token");
    let pairs = [("id_token_hint", hint), ("post_logout_redirect_uri", SPA_URI), ("state", "bye")];
    let answer = browser.get(&format!("/realms/main/protocol/openid-connect/logout?{}", encode(&pairs)));
    assert_eq!(answer.location(), format!("{SPA_URI}?state=bye"));
    assert_eq!(browser.get("/oauth/device").title(), "Sign in");
    assert!(!browser.cookies.contains_key("coppice-session"));
    // What lives with the browser ends with it; what was allowed to go on goes on.
    assert_eq!(who_am_i(&http, &tokens["access_token"]), (401, "invalid_token".to_owned()));
    assert_eq!(who_am_i(&http, &offline["access_token"]).0, 200);
    // Asked again by a client that did not notice.
    let answer = browser.get(&format!("/oauth/logout?{}", encode(&pairs)));
    assert_eq!(answer.location(), format!("{SPA_URI}?state=bye"));
}

#[test]
fn without_a_sign_of_who_asks_the_person_is_asked() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let other = super::new_user(&http, "bystander", "a bystander's password");
    let mut bystander = Browser::of(&http, &other, "a bystander's password");
    let foreign = tokens_of_spa(&http, &mut bystander, "openid");
    let foreign = foreign["id_token"].as_str().expect("an ID token");
    for pairs in [
        vec![],
        vec![("id_token_hint", "nonsense")],
        vec![("id_token_hint", foreign)],
        vec![("client_id", "spa")],
    ] {
        let page = browser.get(&format!("/oauth/logout?{}", encode(&pairs)));
        assert_eq!((page.status, page.title()), (200, "Sign out?"), "{pairs:?}");
        let sent_back = browser.post("/oauth/logout", &pairs);
        assert_eq!(sent_back.location(), format!("/oauth/logout?{}", encode(&pairs)));
    }
    // A form of another site's making.
    assert_eq!(browser.post("/oauth/logout", &[("csrf", "x")]).status, 400);
    let page = browser.get("/oauth/logout?state=x");
    assert_eq!(bystander.submit(&page, &[]).status, 400);
    assert_eq!(browser.get("/oauth/device").title(), "Connect a device");
    assert_eq!(browser.submit(&page, &[]).title(), "Signed out");
    assert_eq!(browser.get("/oauth/device").title(), "Sign in");
    assert_eq!(browser.get("/oauth/logout").title(), "Signed out");
}

#[test]
fn signing_out_leads_nowhere_else() {
    let http = shared();
    let mut browser = Browser::new(&http);
    let tokens = tokens_of_spa(&http, &mut browser, "openid");
    let hint = tokens["id_token"].as_str().expect("an ID token");
    for pairs in [
        vec![("id_token_hint", hint), ("post_logout_redirect_uri", "https://evil.example.com")],
        vec![("id_token_hint", hint), ("post_logout_redirect_uri", "https://spa.example.com/callback/")],
        vec![("id_token_hint", hint), ("post_logout_redirect_uri", super::APP_URI)],
        vec![("id_token_hint", hint), ("post_logout_redirect_uri", SPA_URI), ("client_id", "app")],
        vec![("post_logout_redirect_uri", SPA_URI)],
        vec![("client_id", "nobody"), ("post_logout_redirect_uri", SPA_URI)],
    ] {
        let answer = browser.get(&format!("/oauth/logout?{}", encode(&pairs)));
        assert_eq!((answer.status, answer.header("location")), (400, ""), "{pairs:?}");
    }
    assert_eq!(browser.get("/oauth/device").title(), "Connect a device", "nothing happened");
    // To a place of the client's, after the question.
    let pairs = [("client_id", "spa"), ("post_logout_redirect_uri", SPA_URI)];
    let page = browser.get(&format!("/oauth/logout?{}", encode(&pairs)));
    assert!(page.header("content-security-policy").contains("form-action 'self' https://spa.example.com"));
    assert_eq!(browser.submit(&page, &[]).location(), SPA_URI);
}

#[test]
fn a_form_of_another_site_finds_out_nothing_and_ends_nothing() {
    let http = shared();
    let mut browser = Browser::new(&http);
    let tokens = tokens_of_spa(&http, &mut browser, "openid");
    let hint = tokens["id_token"].as_str().expect("an ID token");
    let pairs = [("id_token_hint", hint), ("post_logout_redirect_uri", SPA_URI), ("state", "bye")];
    for path in ["/oauth/logout", "/realms/main/protocol/openid-connect/logout"] {
        // A browser sends no cookies with it.
        let sent_back = Browser::new(&http).post(path, &pairs);
        assert_eq!(sent_back.location(), format!("/oauth/logout?{}", encode(&pairs)));
        assert_eq!(sent_back.header("set-cookie"), "");
        assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);
    }
    // It sends them where it is sent back to.
    let answer = browser.get(&format!("/oauth/logout?{}", encode(&pairs)));
    assert_eq!(answer.location(), format!("{SPA_URI}?state=bye"));
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 401);
}

#[test]
fn nobody_is_sent_to_a_client_that_registered_itself_unasked() {
    let http = shared();
    let uri = "https://stranger.example.com/";
    let mut stranger = Browser::new(&http);
    let request = stranger.request("POST", "/oauth/register").json(&json!({ "redirect_uris": [uri] }));
    let registered = stranger.send(request).json(201);
    let id = registered["client_id"].as_str().expect("an id");
    let pairs = [("client_id", id), ("post_logout_redirect_uri", uri)];
    let path = format!("/oauth/logout?{}", encode(&pairs));
    let page = stranger.get(&path);
    assert_eq!((page.status, page.title(), page.header("location")), (200, "Signed out", ""));
    // Also where it knows who is signed in, it is the person who says so.
    let mut browser = Browser::new(&http);
    let code = browser.code(&code_request(id, uri, &[("scope", "openid")]));
    let tokens = redeem(&http, &code, uri, &[("client_id", id)]).json(200);
    let hint = tokens["id_token"].as_str().expect("an ID token");
    let pairs = [("id_token_hint", hint), ("post_logout_redirect_uri", uri)];
    let [_, page] = [&pairs[..1], &pairs].map(|pairs| {
        let page = browser.get(&format!("/oauth/logout?{}", encode(pairs)));
        assert_eq!((page.status, page.title()), (200, "Sign out?"), "{pairs:?}");
        page
    });
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);
    assert_eq!(browser.submit(&page, &[]).location(), uri);
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 401);
}
