//! Devices without a browser of their own.

use serde_json::Value;

use super::browser::{Answer, Browser};
use super::{metastore, new_user, shared, who_am_i};
use crate::http::Http;

const AS_CLI: [(&str, &str); 2] = [("client_id", "cli"), ("client_secret", "coppice-cli")];

fn ask(http: &Http) -> Value {
    let pairs = [&AS_CLI[..], &[("scope", "openid offline_access")]].concat();
    Browser::new(http).post("/realms/main/protocol/openid-connect/auth/device", &pairs).json(200)
}

fn poll(http: &Http, asked: &Value) -> Answer {
    let code = asked["device_code"].as_str().expect("a code");
    // Another story shows what haste leads to.
    metastore(http, "update device_codes set polled_at = null");
    let grant = ("grant_type", "urn:ietf:params:oauth:grant-type:device_code");
    let pairs = [&AS_CLI[..], &[grant, ("device_code", code)]].concat();
    Browser::new(http).post("/realms/main/protocol/openid-connect/token", &pairs)
}

/// Goes to the address that the device shows, up to the question.
fn question(http: &Http, browser: &mut Browser, asked: &Value) -> Answer {
    let address = asked["verification_uri_complete"].as_str().expect("an address").to_owned();
    assert!(address.starts_with(http.platform.api()));
    let mut page = browser.get(&address);
    if page.title() == "Sign in" {
        let next = browser.fill_in(&page).location().to_owned();
        page = browser.get(&next);
    }
    assert_eq!(page.title(), "Connect a device");
    let code = asked["user_code"].as_str().expect("a code");
    assert!(page.text.contains(code), "it is filled in");
    let page = browser.submit(&page, &[("user_code", code)]);
    assert_eq!(page.title(), "Connect Coppice CLI?");
    assert!(page.text.contains(code) && page.text.contains("127.0.0.1"), "{}", page.text);
    page
}

#[test]
fn a_device_is_connected_by_a_person_elsewhere() {
    let http = shared();
    let asked = ask(&http);
    assert_eq!((&asked["expires_in"], &asked["interval"]), (&600.into(), &5.into()));
    poll(&http, &asked).is_error(400, "authorization_pending");
    let mut browser = Browser::new(&http);
    let page = question(&http, &mut browser, &asked);
    poll(&http, &asked).is_error(400, "authorization_pending");
    assert_eq!(browser.submit(&page, &[("answer", "allow")]).title(), "Device connected");
    let tokens = poll(&http, &asked).json(200);
    assert_eq!(tokens["scope"], "openid offline_access *");
    assert_eq!(tokens["refresh_expires_in"], 2_592_000);
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);
    poll(&http, &asked).is_error(400, "invalid_grant");
    // The answer was given.
    assert_eq!(browser.submit(&page, &[("answer", "allow")]).status, 400);
}

#[test]
fn a_device_may_be_connected_at_its_address_below_the_issuer() {
    let http = shared();
    let asked = ask(&http);
    let mut browser = Browser::signed_in(&http);
    let code = asked["user_code"].as_str().expect("a code");
    let typed = [("user_code", code)];
    // Each form is sent to the address itself, wherever the page would send it.
    let mut page = browser.get("/realms/main/device");
    for (more, title) in [(None, "Connect Coppice CLI?"), (Some(("answer", "allow")), "Device connected")] {
        let (_, hidden) = page.form();
        let hidden = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let pairs: Vec<_> =
            hidden.filter(|(name, _)| *name != "user_code").chain(typed).chain(more).collect();
        page = browser.post("/realms/main/device", &pairs);
        assert_eq!(page.title(), title, "{}", page.text);
    }
    assert_eq!(who_am_i(&http, &poll(&http, &asked).json(200)["access_token"]).0, 200);
    assert_eq!(browser.post("/realms/elsewhere/device", &typed).status, 404);
}

#[test]
fn a_device_that_polls_every_two_seconds_is_never_told_to_slow_down() {
    let http = shared();
    // By its scope it is told from the devices of other stories.
    let mut device = Browser::new(&http);
    let asked = [&AS_CLI[..], &[("scope", "metrics:read")]].concat();
    let asked = device.post("/oauth/device_authorization", &asked).json(200);
    let code = asked["device_code"].as_str().expect("a code");
    let grant = ("grant_type", "urn:ietf:params:oauth:grant-type:device_code");
    let pairs = [&AS_CLI[..], &[grant, ("device_code", code)]].concat();
    for poll in 0..5 {
        device.post("/oauth/token", &pairs).is_error(400, "authorization_pending");
        let polled = metastore(
            &http,
            "with aged as (update device_codes set polled_at = clock_timestamp() - interval '1.9 seconds'
                           where scopes = '{metrics:read}' returning 1)
             select count(*) from aged",
        );
        assert_eq!(polled, "1", "{poll}: two seconds pass, as its clock tells them");
    }
}

#[test]
fn a_person_may_say_no_to_a_device() {
    let http = shared();
    let asked = ask(&http);
    let mut browser = Browser::new(&http);
    let page = question(&http, &mut browser, &asked);
    assert_eq!(browser.submit(&page, &[("answer", "deny")]).title(), "Device refused");
    poll(&http, &asked).is_error(400, "access_denied");
}

#[test]
fn a_device_waits_ten_minutes() {
    let http = shared();
    // No other story's device runs this client.
    let as_spa = [("client_id", "spa")];
    let asked = Browser::new(&http).post("/oauth/device_authorization", &as_spa).json(200);
    let mut browser = Browser::signed_in(&http);
    let typed = [("user_code", asked["user_code"].as_str().expect("a code"))];
    let page = browser.get("/oauth/device");
    let question = browser.submit(&page, &typed);
    assert_eq!(question.title(), "Connect spa?");
    metastore(&http, "update device_codes set expires_at = now() where client_id = 'spa'");
    assert_eq!(browser.submit(&question, &[("answer", "allow")]).status, 400);
    assert_eq!(browser.submit(&page, &typed).status, 400);
    let code = asked["device_code"].as_str().expect("a code");
    let grant = ("grant_type", "urn:ietf:params:oauth:grant-type:device_code");
    let pairs = [as_spa[0], grant, ("device_code", code)];
    browser.post("/oauth/token", &pairs).is_error(400, "expired_token");
}

#[test]
fn who_polls_in_haste_is_told_so() {
    let http = shared();
    let asked = ask(&http);
    let code = asked["device_code"].as_str().expect("a code");
    let grant = ("grant_type", "urn:ietf:params:oauth:grant-type:device_code");
    let pairs = [&AS_CLI[..], &[grant, ("device_code", code)]].concat();
    let mut device = Browser::new(&http);
    let mut said: Vec<_> =
        (0..10).map(|_| device.post("/oauth/token", &pairs).json(400)["error"].clone()).collect();
    said.dedup();
    assert!(said.contains(&"slow_down".into()), "{said:?}");
    let unknown = [&AS_CLI[..], &[grant, ("device_code", "made-up")]].concat();
    device.post("/oauth/token", &unknown).is_error(400, "invalid_grant");
    // Another client's device code is as good as made up.
    let other = [("client_id", "spa"), grant, ("device_code", code)];
    device.post("/oauth/token", &other).is_error(400, "invalid_grant");
    device
        .post("/oauth/device_authorization", &[("client_id", "console")])
        .is_error(400, "unauthorized_client");
    device.post("/oauth/device_authorization", &[("client_id", "cli")]).is_error(401, "invalid_client");
}

#[test]
fn codes_of_devices_can_not_be_guessed() {
    let http = shared();
    let email = new_user(&http, "guesser", "a guesser's password");
    let mut browser = Browser::of(&http, &email, "a guesser's password");
    browser.sign_in();
    let page = browser.get("/oauth/device");
    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses.push(browser.submit(&page, &[("user_code", "BCDF-GHJK")]).status);
    }
    assert_eq!(statuses[..10], [400; 10], "{statuses:?}");
    assert_eq!(statuses[10..], [429; 2], "{statuses:?}");
    // Now the right one does not help either.
    let asked = ask(&http);
    let code = asked["user_code"].as_str().expect("a code");
    let refused = browser.submit(&page, &[("user_code", code)]);
    assert_eq!((refused.status, refused.title()), (429, "Too many attempts"));
    assert!(!refused.header("retry-after").is_empty());
}
