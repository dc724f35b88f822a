//! Forms of somebody else's making, and requests to the endpoints that no
//! client sends.

use super::browser::{Browser, encode};
use super::{APP, SPA_URI, code_request, shared};

#[test]
fn a_form_to_sign_in_is_the_browsers_own() {
    let http = shared();
    let email = http.platform.setting("COPPICE_EMAIL");
    let password = http.platform.setting("COPPICE_PASSWORD");
    let typed = [("email", email), ("password", password)];
    // Another site sends the attacker's own password, to sign the person in as the attacker.
    let mut victim = Browser::new(&http);
    assert_eq!(victim.post("/oauth/sign-in", &typed).status, 401);
    assert!(!victim.cookies.contains_key("coppice-session"));
    // Or a form that the attacker's browser was given.
    let mut attacker = Browser::new(&http);
    let page = attacker.get("/oauth/sign-in");
    assert_eq!(victim.submit(&page, &typed).status, 401);
    let own = victim.get("/oauth/sign-in");
    assert_eq!(victim.submit(&page, &typed).status, 401);
    assert!(!victim.cookies.contains_key("coppice-session"));
    assert_eq!(victim.submit(&own, &typed).status, 303);
    assert!(victim.cookies.contains_key("coppice-session"));
}

#[test]
fn leave_is_given_by_who_was_asked_for_what_they_were_asked() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let request = code_request("spa", SPA_URI, &[("prompt", "consent"), ("scope", "org:read")]);
    let page = browser.get(&request);
    assert_eq!(page.title(), "Allow spa to use your account?");
    let (action, hidden) = page.form();
    let value = |name: &str| hidden.iter().find(|(found, _)| found == name).expect("the field").1.clone();
    let (csrf, asked) = (value("csrf"), value("request"));
    let allow = ("answer", "allow");
    let more = asked.replace("org%3Aread", "org%3Awrite");
    assert_ne!(more, asked);
    for pairs in [
        vec![("request", asked.as_str()), allow],
        vec![("request", asked.as_str()), allow, ("csrf", "")],
        vec![("request", asked.as_str()), allow, ("csrf", "nonsense")],
        vec![("request", more.as_str()), allow, ("csrf", csrf.as_str())],
        vec![("request", asked.as_str()), ("realm", "other"), allow, ("csrf", csrf.as_str())],
    ] {
        let answer = browser.post(&action, &pairs);
        assert_eq!((answer.status, answer.title()), (400, "That page is out of date"), "{pairs:?}");
    }
    // The attacker is asked the same in a browser of their own.
    let mut attacker = Browser::signed_in(&http);
    let theirs = attacker.get(&request);
    assert_eq!(browser.submit(&theirs, &[allow]).status, 400);
    // Signed in as somebody else meanwhile.
    let signed_in = browser.cookies.clone();
    let again = browser.get(&code_request("spa", SPA_URI, &[("prompt", "login")]));
    browser.fill_in(&again);
    assert_eq!(browser.submit(&page, &[allow]).status, 400);
    assert_ne!(browser.cookies, signed_in);
    let page = browser.get(&request);
    let denied = browser.submit(&page, &[("answer", "deny")]);
    assert_eq!(denied.parameter('?', "error"), "access_denied");
    assert_eq!(denied.parameter('?', "state"), "the state");
    let page = browser.get(&request);
    assert!(!browser.submit(&page, &[allow]).parameter('?', "code").is_empty());
}

#[test]
fn a_device_is_connected_by_no_form_of_another_site() {
    let http = shared();
    let asked = Browser::new(&http)
        .post("/oauth/device_authorization", &[("client_id", "cli"), ("client_secret", "coppice-cli")]);
    let asked = asked.json(200);
    let code = asked["user_code"].as_str().expect("a code");
    let mut browser = Browser::signed_in(&http);
    assert_eq!(browser.post("/oauth/device", &[("user_code", code)]).status, 400);
    assert_eq!(browser.post("/oauth/device", &[("user_code", code), ("answer", "allow")]).status, 400);
    // The token of the first form is none for the answer.
    let page = browser.get("/oauth/device");
    let skipped = browser.submit(&page, &[("user_code", code), ("answer", "allow")]);
    assert_eq!((skipped.status, skipped.title()), (400, "That page is out of date"));
}

#[test]
fn a_request_that_makes_no_sense_is_told_so() {
    let http = shared();
    let mut client = Browser::new(&http);
    let app = [("client_id", APP.0), ("client_secret", APP.1)];
    let mut ask = |more: &[(&str, &str)]| client.post("/oauth/token", &[&app[..], more].concat());
    ask(&[]).is_error(400, "invalid_request");
    ask(&[("grant_type", "client_credentials")]).is_error(400, "unsupported_grant_type");
    ask(&[("grant_type", "password"), ("username", "a"), ("password", "b")])
        .is_error(400, "unsupported_grant_type");
    ask(&[("grant_type", "authorization_code")]).is_error(400, "invalid_request");
    ask(&[("grant_type", "refresh_token")]).is_error(400, "invalid_request");
    ask(&[("grant_type", "refresh_token"), ("refresh_token", "x")]).is_error(400, "invalid_grant");
    let twice = [("grant_type", "refresh_token"), ("refresh_token", "x"), ("refresh_token", "y")];
    ask(&twice).is_error(400, "invalid_request");
    ask(&[("grant_type", "refresh_token"), ("client_id", "app")]).is_error(400, "invalid_request");
    let json = client.request("POST", "/oauth/token").header("content-type", "application/json");
    client.send(json.body("{}")).is_error(400, "invalid_request");
    let both = client.request("POST", "/oauth/token").header("authorization", "Basic YXBwOng=");
    let both = both.header("content-type", "application/x-www-form-urlencoded").body(encode(&app));
    client.send(both).is_error(400, "invalid_request");
    client.get("/oauth/token").is_error(405, "invalid_request");
}

#[test]
fn a_zero_byte_in_a_parameter_is_refused_and_no_error_of_ours() {
    let http = shared();
    let mut browser = Browser::new(&http);
    for address in [
        code_request("spa\0", SPA_URI, &[]),
        code_request("spa", SPA_URI, &[("nonce", "a\0b")]),
        "/oauth/logout?client_id=%00&post_logout_redirect_uri=https%3A%2F%2Fa.example.com".to_owned(),
    ] {
        let page = browser.get(&address);
        assert_eq!(page.status, 400, "{address}: {}", page.text);
        assert!(page.text.contains("a parameter has a zero byte"), "{}", page.text);
    }
    let asks = browser.get("/oauth/sign-in?next=%2Foauth%2Fauthorize%3Fclient_id%3D%2500");
    assert_eq!(
        (asks.status, asks.title()),
        (200, "Sign in"),
        "what comes next is nothing that can be answered"
    );
    let page = browser.get("/oauth/sign-in?next=/signed-in");
    assert_eq!(browser.submit(&page, &[("email", "ada\0"), ("password", "a")]).status, 400);
    browser.post("/oauth/token", &[("client_id", "spa\0")]).is_error(400, "invalid_request");
}

#[test]
fn whatever_an_endpoint_refuses_it_refuses_in_the_words_of_oauth() {
    let http = shared();
    let mut client = Browser::new(&http);
    let long = "x".repeat((1 << 20) + 1);
    for path in [
        "/oauth/token",
        "/oauth/device_authorization",
        "/oauth/revoke",
        "/oauth/introspect",
        "/oauth/register",
        "/realms/main/protocol/openid-connect/token",
    ] {
        let request =
            client.request("POST", path).header("content-type", "application/x-www-form-urlencoded");
        client.send(request.body(long.clone())).is_error(400, "invalid_request");
        let answer = client.get(path);
        answer.is_error(405, "invalid_request");
        assert_eq!(answer.header("allow"), "POST", "{path}");
    }
    for path in [
        "/realms/none/protocol/openid-connect/certs",
        "/realms/none/.well-known/openid-configuration",
        "/realms/%ff/protocol/openid-connect/certs",
    ] {
        client.get(path).is_error(404, "invalid_request");
    }
    // What people see is a page.
    for path in ["/oauth/sign-in", "/oauth/consent", "/oauth/device", "/oauth/logout", "/account/password"] {
        let request =
            client.request("POST", path).header("content-type", "application/x-www-form-urlencoded");
        let answer = client.send(request.body(long.clone()));
        assert_eq!((answer.status, answer.title()), (413, "That did not work"), "{path}");
    }
    for (method, path, status) in [
        ("DELETE", "/oauth/device", 405),
        ("GET", "/oauth/consent", 405),
        ("GET", "/realms/none/protocol/openid-connect/auth", 404),
    ] {
        let request = client.request(method, path);
        let answer = client.send(request);
        assert_eq!((answer.status, answer.title()), (status, "That did not work"), "{path}");
        assert!(answer.header("content-security-policy").contains("default-src"), "{path}");
    }
}

#[test]
fn programs_in_browsers_reach_the_endpoints_and_no_page() {
    let http = shared();
    let mut script = Browser::new(&http);
    for path in ["/oauth/jwks", "/.well-known/openid-configuration", "/oauth/userinfo"] {
        let request = script.request("GET", path).header("origin", "https://spa.example.com");
        let answer = script.send(request);
        assert_eq!(answer.header("access-control-allow-origin"), "*", "{path}");
        assert_eq!(answer.header("access-control-allow-credentials"), "");
    }
    let preflight = |path: &str| {
        script
            .request("OPTIONS", path)
            .header("origin", "https://spa.example.com")
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "content-type")
    };
    let (token, page) = (preflight("/oauth/token"), preflight("/oauth/consent"));
    let answer = script.send(token);
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, "*"));
    let answer = script.send(page);
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (405, ""));
}
