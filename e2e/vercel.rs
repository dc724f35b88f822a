//! Databases that people have by an installation on Vercel: tokens are signed by npm's `jose`, and what Vercel is told
//! is held against the schemas of its own client.

mod accounts;
mod crashes;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use coppice_test_support::{NodeProgram, Options, Platform, psql, wait_for};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::credentials::is_refused;
use crate::http::{Http, text_of};
use crate::metastore::{all_rows, as_bytes};
use crate::setup::{PROGRAM, fixed_gateway, options};

const PATIENCE: Duration = Duration::from_secs(120);
const CLIENT: &str = "oac_ours";
const CLIENT_SECRET: &str = "planted-secret-of-the-client";
const ISSUER: &str = "https://marketplace.vercel.com";

/// See `e2e/vercel/vercel.mjs`.
struct Vercel(NodeProgram);

impl Vercel {
    fn start() -> Self {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/vercel");
        Self(NodeProgram::start(Path::new("node"), &directory, &["vercel.mjs"]))
    }

    #[track_caller]
    fn holds(&mut self, schema: &str, value: &Value) {
        let wrong = self.0.command(&json!({ "command": "check", "schema": schema, "value": value }));
        assert_eq!(wrong, "", "{schema}: {value}");
    }

    fn token(&mut self, installation: &str, more: &Value) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_secs();
        let mut claims = json!({
            "iss": ISSUER, "sub": "account:a:user:u", "aud": CLIENT, "exp": now + 600,
            "account_id": format!("of-{installation}"), "installation_id": installation,
            "user_id": "u", "user_role": "ADMIN",
        });
        for (name, value) in more.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        text_of(&self.0.command(&json!({ "command": "sign", "by": "vercel", "claims": claims })))
    }
}

/// A platform with the integration, and Vercel.
struct Story {
    http: Http,
    _client_secret: tempfile::NamedTempFile,
    vercel: Vercel,
    /// Everything that Vercel was told as a secret, and what it showed of itself.
    secrets: Vec<String>,
}

impl Story {
    fn begin() -> Self {
        let mut vercel = Vercel::start();
        let place = text_of(&vercel.0.command(&json!({ "command": "serve" })));
        let keys = format!("{place}/keys");
        let client_secret = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&client_secret, CLIENT_SECRET).expect("a secret");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&client_secret, private).expect("ours");
        let file = client_secret.path().to_str().expect("a path");
        let flags = [
            "--vercel-client-id",
            CLIENT,
            "--vercel-keys-url",
            &keys,
            "--vercel-api-url",
            &place,
            "--vercel-client-secret-files",
            file,
            // So that secrets are searched for in all that could be said.
            "--log",
            "trace",
        ];
        // What was told before a restart leads to the same place after it.
        let flags = flags.map(str::to_owned).into_iter().chain(fixed_gateway()).collect();
        let platform = Platform::start(PROGRAM, Options { flags, ..options() });
        Self { http: Http::new(platform), _client_secret: client_secret, vercel, secrets: vec![] }
    }

    /// Asks as an administrator of the installation's account, with a key for repetitions if there is one.
    fn ask(
        &mut self,
        method: &str,
        installation: &str,
        below: &str,
        body: &Value,
        key: &str,
    ) -> (u16, Value) {
        let token = self.vercel.token(installation, &json!({}));
        self.secrets.push(token.clone());
        self.ask_with(&token, method, &format!("/v1/installations/{installation}{below}"), body, key)
    }

    fn ask_with(&self, token: &str, method: &str, path: &str, body: &Value, key: &str) -> (u16, Value) {
        let answer = self.http.send(self.request_with(token, method, path, body, key));
        (answer.status, serde_json::from_slice(&answer.bytes).unwrap_or_default())
    }

    fn request_with(&self, token: &str, method: &str, path: &str, body: &Value, key: &str) -> RequestBuilder {
        let mut request = self.http.anonymous(method, path).bearer_auth(token);
        if !body.is_null() {
            request = request.json(body);
        }
        if !key.is_empty() {
            request = request.header("idempotency-key", key);
        }
        request
    }

    fn install(&mut self, installation: &str) {
        let terms = json!({
            "scopes": [], "acceptedPolicies": {}, "account": { "name": installation, "url": "https://vercel.com/a" },
            "credentials": { "access_token": "planted-secret-of-an-installation", "token_type": "Bearer" },
        });
        assert_eq!(self.ask("PUT", installation, "", &terms, "").0, 204);
    }

    /// A database that is ready, as Vercel was told of it.
    fn provision(&mut self, installation: &str, name: &str, key: &str) -> Value {
        let body = database(name);
        let (status, made) = self.ask("POST", installation, "/resources", &body, key);
        assert_eq!(status, 200, "{made}");
        self.vercel.holds("Resource", &made);
        self.vercel.holds("Secrets", &json!({ "secrets": made["secrets"] }));
        assert_eq!(made["metadata"], body["metadata"]);
        self.remember(&made);
        made
    }

    fn remember(&mut self, told: &Value) {
        self.secrets.push(secret(told, "PGPASSWORD"));
    }

    fn rotate(&mut self, installation: &str, id: &str, body: &Value, key: &str) -> Value {
        let below = format!("/resources/{id}/secrets/rotate");
        let (status, told) = self.ask("POST", installation, &below, body, key);
        assert_eq!((status, &told["sync"]), (200, &json!(true)), "{told}");
        self.vercel.holds("Secrets", &told);
        self.remember(&told);
        told
    }
}

/// What asks for a database.
fn database(name: &str) -> Value {
    json!({ "productId": "iap_postgres", "name": name, "billingPlanId": "standard",
        "metadata": { "region": "fra1", "size": 2 } })
}

fn secret(told: &Value, name: &str) -> String {
    let mut secrets = told["secrets"].as_array().expect("secrets").iter();
    text_of(&secrets.find(|secret| secret["name"] == name).expect("it is told")["value"])
}

fn url(told: &Value) -> String {
    secret(told, "DATABASE_URL")
}

#[track_caller]
fn does(url: &str, sql: &str) -> String {
    let said = psql(url, sql);
    assert!(said.is_ok, "{sql}: {}", said.err);
    said.out
}

/// The first question waits for a database that was not ready when its secrets were told.
fn first_answer(url: &str) {
    wait_for("the database answers", PATIENCE, || psql(url, "SELECT 1").is_ok.then_some(()));
}

#[test]
fn a_database_of_vercels_is_told_with_its_secrets_and_keeps_two_of_them_good_while_they_are_rotated() {
    let mut story = Story::begin();
    story.install("icfg_one");
    let made = story.provision("icfg_one", "shop", "first");
    let again = story.provision("icfg_one", "shop", "first");
    assert_eq!(again, made, "what is repeated is told again");
    let other = json!({ "productId": "x", "name": "other", "billingPlanId": "standard" });
    assert_eq!(story.ask("POST", "icfg_one", "/resources", &other, "first").0, 409);
    let (id, first) = (text_of(&made["id"]), url(&made));
    first_answer(&first);
    does(&first, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)");
    assert_eq!(does(&first, "SELECT session_user, current_user, n FROM kept"), "app|app|1");
    let pooled = secret(&made, "DATABASE_URL_POOLED");
    assert_eq!(does(&pooled, "SELECT session_user, n FROM kept"), "app|1");

    let hours = json!({ "delayOldSecretsExpirationHours": 0.5, "reason": "a test" });
    let told = story.rotate("icfg_one", &id, &hours, "rotation");
    assert_eq!(story.rotate("icfg_one", &id, &hours, "rotation"), told, "once");
    let second = url(&told);
    assert_ne!(first, second);
    for url in [&first, &second, &pooled] {
        // What one made is the other's, too.
        does(url, "INSERT INTO kept VALUES (2)");
        assert_eq!(does(url, "SELECT session_user"), "app");
    }
    does(&second, "CREATE TABLE later (n int)");
    does(&first, "ALTER TABLE later ADD COLUMN m int");
    // A platform that was killed knows both.
    story.http.platform.kill();
    story.http.platform.restart();
    for url in [&first, &second] {
        first_answer(url);
    }
    story.ends_what_was_rotated(&id, [&first, &pooled], &second);
    story.keeps_to_itself();
}

impl Story {
    /// A session of a login that ends is cut, and the others go on.
    fn ends_what_was_rotated(&mut self, id: &str, former: [&str; 2], current: &str) {
        let mut session = Command::new("psql")
            .args([former[0], "-XAtqc", "SELECT pg_sleep(100000)"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("psql runs");
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%100000%' AND pid <> pg_backend_pid()";
        wait_for("a session waits", PATIENCE, || (does(current, waits) == "1").then_some(()));
        let third = self.rotate("icfg_one", id, &json!({ "delayOldSecretsExpirationHours": 1 }), "");
        let end =
            format!("UPDATE vercel_logins SET ends_at = now() WHERE '{}' LIKE '%' || id || '%'", former[0]);
        assert!(psql(&self.http.platform.metastore_url(), &end).is_ok);
        for url in former {
            assert!(is_refused(url), "at once");
        }
        wait_for("its session ends", PATIENCE, || session.try_wait().expect("it is ours"));
        for url in [current, &url(&third)] {
            does(url, "SELECT n FROM kept LIMIT 1");
        }
        // Without a delay all former ones end; the password of the branch stays what it is.
        let fourth = url(&self.rotate("icfg_one", id, &Value::Null, ""));
        for url in [current, &url(&third)] {
            assert!(is_refused(url), "at once");
        }
        does(&fourth, "SELECT n FROM kept LIMIT 1");
        self.refuses_too_many(id);
    }

    fn refuses_too_many(&mut self, id: &str) {
        let below = format!("/resources/{id}/secrets/rotate");
        let hours = json!({ "delayOldSecretsExpirationHours": 1 });
        for _ in 1..10 {
            self.rotate("icfg_one", id, &hours, "");
        }
        let (status, refused) = self.ask("POST", "icfg_one", &below, &hours, "");
        assert_eq!((status, &refused["error"]["code"]), (409, &json!("conflict")), "{refused}");
        self.rotate("icfg_one", id, &json!({ "delayOldSecretsExpirationHours": 0 }), "");
    }

    /// No secret is where people or programs read, nor written down as it is.
    fn keeps_to_itself(&mut self) {
        assert_eq!(
            self.vercel.0.command(&json!({ "command": "wrong" })),
            json!([]),
            "asked as its client asks"
        );
        let (log, rows) = (self.http.platform.log(), all_rows(&self.http.platform));
        assert!(log.contains("TRACE"), "it is as talkative as it can be");
        assert!(rows.contains("provisionResource"), "{rows}");
        let events = self.vercel.0.command(&json!({ "command": "told", "of": "/events" }));
        let events: String =
            events.as_array().expect("a list").iter().map(|told| told["body"].to_string()).collect();
        for secret in self
            .secrets
            .iter()
            .map(String::as_str)
            .chain(["planted-secret-of-an-installation", CLIENT_SECRET])
        {
            let bytes = as_bytes(secret);
            let is_in = |place: &String| place.contains(secret) || place.contains(&bytes);
            assert!(![&log, &rows, &events].into_iter().any(is_in), "{secret}");
        }
    }
}

#[test]
fn a_database_of_vercels_is_its_installations_alone_and_goes_with_it() {
    let mut story = Story::begin();
    for installation in ["icfg_mine", "icfg_theirs"] {
        story.install(installation);
    }
    let made = story.provision("icfg_mine", "shop", "");
    let id = text_of(&made["id"]);
    let below = format!("/resources/{id}");
    let (status, shown) = story.ask("GET", "icfg_mine", &below, &Value::Null, "");
    assert_eq!((status, &shown["secrets"]), (200, &Value::Null), "{shown}");
    story.vercel.holds("Resource", &shown);

    // Another installation learns nothing of it, and changes nothing.
    for (method, path, body) in [
        ("GET", below.clone(), Value::Null),
        ("PATCH", below.clone(), json!({ "name": "taken" })),
        ("POST", format!("{below}/secrets/rotate"), json!({})),
        ("GET", "/resources/prj_0".to_owned(), Value::Null),
        ("GET", "/resources/%00".to_owned(), Value::Null),
    ] {
        let (status, refused) = story.ask(method, "icfg_theirs", &path, &body, "");
        assert_eq!((status, &refused["error"]["code"]), (404, &json!("not_found")), "{method}: {refused}");
        assert!(!refused.to_string().contains("shop"), "{refused}");
    }
    assert_eq!(story.ask("DELETE", "icfg_theirs", &below, &Value::Null, "").0, 204);
    let path = format!("/v1/installations/icfg_mine{below}");
    for (more, body) in [
        (json!({ "installation_id": "icfg_theirs" }), Value::Null),
        (json!({ "account_id": "of-icfg_theirs" }), Value::Null),
        (json!({ "aud": "oac_another" }), Value::Null),
        (json!({ "exp": 1 }), Value::Null),
        (json!({ "user_role": "USER" }), json!({ "name": "taken" })),
    ] {
        let method = if body.is_null() { "GET" } else { "PATCH" };
        let token = story.vercel.token("icfg_mine", &more);
        let (status, refused) = story.ask_with(&token, method, &path, &body, "");
        assert_eq!((status, &refused["error"]["code"]), (403, &json!("forbidden")), "{more}: {refused}");
    }
    let reader = story.vercel.token("icfg_mine", &json!({ "user_role": "USER" }));
    assert_eq!(story.ask_with(&reader, "GET", &path, &Value::Null, "").0, 200, "may look");

    let (status, changed) = story.ask("PATCH", "icfg_mine", &below, &json!({ "name": "store" }), "");
    assert_eq!((status, &changed["name"], &changed["metadata"]), (200, &json!("store"), &made["metadata"]));
    let wrong = json!({ "billingPlanId": "free" });
    assert_eq!(story.ask("PATCH", "icfg_mine", &below, &wrong, "").0, 400);

    let (first, second) = (url(&made), url(&story.provision("icfg_mine", "second", "")));
    for url in [&first, &second] {
        first_answer(url);
    }
    assert_eq!(story.ask("DELETE", "icfg_mine", &below, &Value::Null, "").0, 204);
    assert_eq!(story.ask("GET", "icfg_mine", &below, &Value::Null, "").0, 404);
    assert!(is_refused(&first));
    does(&second, "SELECT 1");
    // Its project is asked to stay; nobody whom Vercel told how comes in any more.
    assert_eq!(story.ask("DELETE", "icfg_mine", "", &json!({}), "").0, 204);
    assert!(is_refused(&second), "at once");
    let finalized = json!({ "method": "POST", "url": "/v1/installations/icfg_mine/billing/finalize",
        "authorization": "Bearer planted-secret-of-an-installation" });
    wait_for("Vercel is told that it is over", PATIENCE, || {
        let told = story.vercel.0.command(&json!({ "command": "told", "of": "finalize" }));
        (told == json!([finalized])).then_some(())
    });
    story.keeps_to_itself();
}
