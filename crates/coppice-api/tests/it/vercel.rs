//! What Vercel asks about installations of our integration: tokens are signed by npm's `jose`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use coppice_app::VercelConfig;
use coppice_test_support::{Answer, NodeProgram, text_of};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::sign_in_links::field;
use crate::{Http, shared};

const ISSUER: &str = "https://marketplace.vercel.com";
const CLIENT: &str = "oac_ours";
const CLIENT_SECRET: &str = "planted-secret-of-the-integration";
const ACCESS_TOKEN: &str = "planted-secret-of-an-installation";
const PATIENCE: Duration = Duration::from_secs(60);

/// The keys that are to be had where Vercel's are.
static KEYS: Mutex<String> = Mutex::new(String::new());

/// Our integration, with keys that are had here.
pub(crate) fn integration() -> VercelConfig {
    static PLACE: LazyLock<String> = LazyLock::new(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = format!("http://{}/keys", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                let keys = KEYS.lock().clone();
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", keys.len());
                let _ = stream.write_all((head + &keys).as_bytes());
            }
        });
        place
    });
    let secrets = ["the-next-secret", CLIENT_SECRET];
    VercelConfig {
        client_id: CLIENT.to_owned(),
        issuer: ISSUER.to_owned(),
        client_secrets: secrets.map(|secret| secret.to_owned().into()).to_vec(),
        // Whatever it is told there, it says yes.
        api: PLACE.parse().expect("an address"),
        keys: PLACE.parse().expect("an address"),
    }
}

/// See `e2e/vercel/vercel.mjs`; the one of all tests, for there is one place with keys.
static VERCEL: LazyLock<Mutex<NodeProgram>> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/vercel");
    let vercel = NodeProgram::start(Path::new("node"), &directory, &["vercel.mjs"]);
    *KEYS.lock() = vercel.about.to_string();
    Mutex::new(vercel)
});

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_secs()
}

/// What Vercel says for an administrator of an account, of which each installation here has one.
fn claims(installation: &str) -> Value {
    json!({
        "iss": ISSUER, "sub": "account:a:user:u", "aud": CLIENT, "exp": now() + 600,
        "account_id": format!("of-{installation}"), "installation_id": installation,
        "user_id": "u", "user_role": "ADMIN",
    })
}

fn signed(by: &str, claims: &Value) -> String {
    text_of(&VERCEL.lock().command(&json!({ "command": "sign", "by": by, "claims": claims })))
}

fn send(http: &Http, method: &str, installation: &str, token: &str, body: &Value) -> Answer {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    http.send_text(method, &format!("/v1/installations/{installation}"), &headers, &body)
}

/// As an administrator of its account.
fn ask(http: &Http, method: &str, installation: &str, body: &Value) -> Answer {
    send(http, method, installation, &signed("vercel", &claims(installation)), body)
}

fn terms() -> Value {
    json!({
        "scopes": ["read:project"],
        "acceptedPolicies": { "toc": "2026-01-02T03:04:05Z" },
        "credentials": { "access_token": ACCESS_TOKEN, "token_type": "Bearer" },
        "account": { "name": "Acme", "url": "https://vercel.com/acme", "contact": { "email": "ada@acme.example" } },
    })
}

#[track_caller]
fn expect_refusal(answer: &Answer, status: u16, code: &str) -> Value {
    let body = answer.expect(status);
    assert_eq!(body["error"]["code"], code, "{body}");
    assert!(body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    assert_eq!(body.as_object().map(serde_json::Map::len), Some(1), "{body}");
    body["error"].clone()
}

/// Whether something is so in the metastore.
fn holds(http: &Http, condition: &str) -> bool {
    http.asks(&format!("select {condition}"))
}

fn wait_until(http: &Http, condition: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !holds(http, condition) {
        assert!(Instant::now() < deadline, "it never holds: {condition}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_installation_has_an_organization_however_often_it_is_made_and_its_secret_is_sealed() {
    let http = shared();
    for _ in 0..2 {
        ask(&http, "PUT", "icfg_made", &terms()).expect(204);
    }
    let row = "from vercel_installations where id = 'icfg_made'";
    assert!(holds(&http, &format!("count(*) = 1 {row}")));
    let organization = "(select name from organizations where id = organization_id)";
    assert!(holds(&http, &format!("{organization} = 'Acme' {row}")));
    let text = "position(convert_to('planted', 'UTF8') in access_token_sealed)";
    assert!(holds(&http, &format!("{text} = 0 {row}")));
    let mut changed = terms();
    changed["scopes"] = json!([]);
    ask(&http, "PUT", "icfg_made", &changed).expect(204);
    assert!(holds(&http, &format!("scopes = '{{}}' {row}")));
    // Each left a line, in the log of the organization.
    let lines = "from audit_log where credential_id = 'icfg_made' and action = 'upsertInstallation' and outcome = 'succeeded'";
    assert!(holds(&http, &format!("count(*) = 3 and count(distinct organization_id) = 1 {lines}")));
}

#[test]
fn an_installation_that_was_deleted_goes_with_its_organization_and_not_without_being_asked_to_with_projects()
{
    let http = shared();
    ask(&http, "DELETE", "icfg_never", &Value::Null).expect(204);
    for (installation, cascading) in [("icfg_plain", false), ("icfg_kept", false), ("icfg_cascading", true)] {
        ask(&http, "PUT", installation, &terms()).expect(204);
        let project = http.new_project(installation);
        let id = project.rsplit('/').next().expect("an id");
        if installation != "icfg_plain" {
            http.metastore(&format!(
                "update projects set organization_id =
                    (select organization_id from vercel_installations where id = '{installation}')
                 where id = '{id}'"
            ));
        }
        let body =
            if cascading { json!({ "cascadeResourceDeletion": true, "reason": "x" }) } else { Value::Null };
        ask(&http, "DELETE", installation, &body).expect(204);
        ask(&http, "DELETE", installation, &Value::Null).expect(204);
        wait_until(
            &http,
            &format!("not exists (select from vercel_installations where id = '{installation}')"),
        );
        let made = format!(
            "from audit_log where credential_id = '{installation}' and action = 'deleteInstallation'"
        );
        let organization = format!("(select min(organization_id) {made})");
        let is_gone = format!("(select deleted_at is not null from organizations where id = {organization})");
        let expected = if installation == "icfg_kept" { "not " } else { "" };
        assert!(holds(&http, &format!("{expected}{is_gone}")), "{installation}");
        if cascading {
            assert!(holds(&http, &format!("deleted_at is not null from projects where id = '{id}'")));
        }
        // It can be installed again.
        ask(&http, "PUT", installation, &terms()).expect(204);
    }
}

#[test]
fn an_installation_that_is_being_deleted_is_not_made_again_meanwhile() {
    let http = shared();
    let deadline = Instant::now() + PATIENCE;
    loop {
        ask(&http, "PUT", "icfg_ending", &terms()).expect(204);
        ask(&http, "DELETE", "icfg_ending", &json!({})).expect(204);
        let again = ask(&http, "PUT", "icfg_ending", &terms());
        if again.status == 409 {
            expect_refusal(&again, 409, "conflict");
            break;
        }
        // It was finished that fast.
        again.expect(204);
        assert!(Instant::now() < deadline, "it is never refused");
    }
    wait_until(&http, "not exists (select from vercel_installations where id = 'icfg_ending')");
}

#[test]
fn nobody_acts_for_an_installation_without_a_token_of_vercels_for_it() {
    let http = shared();
    let good = claims("icfg_attacked");
    ask(&http, "PUT", "icfg_attacked", &terms()).expect(204);
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        signed("vercel", &claims)
    };
    let mut bad = ["stranger", "publicKey", "nobody"].map(|by| signed(by, &good)).to_vec();
    bad.extend([
        with("installation_id", json!("icfg_another")),
        with("aud", json!("oac_another")),
        with("iss", json!("https://evil.example")),
        with("exp", json!(now() - 60)),
        with("account_id", json!("another")),
        with("user_role", json!("USER")),
        with("x", json!("x".repeat(10_000))),
        http.key().to_owned(),
        "x".to_owned(),
    ]);
    for token in bad {
        for (method, body) in [("PUT", terms()), ("PUT", json!({})), ("DELETE", Value::Null)] {
            let answer = send(&http, method, "icfg_attacked", &token, &body);
            // Who may only look is not told before what they send is read.
            let (status, code) =
                if answer.status == 400 { (400, "validation_error") } else { (403, "forbidden") };
            assert!(answer.status == 403 || body == json!({}), "{method}: {}", answer.text());
            expect_refusal(&answer, status, code);
        }
    }
    let nameless = http.send_text("PUT", "/v1/installations/icfg_attacked", &[], &terms().to_string());
    expect_refusal(&nameless, 403, "forbidden");
    assert!(holds(&http, "ending_at is null from vercel_installations where id = 'icfg_attacked'"));
    // A token of Vercel's is good for nothing else.
    let token = signed("vercel", &good);
    http.as_key(&token, "GET", "/organizations", None).expect_error(401, "invalid_token");
}

#[test]
fn what_is_wrong_is_named_as_vercel_shows_it() {
    let http = shared();
    let token = signed("vercel", &claims("icfg_wrong"));
    let without = |name: &str| {
        let mut terms = terms();
        terms.as_object_mut().expect("an object").remove(name);
        terms
    };
    let with = |pointer: &str, value: Value| {
        let mut terms = terms();
        *terms.pointer_mut(pointer).expect("a field") = value;
        terms
    };
    for (body, field) in [
        (without("scopes"), "scopes"),
        (without("acceptedPolicies"), "acceptedPolicies"),
        (without("credentials"), "credentials"),
        (without("account"), "account"),
        (with("/credentials/access_token", json!(1)), "credentials.access_token"),
        (with("/credentials/access_token", json!("x".repeat(5000))), "credentials.access_token"),
        (with("/acceptedPolicies/toc", json!("yesterday")), "acceptedPolicies.toc"),
        (with("/scopes", json!(vec!["x"; 101])), "scopes"),
        (with("/account/contact/email", json!("")), "account.contact.email"),
    ] {
        let error = expect_refusal(&send(&http, "PUT", "icfg_wrong", &token, &body), 400, "validation_error");
        assert_eq!(error["fields"][0]["key"], field, "{error}");
        assert!(!error.to_string().contains("planted"), "{error}");
    }
    let mut path = claims("icfg_wrong");
    path["installation_id"] = json!("wrong-id");
    let answer = send(&http, "PUT", "wrong-id", &signed("vercel", &path), &terms());
    assert_eq!(expect_refusal(&answer, 400, "validation_error")["fields"][0]["key"], "installationId");
    expect_refusal(&send(&http, "POST", "icfg_wrong", &token, &terms()), 405, "method_not_allowed");
    assert!(holds(&http, "not exists (select from vercel_installations where id = 'icfg_wrong')"));
}

/// A webhook of Vercel's about an installation.
fn webhook(http: &Http, kind: &str, installation: &str, created_at: u64, secret: &str) -> Answer {
    let told = json!({
        "id": "evt_1", "type": kind, "createdAt": created_at, "region": "fra1",
        "payload": { "user": { "id": "u" }, "configuration": { "id": installation, "projects": [] } },
    });
    let body = told.to_string();
    let sign = json!({ "command": "signature", "secret": secret, "body": body });
    let signature = text_of(&VERCEL.lock().command(&sign));
    let headers = [("x-vercel-signature", signature.as_str()), ("content-type", "application/json")];
    http.send_text("POST", "/webhooks/vercel", &headers, &body)
}

#[test]
fn an_installation_ends_when_vercel_says_so_and_not_by_what_was_said_before_it_was_made() {
    let http = shared();
    ask(&http, "PUT", "icfg_removed", &terms()).expect(204);
    let made = now() * 1000;
    let is_there =
        "exists (select from vercel_installations where id = 'icfg_removed' and ending_at is null)";
    let removed = "integration-configuration.removed";
    for (kind, installation, created_at, secret, status) in [
        (removed, "icfg_removed", made + 60_000, "another-secret", 400),
        (removed, "icfg_removed", made + 60_000, "", 400),
        (removed, "icfg_removed", made - 60_000, CLIENT_SECRET, 200),
        (removed, "icfg_other", made + 60_000, CLIENT_SECRET, 200),
        (removed, "'; drop", made + 60_000, CLIENT_SECRET, 200),
        (removed, "icfg_removed", u64::MAX / 2, CLIENT_SECRET, 200),
        ("deployment.created", "icfg_removed", made + 60_000, CLIENT_SECRET, 200),
    ] {
        let answer = webhook(&http, kind, installation, created_at, secret);
        assert_eq!(answer.status, status, "{kind} {installation}: {}", answer.text());
        assert!(holds(&http, is_there), "{kind} {installation} {created_at}");
    }
    let unsigned = http.send_text("POST", "/webhooks/vercel", &[], "{}");
    assert_eq!(unsigned.status, 400);
    for _ in 0..2 {
        // Told twice, it is over once; with either of the secrets.
        webhook(&http, removed, "icfg_removed", made + 60_000, "the-next-secret").expect(200);
    }
    wait_until(&http, "not exists (select from vercel_installations where id = 'icfg_removed')");
    // What was said of it says nothing of the next one of its name.
    http.metastore("select pg_sleep(0.01)");
    ask(&http, "PUT", "icfg_removed", &terms()).expect(204);
    webhook(&http, removed, "icfg_removed", made, CLIENT_SECRET).expect(200);
    assert!(holds(&http, is_there));
}

#[test]
fn plans_can_be_asked_for_before_there_is_an_installation_and_by_nobody_whom_vercel_does_not_sign_for() {
    let http = shared();
    let path = "/v1/products/postgres/plans";
    let mut early = claims("icfg_x");
    for name in ["installation_id", "account_id", "user_id", "user_role"] {
        early.as_object_mut().expect("an object").remove(name);
    }
    let with = |token: &str| {
        let bearer = format!("Bearer {token}");
        http.anonymous("GET", path, &[("authorization", bearer.as_str())])
    };
    let plans = with(&signed("vercel", &early)).expect(200);
    let check = json!({ "command": "check", "schema": "Plans", "value": plans });
    assert_eq!(VERCEL.lock().command(&check), "", "{plans}");
    for bad in [signed("stranger", &early), http.key().to_owned(), String::new()] {
        expect_refusal(&with(&bad), 403, "forbidden");
    }
    expect_refusal(&http.anonymous("GET", path, &[]), 403, "forbidden");
}

#[test]
fn an_installation_says_how_it_is_and_what_is_asked_of_databases_is_read_with_care() {
    let http = shared();
    ask(&http, "PUT", "icfg_state", &terms()).expect(204);
    let state = ask(&http, "GET", "icfg_state", &Value::Null).expect(200);
    assert_eq!((&state["billingPlan"]["id"], &state["notification"]), (&json!("standard"), &Value::Null));
    ask(&http, "PATCH", "icfg_state", &json!({ "billingPlanId": "standard" })).expect(200);
    let wrong = ask(&http, "PATCH", "icfg_state", &json!({ "billingPlanId": "gold" }));
    assert_eq!(expect_refusal(&wrong, 400, "validation_error")["fields"][0]["key"], "billingPlanId");
    http.metastore(
        "update organizations set disabled_by_admin = true
         where id = (select organization_id from vercel_installations where id = 'icfg_state')",
    );
    let state = ask(&http, "GET", "icfg_state", &Value::Null).expect(200);
    assert_eq!(state["notification"]["level"], "error");
    expect_refusal(&ask(&http, "GET", "icfg_nobody", &Value::Null), 404, "not_found");

    let resource = json!({ "productId": "p", "name": "n", "billingPlanId": "standard", "metadata": {} });
    let with = |name: &str, value: Value| {
        let mut resource = resource.clone();
        resource[name] = value;
        resource
    };
    for (below, body, field) in [
        ("/resources", with("productId", json!("")), "productId"),
        ("/resources", with("name", json!("x".repeat(129))), "name"),
        ("/resources", with("metadata", json!([])), "metadata"),
        ("/resources", with("metadata", json!({ "a": "x".repeat(20_000) })), "metadata"),
        ("/resources", with("metadata", json!({ "a": "\u{0}" })), "metadata"),
        ("/resources", with("billingPlanId", json!("gold")), "billingPlanId"),
        (
            "/resources/prj_x/secrets/rotate",
            json!({ "delayOldSecretsExpirationHours": -1 }),
            "delayOldSecretsExpirationHours",
        ),
        (
            "/resources/prj_x/secrets/rotate",
            json!({ "delayOldSecretsExpirationHours": 721 }),
            "delayOldSecretsExpirationHours",
        ),
        (
            "/resources/prj_x/secrets/rotate",
            json!({ "delayOldSecretsExpirationHours": "1" }),
            "delayOldSecretsExpirationHours",
        ),
    ] {
        let token = signed("vercel", &claims("icfg_state"));
        let authorization = format!("Bearer {token}");
        let path = format!("/v1/installations/icfg_state{below}");
        let answer = http.send_text("POST", &path, &[("authorization", &authorization)], &body.to_string());
        assert_eq!(expect_refusal(&answer, 400, "validation_error")["fields"][0]["key"], field, "{body}");
    }
    assert!(holds(&http, "not exists (select from vercel_resources)"));
}

#[test]
fn vercel_is_asked_about_thirty_codes_of_an_address_that_it_gave_nobody() {
    let (http, mut browser) = (shared(), Browser::default());
    let page = browser.get(&http, "/vercel/sign-in?code=made-up").text();
    let form = format!("csrf={}", field(&page, "csrf"));
    for code in 0..30 {
        let answer = browser.post(&http, "/vercel/sign-in", &format!("{form}&code={code}"));
        assert!(answer.text().contains("You are not signed in"), "{}", answer.text());
    }
    let refused = browser.post(&http, "/vercel/sign-in", &format!("{form}&code=30"));
    assert!(refused.status == 429 && refused.text().contains("Too many"), "{}", refused.text());
}
