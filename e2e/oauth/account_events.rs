//! What happens to an account is in the operator's audit log.

use std::time::Duration;

use coppice_test_support::wait_for;
use serde_json::{Value, json};

use super::browser::Browser;
use super::{challenge, join, new_user, operator, shared, tokens_of_spa, with_clients};
use crate::http::{Http, text_of};
use crate::terminal::Terminal;

const PATIENCE: Duration = Duration::from_secs(60);

fn lines_of(http: &Http, actor: &str) -> Vec<Value> {
    let shown = http.platform.run(&["admin", "audit", "--actor", actor, "--json"]);
    let text = String::from_utf8(shown.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// The lines of somebody who was not let in, which is written down after the
/// answer.
fn wait_until_refused(http: &Http, actor: &str) -> Vec<Value> {
    wait_for("a refusal to be written down", PATIENCE, || {
        Some(lines_of(http, actor)).filter(|found| found.iter().any(|line| line["status"] == 401))
    })
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

    let found = wait_until_refused(&http, &email);
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
fn who_joins_at_the_page_is_in_the_organizations_log() {
    // Nobody else joins its organization.
    let http = Http::new(with_clients(&[]));
    let invitations = "/organizations/{org}/invitations";
    let invite = |email: &str| http.post(invitations, &json!({ "email": email })).expect(201);
    let log = || {
        let path = "/organizations/{org}/audit-log?action=acceptInvitation";
        http.get(path).expect(200)["entries"].as_array().expect("a list").clone()
    };
    let newcomer = invite("newcomer@example.com");
    join(&http, &text_of(&newcomer["invite_link"]), "newcomer@example.com", "a newcomer's password");
    let email = new_user(&http, "oldcomer", "an oldcomer's password");
    let oldcomer = invite(&email);
    let link = text_of(&oldcomer["invite_link"]);
    let path = link.strip_prefix(http.platform.api()).expect("a link to the platform").to_owned();
    let mut browser = Browser::of(&http, &email, "an oldcomer's password");
    browser.sign_in();
    let page = browser.get(&path);
    assert!(browser.submit(&page, &[]).title().starts_with("You are a member of "));

    let found = log();
    assert_eq!(found.len(), 2, "{found:?}");
    for (line, email, invitation) in
        [(&found[1], "newcomer@example.com", &newcomer), (&found[0], email.as_str(), &oldcomer)]
    {
        assert_eq!(line["actor"]["email"], email, "{line}");
        assert_eq!(line["target_ids"], json!([invitation["id"]]), "{line}");
        assert_eq!((&line["result"], &line["status"]), (&json!("succeeded"), &json!(200)), "{line}");
        assert_eq!(line["client_address"], "127.0.0.1", "{line}");
    }
    let made = lines_of(&http, "newcomer@example.com");
    assert!(made.iter().any(|line| line["action"] == "account.make"), "{made:?}");

    // So is one that is refused.
    let path = text_of(&invite("late@example.com")["invite_link"]).replace(http.platform.api(), "");
    let mut browser = Browser::of(&http, "late@example.com", "short");
    let page = browser.get(&path);
    let typed = [("name", "Late"), ("new_password", "short"), ("repeated_password", "short")];
    assert_eq!(browser.submit(&page, &typed).status, 400);
    let line = &log()[0];
    assert_eq!((&line["result"], &line["error_id"]), (&json!("refused"), &json!("invalid_field")), "{line}");
}

#[test]
fn what_a_line_is_about_and_where_it_came_from_is_told() {
    let http = shared();
    let email = new_user(&http, "careful", "a careful password");
    let mut browser = Browser::of(&http, &email, "a careful password");
    let tokens = tokens_of_spa(&http, &mut browser, "openid offline_access");
    let token = tokens["refresh_token"].as_str().expect("a token");
    for _ in 0..2 {
        browser.post("/oauth/revoke", &[("client_id", "spa"), ("token", token)]).json(200);
    }
    let asked = browser.post("/oauth/device_authorization", &[("client_id", "spa")]).json(200);
    let code = asked["user_code"].as_str().expect("a code");
    let page = browser.get("/oauth/device");
    let question = browser.submit(&page, &[("user_code", code)]);
    assert_eq!(browser.submit(&question, &[("answer", "allow")]).title(), "Device connected");
    operator(&http, &["user", "disable", &email], "").expect("an account");
    let page = browser.get("/oauth/sign-in?next=/");
    assert_eq!(browser.fill_in(&page).status, 401);

    let found = wait_until_refused(&http, &email);
    let of = |action: &str| found.iter().filter(|line| line["action"] == action).collect::<Vec<_>>();
    let revoked = of("account.revokeToken");
    assert_eq!(revoked.len(), 1, "a session ends once: {revoked:?}");
    assert_eq!(revoked[0]["client_address"], "127.0.0.1", "{revoked:?}");
    let allowed = of("account.allowClient");
    assert!(
        allowed.len() == 2 && allowed.iter().all(|line| line["target_ids"] == json!(["spa"])),
        "{allowed:?}"
    );
    let refused: Vec<_> = of("account.signIn").into_iter().filter(|line| line["status"] == 401).collect();
    assert!(refused.len() == 1 && refused[0]["error_id"] == "account_disabled", "{refused:?}");
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

#[test]
fn whoever_thinks_about_a_password_keeps_no_platform_from_starting() {
    let mut http = Http::new(with_clients(&[]));
    let email = http.platform.setting("COPPICE_EMAIL").to_owned();
    http.platform.kill();
    let mut terminal = Terminal::open(&http.platform, &["admin", "set-password", &email]);
    terminal.wait_for("New password of");
    http.platform.spawn();
    http.platform.wait_ready();
    let noted = || http.platform.run(&["admin", "audit", "--action", "admin.setPassword"]).stdout;
    assert!(noted().is_empty(), "nothing is begun");
    terminal.type_line("a stump with a new shoot");
    terminal.wait_for("The same again");
    terminal.type_line("a stump with a new shoot");
    let said = terminal.wait_for("is set");
    assert!(!said.contains("stump"), "nobody reads along: {said}");
    assert!(terminal.wait_end());
    assert!(!noted().is_empty());
}
