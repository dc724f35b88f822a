//! Signing in, and clients that act for people: every flow as a client and a
//! browser see it, and the attacks that are known against them (RFC 9700).

mod account_changes;
mod account_events;
mod accounts;
mod agents;
mod attacks;
mod browser;
mod codes;
mod command_line;
mod devices;
mod forgeries;
mod forms;
mod keys;
mod other_clients;
mod pages;
mod published_client;
mod refreshing;
mod registration;
mod second_factor;
mod sign_out;

use std::process::{Command, Stdio};
use std::sync::Arc;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use coppice_test_support::{Platform, psql};
use serde_json::Value;

use crate::http::{Http, Shared};
use crate::setup::{PROGRAM, options};
use browser::{Answer, Browser};

static SHARED: Shared = Shared::new();

/// Clients besides the built-in ones.
const CLIENTS: &str = r#"
[auth]
realms = ["main", "other"]
[auth.clients.app]
name = "The app"
secret = "the secret of the app"
redirect_uris = ["https://app.example.com/callback"]
[auth.clients.second]
secret = "the secret of the second"
redirect_uris = ["https://second.example.com/callback"]
[auth.clients.console]
redirect_uris = ["https://console.example.com/callback"]
[auth.clients.spa]
redirect_uris = ["https://spa.example.com/callback", "https://spa.example.com/x?y=z"]
implicit = true
device = true
"#;

const APP: (&str, &str) = ("app", "the secret of the app");
const APP_URI: &str = "https://app.example.com/callback";
const SPA_URI: &str = "https://spa.example.com/callback";
const VERIFIER: &str = "a-verifier-that-is-long-enough-to-be-one-0123456789";

/// A platform with a few clients.
fn shared() -> Arc<Http> {
    SHARED.get(|| with_clients(&[]))
}

fn with_clients(more_flags: &[&str]) -> Platform {
    let mut platform = Platform::prepare(PROGRAM, options());
    let config = platform.data_dir().with_extension("toml");
    std::fs::write(&config, CLIENTS).expect("a configuration");
    platform.add_flags(&["--config", &config.display().to_string()]);
    // All stories come from one address.
    platform.add_flags(&["--address-requests-per-second", "1000"]);
    platform.add_flags(more_flags);
    platform.spawn();
    platform.wait_ready();
    platform
}

/// The challenge of a verifier.
fn challenge(verifier: &str) -> String {
    BASE64URL.encode(digest::digest(&digest::SHA256, verifier.as_bytes()))
}

/// What the middle of a JWT says.
fn claims(token: &str) -> Value {
    let middle = token.split('.').nth(1).expect("a JWT");
    serde_json::from_slice(&BASE64URL.decode(middle).expect("base64url")).expect("JSON")
}

/// An authorization request of a client for a code, with the usual challenge.
fn code_request(client: &str, redirect_uri: &str, more: &[(&str, &str)]) -> String {
    let challenge = challenge(VERIFIER);
    let mut pairs = vec![
        ("client_id", client),
        ("redirect_uri", redirect_uri),
        ("response_type", "code"),
        ("state", "the state"),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ];
    for (name, value) in more {
        pairs.retain(|(found, _)| found != name);
        if !value.is_empty() {
            pairs.push((name, value));
        }
    }
    format!("/oauth/authorize?{}", browser::encode(&pairs))
}

/// A token request for a code.
fn redeem(http: &Http, code: &str, redirect_uri: &str, more: &[(&str, &str)]) -> Answer {
    let mut pairs = vec![
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect_uri),
        ("code_verifier", VERIFIER),
    ];
    for (name, value) in more {
        pairs.retain(|(found, _)| found != name);
        if !value.is_empty() {
            pairs.push((name, value));
        }
    }
    Browser::new(http).post("/oauth/token", &pairs)
}

/// Accepts an invitation by its link as somebody who has no account yet;
/// returns what a token of theirs says.
pub(crate) fn join(http: &Http, link: &str, email: &str, password: &str) -> Value {
    let path = link.strip_prefix(http.platform.api()).expect("a link to the platform");
    let mut browser = Browser::of(http, email, password);
    let page = browser.get(path);
    assert!(page.title().starts_with("Join "), "{}", page.text);
    let typed = [("name", "Ada"), ("new_password", password), ("repeated_password", password)];
    let joined = browser.submit(&page, &typed);
    assert!(joined.title().starts_with("You are a member of "), "{}", joined.text);
    let uri = format!("{}/callback", http.platform.api());
    let code = browser.code(&code_request("console", &uri, &[("scope", "openid")]));
    let tokens = redeem(http, &code, &uri, &[("client_id", "console")]).json(200);
    claims(tokens["id_token"].as_str().expect("an ID token"))
}

/// An access token of the console for somebody, with these scopes.
pub(crate) fn token_of(http: &Http, email: &str, password: &str, scopes: &str) -> String {
    let uri = format!("{}/callback", http.platform.api());
    let mut browser = Browser::of(http, email, password);
    let code = browser.code(&code_request("console", &uri, &[("scope", scopes)]));
    let tokens = redeem(http, &code, &uri, &[("client_id", "console")]).json(200);
    tokens["access_token"].as_str().expect("a token").to_owned()
}

/// Tokens of the public client, with these scopes.
fn tokens_of_spa(http: &Http, browser: &mut Browser, scope: &str) -> Value {
    let code = browser.code(&code_request("spa", SPA_URI, &[("scope", scope)]));
    redeem(http, &code, SPA_URI, &[("client_id", "spa")]).json(200)
}

/// Tokens of the confidential client, with these scopes.
fn tokens_of_app(http: &Http, browser: &mut Browser, scope: &str) -> Value {
    let code = browser.code(&code_request("app", APP_URI, &[("scope", scope)]));
    redeem(http, &code, APP_URI, &[("client_id", APP.0), ("client_secret", APP.1)]).json(200)
}

/// What the API says to who sends this token.
fn who_am_i(http: &Http, token: &Value) -> (u16, String) {
    http.as_key(token.as_str().expect("a token"), "GET", "/user", None).refusal()
}

/// Changes the platform's own records: time can't be waited for.
fn metastore(http: &Http, sql: &str) -> String {
    let said = psql(&http.platform.metastore_url(), sql);
    assert!(said.is_ok, "{sql}: {}", said.err);
    said.out
}

/// Makes a user who has this password.
fn new_user(http: &Http, name: &str, password: &str) -> String {
    let email = format!("{name}@example.com");
    operator(http, &["user", "create", &email], password).expect("an account");
    email
}

/// Sets a password as an operator does; returns the complaint.
fn set_password(http: &Http, email: &str, password: &str) -> String {
    operator(http, &["set-password", email], password).err().unwrap_or_default()
}

/// A command of `coppice admin` that may read a password; what it says, or its
/// complaint.
fn operator(http: &Http, command: &[&str], password: &str) -> Result<String, String> {
    let mut child = Command::new(PROGRAM)
        .arg("admin")
        .args(command)
        .arg("--data-dir")
        .arg(http.platform.data_dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the executable runs");
    let mut stdin = child.stdin.take().expect("standard input");
    // It may end without reading.
    let _ = std::io::Write::write_all(&mut stdin, format!("{password}\n").as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}
