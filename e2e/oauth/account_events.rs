//! What happens to an account is in the operator's audit log.

use std::time::Duration;

use coppice_test_support::wait_for;
use serde_json::Value;

use super::browser::Browser;
use super::{challenge, shared, with_clients};
use crate::http::Http;

fn lines(http: &Http) -> Vec<Value> {
    let actor = http.platform.setting("COPPICE_EMAIL");
    let shown = http.platform.run(&["admin", "audit", "--actor", actor, "--json"]);
    let text = String::from_utf8(shown.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn what_happens_to_an_account_is_written_down() {
    let http = Http::new(with_clients(&[]));
    let mut browser = Browser::new(&http);
    let email = http.platform.setting("COPPICE_EMAIL").to_owned();
    let page = browser.get("/oauth/sign-in?next=/signed-in");
    browser.submit(&page, &[("email", &email), ("password", "not the right one")]);
    browser.sign_in();
    let redirect = "https%3A%2F%2Fapp.example.com%2Fcallback";
    let code = browser.code(&format!(
        "/oauth/authorize?response_type=code&client_id=app&redirect_uri={redirect}&code_challenge={}\
         &code_challenge_method=S256",
        challenge(super::VERIFIER)
    ));
    assert!(!code.is_empty());
    let page = browser.get("/oauth/logout");
    browser.submit(&page, &[]);

    // A wrong password is answered before it is written down.
    let failed = |line: &Value| line["status"] == 401;
    let found = wait_for("the wrong password to be written down", Duration::from_secs(60), || {
        Some(lines(&http)).filter(|found| found.iter().any(failed))
    });
    let told = |action: &str, status: u64| {
        found.iter().find(|line| line["action"] == action && line["status"] == status)
    };
    for (action, status) in [
        ("account.signIn", 401),
        ("account.signIn", 200),
        ("account.allowClient", 200),
        ("account.signOut", 200),
    ] {
        let line = told(action, status).unwrap_or_else(|| panic!("{action} {status}: {found:?}"));
        assert_eq!(line["client_address"], "127.0.0.1", "{line}");
        assert!(line["request_id"].as_str().is_some_and(|id| id.starts_with("req_")), "{line}");
    }
    let allowed = told("account.allowClient", 200).expect("just seen");
    assert_eq!(allowed["target_ids"][0], "app");
    assert!(!format!("{found:?}").contains("not the right one"), "no password is in it");
}

#[test]
fn nobody_elses_wrong_password_is_told_of_an_account() {
    let http = shared();
    let mut browser = Browser::of(&http, "nobody@example.com", "not the right one");
    let page = browser.get("/oauth/sign-in?next=/signed-in");
    browser.fill_in(&page);
    let shown = http.platform.run(&["admin", "audit", "--json"]);
    assert!(!String::from_utf8_lossy(&shown.stdout).contains("nobody@example.com"));
}
