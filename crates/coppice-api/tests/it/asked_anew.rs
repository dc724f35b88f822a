//! What people at a browser are asked for anew, and whoever finds it signed in does not get round.

use chrono::TimeDelta;
use coppice_core::UserId;
use coppice_oauth::params::Params;
use coppice_store::OldPassword;
use coppice_test_support::{Answer, text_of};
use serde_json::{Value, json};

use crate::http::{Http, Paying};
use crate::shared;
use crate::sign_in_links::field;

const HOST: (&str, &str) = ("host", "127.0.0.1:7070");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const CALLBACK: &str = "http%3A%2F%2F127.0.0.1%3A7070%2Fcallback";
/// Of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// The cookies of a browser in which the first user signed in a moment ago.
pub(crate) fn signed_in(http: &Http) -> String {
    let secret = http.new_sign_in_link();
    let page = http.anonymous("GET", &coppice_api::sign_in_link("", &secret), &[HOST]);
    let cookie =
        |answer: &Answer| answer.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    let browser = cookie(&page);
    let body = format!("csrf={}&token={secret}", field(&page.text(), "csrf"));
    let done = http.send_text("POST", "/oauth/link", &[HOST, FORM, ("cookie", &browser)], &body);
    format!("{browser}; {}", cookie(&done))
}

/// A token of a client that this browser lets in without a question.
pub(crate) fn token(http: &Http, browser: &str) -> String {
    let request = format!(
        "/oauth/authorize?client_id=console&redirect_uri={CALLBACK}&response_type=code\
         &code_challenge={CHALLENGE}&code_challenge_method=S256"
    );
    let sent = http.anonymous("GET", &request, &[HOST, ("cookie", browser)]);
    let (_, code) = sent.header("location").split_once("code=").expect("a code");
    let code = code.split('&').next().expect("its end");
    let body = format!(
        "grant_type=authorization_code&client_id=console&redirect_uri={CALLBACK}&code_verifier={VERIFIER}\
         &code={code}"
    );
    let answer = http.send_text("POST", "/oauth/token", &[HOST, FORM], &body).expect(200);
    answer["access_token"].as_str().expect("a token").to_owned()
}

/// A request by the console's door.
fn by_door(http: &Http, browser: &str, method: &str, path: &str, body: &Value) -> Answer {
    let own = [HOST, ("x-coppice-console", "1"), ("cookie", browser), ("content-type", "application/json")];
    http.send_text(method, &format!("/console/api{path}"), &own, &body.to_string())
}

fn is_asked(answer: &Answer) {
    answer.expect_error(403, "fresh_sign_in_required");
}

#[test]
fn a_browser_that_was_found_signed_in_lets_nobody_in_who_is_asked_for_nothing() {
    let http = shared();
    let browser = signed_in(&http);
    let project = http.new_project("found");
    let organization = format!("/organizations/{}", http.organization());
    let key = |scopes: &[&str]| json!({ "name": "found", "scopes": scopes });
    let fresh = token(&http, &browser);
    let made = http.as_key(&fresh, "POST", "/api-keys", Some(&key(&["*"])));
    assert_eq!(made.status, 201, "{}", made.text());
    let connects = || {
        let page = http.anonymous("GET", "/oauth/device", &[HOST, ("cookie", &browser)]).text();
        assert_ne!(page.contains("name=\"user_code\""), page.contains("name=\"password\""), "{page}");
        page.contains("name=\"user_code\"")
    };
    assert!(connects(), "who signed in a moment ago is asked for the code at once");

    let invitations = format!("{organization}/invitations");
    let waits = json!({ "email": "waits@example.com", "role": "admin" });
    let waiting = by_door(&http, &browser, "POST", &invitations, &waits).expect(201);
    assert!(waiting["invite_link"].is_string(), "{waiting}");
    let waiting = format!("{invitations}/{}", waiting["id"].as_str().expect("an id"));

    http.metastore("update browser_sessions set signed_in_at = now() - interval '1 hour'");
    // A client that it lets in is asked as it is itself; one that was let in before, is not.
    let stale = token(&http, &browser);
    is_asked(&http.as_key(&stale, "POST", "/api-keys", Some(&key(&["*"]))));
    is_asked(&http.as_key(&stale, "DELETE", &project, None));
    assert_eq!(http.as_key(&stale, "GET", &project, None).status, 200);

    // No key does unasked what its maker is asked for.
    for scopes in [
        &["project:read", "project:write"][..],
        &["org:write"],
        &["invite:write", "project:read"],
        &["branch:write"],
        &["branch:read", "credentials:read"],
        &["credentials:write"],
        &["data:read"],
    ] {
        is_asked(&by_door(&http, &browser, "POST", "/api-keys", &key(scopes)));
    }
    let looking = by_door(&http, &browser, "POST", "/api-keys", &key(&["project:read", "branch:read"]));
    assert_eq!(looking.status, 201, "{}", looking.text());

    nothing_is_removed_for_good(&http, &project, &browser, &fresh);
    nobody_is_let_in_without_a_second_factor(&http, &browser, &fresh);
    nobody_is_let_in_by_pull_requests(&http, &project, &browser, &fresh);

    // Nobody is let in otherwise, and nothing ends.
    let invitation = json!({ "email": "found@example.com", "role": "admin" });
    is_asked(&by_door(&http, &browser, "POST", &invitations, &invitation));
    is_asked(&by_door(&http, &browser, "POST", &format!("{waiting}/resend"), &json!({})));
    is_asked(&by_door(&http, &browser, "POST", &format!("{organization}/deletion-request"), &json!({})));
    assert!(!connects(), "who may let a device in is asked anew");

    // Nor by a link that somebody else was sent.
    let seen = http.as_key(&stale, "GET", &waiting, None).expect(200);
    assert_eq!((&seen["status"], &seen["invite_link"]), (&json!("pending"), &Value::Null));
    let listed = http.as_key(&stale, "GET", &invitations, None).expect(200).to_string();
    assert!(listed.contains("waits@example.com") && !listed.contains("http"), "{listed}");
    assert!(http.as_key(&fresh, "GET", &waiting, None).expect(200)["invite_link"].is_string());

    assert_eq!(http.as_key(&fresh, "DELETE", &waiting, None).status, 204);
    assert_eq!(http.as_key(&fresh, "DELETE", &project, None).status, 204);
}

/// Neither by the door, nor by a client that was let in there.
fn nothing_is_removed_for_good(http: &Http, project: &str, browser: &str, fresh: &str) {
    let branch = format!("{project}/branches/{}", coppice_core::BranchId::generate());
    let trashed = branch.replace("/branches/", "/trash/");
    for path in [format!("{branch}?purge=true"), trashed, format!("{project}/trash")] {
        is_asked(&by_door(http, browser, "DELETE", &path, &json!({})));
        let done = http.as_key(fresh, "DELETE", &path, None).status;
        assert!([204, 404].contains(&done), "{path}: {done}");
    }
    by_door(http, browser, "DELETE", &branch, &json!({})).expect_error(404, "branch_not_found");
}

/// An installation and a repository of whoever found it would get copies also when it is signed out.
fn nobody_is_let_in_by_pull_requests(http: &Http, project: &str, browser: &str, fresh: &str) {
    let installations = format!("/organizations/{}/githubapp/installations", http.organization());
    let unknown = format!("{installations}/ghi_00000000000000000000000000");
    let repository =
        format!("{project}/branches/{}/githubapp/repository", coppice_core::BranchId::generate());
    for (method, path) in
        [("POST", &installations), ("PUT", &unknown), ("POST", &repository), ("PUT", &repository)]
    {
        is_asked(&by_door(http, browser, method, path, &json!({})));
        let refused = http.as_key(fresh, method, path, Some(&json!({})));
        assert!([400, 404].contains(&refused.status), "{method} {path}: {}", refused.text());
    }
}

/// A second factor that an organization asks for is asked for until somebody fresh says otherwise.
fn nobody_is_let_in_without_a_second_factor(http: &Http, browser: &str, fresh: &str) {
    let path = format!("/organizations/{}", http.new_organization("guarded"));
    let id = path.trim_start_matches("/organizations/");
    http.metastore(&format!("update organizations set requires_second_factor = true where id = '{id}'"));
    http.metastore("update browser_sessions set methods = '{mfa}'; update sessions set methods = '{mfa}'");
    let asks = |is_asked: bool| json!({ "requires_second_factor": is_asked });
    is_asked(&by_door(http, browser, "PUT", &path, &asks(false)));
    by_door(http, browser, "PUT", &path, &asks(true)).expect(200);
    http.as_key(fresh, "PUT", &path, Some(&asks(false))).expect(200);
}

/// Ends a request that is for the tools of agents.
const OF_AGENTS: &str = "&resource=http%3A%2F%2F127.0.0.1%3A7070%2Fmcp";

/// A platform of its own, where a client of this name has registered itself.
pub(crate) fn with_client(name: &str) -> Http {
    let http = Http::start(Paying::default());
    http.metastore(&format!(
        "insert into oauth_clients (id, name, redirect_uris)
         values ('dyn_{name}', 'An {name}', '{{https://{name}.example/cb}}')"
    ));
    http
}

/// What a client that registered itself asks of this browser.
pub(crate) fn asked_by_client(http: &Http, browser: &str, prompt: &str) -> Answer {
    let request = format!(
        "/oauth/authorize?client_id=dyn_editor&redirect_uri=https%3A%2F%2Feditor.example%2Fcb&response_type=code\
         &code_challenge={CHALLENGE}&code_challenge_method=S256&prompt={prompt}"
    );
    http.anonymous("GET", &request, &[HOST, ("cookie", browser)])
}

pub(crate) fn allows(http: &Http, browser: &str) {
    allows_what(http, browser, "consent");
}

fn allows_what(http: &Http, browser: &str, prompt: &str) {
    let page = asked_by_client(http, browser, prompt).text();
    assert_eq!(
        page.contains("With the tools for agents, and nothing else"),
        prompt.ends_with(OF_AGENTS),
        "{page}"
    );
    let fields = ["csrf", "request", "realm"].iter().fold(Params::default(), |fields, name| {
        fields.with(name, &field(&page, name).replace("&#38;", "&").replace("&amp;", "&"))
    });
    let headers = [HOST, FORM, ("cookie", browser)];
    let body = fields.with("answer", "allow").encode();
    let answer = http.send_text("POST", "/oauth/consent", &headers, &body);
    assert!(answer.header("location").starts_with("https://editor.example/cb?code="), "{}", answer.text());
}

#[test]
fn a_client_that_is_let_in_by_a_browser_that_was_found_is_not_let_in_unasked_later() {
    let http = with_client("editor");
    let is_let_in_for = |browser: &str, resource: &str| {
        let answer = asked_by_client(&http, browser, &format!("none{resource}"));
        assert!([303, 400].contains(&answer.status), "{}", answer.text());
        answer.status == 303
    };
    let is_let_in = |browser: &str| is_let_in_for(browser, "");
    let found = signed_in(&http);
    http.metastore("update browser_sessions set signed_in_at = now() - interval '1 hour'");
    allows(&http, &found);
    let own = signed_in(&http);
    assert!(!is_let_in(&found) && !is_let_in(&own));
    allows_what(&http, &own, &format!("consent{OF_AGENTS}"));
    assert!(is_let_in_for(&own, OF_AGENTS), "who just showed who they are is asked once");
    assert!(!is_let_in(&own), "the tools of agents are not the whole API");
    allows(&http, &own);
    assert!(is_let_in(&own) && is_let_in_for(&own, OF_AGENTS));

    let user = UserId::from_trusted(text_of(&http.get("/user").expect(200)["id"]));
    http.operate(async |store, _| {
        assert!(store.user_set_password(&user, "new", OldPassword::Any, None).await.expect("it answers"));
    });
    assert!(!is_let_in(&signed_in(&http)), "a new password ends what was begun before");
}

#[test]
fn no_client_that_is_let_in_by_a_browser_that_was_found_stays() {
    let http = with_client("agent");
    let asks = |browser: &str, client: &str, more: &str| {
        let place = if client == "console" { CALLBACK } else { "https%3A%2F%2Fagent.example%2Fcb" };
        let request = format!(
            "/oauth/authorize?client_id={client}&redirect_uri={place}&response_type=code\
             &code_challenge={CHALLENGE}&code_challenge_method=S256&scope={more}"
        );
        http.anonymous("GET", &request, &[HOST, ("cookie", browser)])
    };
    let is_led = |answer: &Answer, to: &str| {
        assert!(answer.header("location").starts_with(to), "{} {}", answer.status, answer.text());
    };
    let found = signed_in(&http);
    let page = asks(&found, "dyn_agent", "offline_access+*").text();
    assert!(page.contains("An agent") && page.contains("value=\"allow\""), "{page}");
    let asked = ["csrf", "request", "realm"].iter().fold(Params::default(), |fields, name| {
        fields.with(name, &field(&page, name).replace("&#38;", "&").replace("&amp;", "&"))
    });

    http.metastore("update browser_sessions set signed_in_at = now() - interval '1 hour'");
    for scopes in ["offline_access+*", "*", "credentials:read", "offline_access+data:read"] {
        is_led(&asks(&found, "dyn_agent", scopes), "/oauth/sign-in?");
    }
    let looks = asks(&found, "dyn_agent", "offline_access+project:read").text();
    assert!(looks.contains("An agent") && looks.contains("value=\"allow\""), "{looks}");
    let body = asked.with("answer", "allow").encode();
    let late = http.send_text("POST", "/oauth/consent", &[HOST, FORM, ("cookie", &found)], &body);
    is_led(&late, "/oauth/authorize?");
    // The console itself goes on for as long as the browser's session does, and no longer.
    is_led(&asks(&found, "console", "*"), "http://127.0.0.1:7070/callback?code=");
    is_led(&asks(&found, "console", "offline_access+*"), "/oauth/sign-in?");
    let inside = token(&http, &found);
    let is_in = || http.as_key(&inside, "GET", "/user", None).status;
    assert_eq!(is_in(), 200);
    http.metastore("update browser_sessions set last_seen_at = now() - interval '25 hours'");
    http.operate(async |store, _| store.sign_in_purge(TimeDelta::days(1)).await.expect("it answers"));
    assert_eq!(is_in(), 401);

    // A provider that knew the person has not asked them either.
    let silent = signed_in(&http);
    http.metastore("update browser_sessions set was_asked = false");
    let device = http.anonymous("GET", "/oauth/device", &[HOST, ("cookie", &silent)]);
    for refused in [device, asks(&silent, "dyn_agent", "*")] {
        assert!(
            refused.status == 403 && refused.text().contains("Show who you are first"),
            "{}",
            refused.text()
        );
    }
}
