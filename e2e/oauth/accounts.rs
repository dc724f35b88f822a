//! Accounts that an operator makes, and takes out of use.

use serde_json::json;

use super::browser::Browser;
use super::{operator, shared, tokens_of_spa, who_am_i};

const PASSWORD: &str = "a password of six words or so";

#[test]
fn who_was_given_an_account_signs_in() {
    let http = shared();
    let create = |email: &str, password: &str| {
        operator(&http, &["user", "create", email, "--name", "Grace Hopper"], password)
    };
    let said = create("Grace@Example.com", PASSWORD).expect("an account");
    assert!(said.starts_with("grace@example.com has an account now"), "{said}");
    let mut browser = Browser::of(&http, "grace@example.com", PASSWORD);
    let tokens = tokens_of_spa(&http, &mut browser, "openid *");
    let token = tokens["access_token"].as_str().expect("a token");
    let user = http.as_key(token, "GET", "/user", None).expect(200);
    assert_eq!((&user["email"], &user["name"]), (&json!("grace@example.com"), &json!("Grace Hopper")));

    for (email, password, complaint) in [
        ("GRACE@example.com", PASSWORD, "has an account already"),
        ("grace", PASSWORD, "grace is no email address"),
        ("other@example.com", "short", "10 to 256 characters"),
    ] {
        let said = create(email, password).expect_err("a complaint");
        assert!(said.contains(complaint), "{said}");
    }
    let list = operator(&http, &["user", "list"], "").expect("a list");
    assert!(list.contains("grace@example.com (verified)  Grace Hopper"), "{list}");
    assert!(!list.contains("other@example.com"), "{list}");
}

#[test]
fn nothing_of_a_disabled_user_is_let_in_until_they_are_enabled() {
    let http = shared();
    let email = super::new_user(&http, "suspended", PASSWORD);
    let mut browser = Browser::of(&http, &email, PASSWORD);
    let tokens = tokens_of_spa(&http, &mut browser, "openid *");
    let token = tokens["access_token"].as_str().expect("a token");
    let made = http.as_key(token, "POST", "/api-keys", Some(&json!({ "name": "kept" }))).expect(201);
    let key = made["key"]["token"].clone();
    assert_eq!(who_am_i(&http, &key).0, 200);

    let said = operator(&http, &["user", "disable", &email], "").expect("an account");
    assert!(said.contains("is disabled"), "{said}");
    for credential in [&tokens["access_token"], &key] {
        assert_eq!(who_am_i(&http, credential).0, 401);
    }
    assert_eq!(browser.get("/oauth/device").title(), "Sign in");
    let page = browser.get("/oauth/sign-in");
    assert_eq!(browser.fill_in(&page).status, 401);
    let list = operator(&http, &["user", "list"], "").expect("a list");
    assert!(list.lines().any(|line| line.contains(&email) && line.contains("disabled")), "{list}");

    operator(&http, &["user", "enable", &email], "").expect("an account");
    browser.sign_in();
    assert_eq!(who_am_i(&http, &key).0, 200);
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 401, "a session that ended stays so");

    let lines = operator(&http, &["audit", "--actor", "operator", "--json"], "").expect("lines");
    for action in ["admin.user.create", "admin.user.disable", "admin.user.enable"] {
        let is_it = |line: &str| line.contains(action) && line.contains(&email);
        assert!(lines.lines().any(is_it), "{action}: {lines}");
    }
    assert!(!lines.contains(PASSWORD));
    let complaint = operator(&http, &["user", "disable", "nobody@example.com"], "").expect_err("nobody");
    assert!(complaint.contains("nobody here has the address"), "{complaint}");
}
