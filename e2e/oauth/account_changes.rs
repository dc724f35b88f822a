//! What people change of their accounts, and what they let others do, is in
//! the operator's audit log: once, and without secrets.

use serde_json::{Value, json};

use super::browser::Browser;
use super::{APP, new_user, shared, tokens_of_app};
use crate::http::{Http, text_of};
use crate::people::token_of;

fn lines_of(http: &Http, actor: &str) -> Vec<Value> {
    let shown = http.platform.run(&["admin", "audit", "--actor", actor, "--json"]);
    let text = String::from_utf8(shown.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// The only line of an account with this action.
#[track_caller]
fn only(http: &Http, email: &str, action: &str) -> Value {
    let found: Vec<_> = lines_of(http, email).into_iter().filter(|line| line["action"] == action).collect();
    assert_eq!(found.len(), 1, "{action}: {found:?}");
    let line = &found[0];
    let told = json!([line["actor"]["kind"], line["actor"]["email"], line["result"], line["status"]]);
    assert_eq!(told, json!(["user", email, "succeeded", 200]), "{line}");
    line.clone()
}

#[test]
fn a_changed_password_is_told_without_it() {
    let http = shared();
    let email = new_user(&http, "changer", "the password until now");
    let mut browser = Browser::of(&http, &email, "the password until now");
    browser.sign_in();
    let change = |browser: &mut Browser, current: &str| {
        let page = browser.get("/account/password");
        let new = "the password from now on";
        browser.submit(&page, &[("password", current), ("new_password", new), ("repeated_password", new)])
    };
    change(&mut browser, "not the right one");
    assert!(lines_of(&http, &email).iter().all(|line| line["action"] != "account.changePassword"));
    let changed = change(&mut browser, "the password until now");
    assert_eq!(changed.status, 200, "{}", changed.text);
    Browser::of(&http, &email, "the password from now on").sign_in();
    let line = only(&http, &email, "account.changePassword");
    assert_eq!(line["client_address"], "127.0.0.1", "{line}");
    let told = format!("{:?}", lines_of(&http, &email));
    assert!(!told.contains("the password") && !told.contains("not the right one"), "{told}");
}

#[test]
fn a_device_that_was_allowed_is_told_and_one_that_was_refused_is_not() {
    let http = shared();
    let email = new_user(&http, "watcher", "a watcher's password");
    let mut browser = Browser::of(&http, &email, "a watcher's password");
    browser.sign_in();
    for answer in ["deny", "allow"] {
        let client = [("client_id", "cli"), ("client_secret", "coppice-cli")];
        let asked = Browser::new(&http).post("/oauth/device_authorization", &client).json(200);
        let code = [("user_code", asked["user_code"].as_str().expect("a code"))];
        let page = browser.get("/oauth/device");
        let page = browser.submit(&page, &code);
        assert_eq!(browser.submit(&page, &[("answer", answer)]).status, 200);
    }
    let line = only(&http, &email, "account.allowClient");
    assert_eq!(line["client_address"], "127.0.0.1", "{line}");
    assert_eq!(line["target_ids"].as_array().map(Vec::len), Some(1), "{line}");
}

#[test]
fn a_revoked_token_is_told_by_its_session() {
    let http = shared();
    let email = new_user(&http, "revoker", "a revoker's password");
    let mut browser = Browser::of(&http, &email, "a revoker's password");
    let tokens = tokens_of_app(&http, &mut browser, "openid");
    let token = tokens["refresh_token"].as_str().expect("a token");
    let revoke = |client: &[(&str, &str)], token: &str| {
        Browser::new(&http).post("/oauth/revoke", &[&[("token", token)], client].concat()).json(200)
    };
    let app = [("client_id", APP.0), ("client_secret", APP.1)];
    // Neither ends anything.
    revoke(&[("client_id", "spa")], token);
    revoke(&app, "nonsense");
    assert!(lines_of(&http, &email).iter().all(|line| line["action"] != "account.revokeToken"));
    revoke(&app, token);
    let line = only(&http, &email, "account.revokeToken");
    assert_eq!(line["target_ids"], json!([tokens["session_state"]]), "{line}");
    assert!(!line.to_string().contains(token));
}

#[test]
fn an_account_made_by_an_invitation_is_told() {
    let http = shared();
    let email = "invited.to.be.told@example.com";
    let made = http.post("/organizations/{org}/invitations", &json!({ "email": email })).expect(201);
    let token = token_of(&text_of(&made["invite_link"]));
    let mut browser = Browser::new(&http);
    let page = browser.get(&format!("/invitation?token={token}"));
    let password = "the password of the invited";
    let typed = [("name", "Ada"), ("new_password", password), ("repeated_password", password)];
    let welcome = browser.submit(&page, &typed);
    assert!(welcome.title().starts_with("You are a member of "), "{}", welcome.text);
    let line = only(&http, email, "account.make");
    assert_eq!(line["client_address"], "127.0.0.1", "{line}");
    let told = format!("{:?}", lines_of(&http, email));
    assert!(!told.contains(&token) && !told.contains(password), "{told}");
}
