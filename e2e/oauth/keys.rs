//! The keys that tokens are signed with: they outlive processes, and are
//! replaced.

use std::time::Duration;

use coppice_test_support::wait_for;
use serde_json::Value;

use super::browser::Browser;
use super::{tokens_of_app, who_am_i, with_clients};
use crate::http::Http;

fn key_ids(http: &Http) -> Vec<Value> {
    let jwks = Browser::new(http).get("/oauth/jwks").json(200);
    jwks["keys"].as_array().expect("keys").iter().map(|key| key["kid"].clone()).collect()
}

fn rotate(http: &Http, more: &[&str]) {
    let done = http.platform.run(&[&["admin", "rotate-signing-key"], more].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn keys_are_replaced_without_signing_anybody_out_unless_they_leaked() {
    // Tokens name it; the port is another one after each start.
    let mut platform = with_clients(&["--public-url", "http://127.0.0.1:7070"]);
    // A process that takes another's place has the same keys and sessions.
    platform.take_over();
    let mut http = Http::new(platform);
    let mut browser = Browser::signed_in(&http);
    let tokens = tokens_of_app(&http, &mut browser, "openid offline_access");
    http.platform.take_over();
    let cookies = std::mem::take(&mut browser.cookies);
    let mut browser = Browser::new(&http);
    browser.cookies = cookies;
    assert_eq!(browser.get("/oauth/device").title(), "Connect a device", "still signed in");
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);

    let before = key_ids(&http);
    rotate(&http, &[]);
    http.platform.restart();
    let after = key_ids(&http);
    assert_eq!((before.len(), after.len()), (1, 2), "the next one is published before it signs");
    assert!(after.contains(&before[0]));
    assert_eq!(header(&refresh(&http, &tokens)["access_token"])["kid"], before[0]);
    its_time_has_come(&mut http);
    let second = refresh(&http, &tokens);
    assert_ne!(header(&second["access_token"])["kid"], before[0]);
    assert_eq!(who_am_i(&http, &second["access_token"]).0, 200);
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200, "the one before it is still believed");

    // Another kind is another key.
    http.platform.add_flags(&["--auth-signing-algorithm", "EdDSA"]);
    http.platform.restart();
    let is_added = || (key_ids(&http).len() == 3).then_some(());
    wait_for("a key of the other kind", Duration::from_secs(60), is_added);
    its_time_has_come(&mut http);
    let third = refresh(&http, &tokens);
    assert_eq!(header(&third["access_token"])["alg"], "EdDSA");
    assert_eq!(who_am_i(&http, &third["access_token"]).0, 200);

    rotate(&http, &["--forget-old"]);
    http.platform.restart();
    assert_eq!(key_ids(&http).len(), 1);
    let invalid = (401, "invalid_token".to_owned());
    for earlier in [&tokens, &second, &third] {
        assert_eq!(who_am_i(&http, &earlier["access_token"]), invalid);
    }
    assert_eq!(who_am_i(&http, &refresh(&http, &tokens)["access_token"]).0, 200);
}

#[test]
fn an_old_key_is_published_for_a_day_after_the_next_one_begins_to_sign() {
    let mut http = Http::new(with_clients(&["--public-url", "http://127.0.0.1:7070"]));
    let mut browser = Browser::signed_in(&http);
    let tokens = tokens_of_app(&http, &mut browser, "openid offline_access");
    let old = header(&tokens["access_token"])["kid"].clone();
    rotate(&http, &[]);
    let in_metastore = |http: &Http, sql: &str| super::metastore(http, sql);
    let lasts = "select o.published_until - n.signs_from from signing_keys o, signing_keys n
                 where o.published_until is not null and n.published_until is null";
    assert_eq!(in_metastore(&http, lasts), "1 day");
    its_time_has_come(&mut http);
    let new = header(&refresh(&http, &tokens)["access_token"])["kid"].clone();
    assert_ne!(new, old);

    // A minute before the day is over, also for who has just started.
    let end = "update signing_keys set published_until = now() + interval '1 minute' where published_until is not null";
    in_metastore(&http, end);
    http.platform.restart();
    assert!(key_ids(&http).contains(&old) && key_ids(&http).contains(&new));
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);

    in_metastore(&http, "update signing_keys set published_until = now() where published_until is not null");
    let only_new = || (key_ids(&http) == [new.clone()]).then_some(());
    wait_for("the old one is gone", Duration::from_secs(60), only_new);
    assert_eq!(who_am_i(&http, &tokens["access_token"]), (401, "invalid_token".to_owned()));
    assert_eq!(who_am_i(&http, &refresh(&http, &tokens)["access_token"]).0, 200, "nobody is signed out");
    // Every start looks after the keys; else it happens once a minute.
    http.platform.restart();
    let kept = || (in_metastore(&http, "select string_agg(id, ' ') from signing_keys") == new).then_some(());
    wait_for("it is forgotten", Duration::from_secs(90), kept);
}

/// Lets the newest key sign.
fn its_time_has_come(http: &mut Http) {
    super::metastore(http, "update signing_keys set signs_from = now() where published_until is null");
    http.platform.restart();
}

fn refresh(http: &Http, tokens: &Value) -> Value {
    let token = tokens["refresh_token"].as_str().expect("a token");
    let pairs = [
        ("grant_type", "refresh_token"),
        ("refresh_token", token),
        ("client_id", super::APP.0),
        ("client_secret", super::APP.1),
    ];
    Browser::new(http).post("/oauth/token", &pairs).json(200)
}

fn header(token: &Value) -> Value {
    let text = token.as_str().expect("a token");
    super::claims(&format!(".{text}"))
}
