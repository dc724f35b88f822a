//! What is known to go wrong with OAuth (RFC 9700), tried.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use coppice_test_support::{Platform, wait_for};

use super::browser::{Browser, encode};
use super::{APP_URI, SPA_URI, code_request, new_user, set_password, shared, tokens_of_spa, who_am_i};
use crate::http::Http;
use crate::setup::PROGRAM;

#[test]
fn nobody_is_sent_to_a_place_that_was_not_registered() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    for uri in [
        "",
        "https://evil.example.com/callback",
        "https://spa.example.com/callback/",
        "https://spa.example.com/callback2",
        "https://spa.example.com/callback?x=y",
        "https://spa.example.com/callback#x",
        "https://spa.example.com/callback/../x",
        "https://spa.example.com/Callback",
        "https://spa.example.com/%63allback",
        "https://SPA.example.com/callback",
        "https://spa.example.com:443/callback",
        "https://spa.example.com:444/callback",
        "https://spa.example.com.evil.com/callback",
        "https://spa.example.com@evil.com/callback",
        "https://evil.com\\@spa.example.com/callback",
        "https://evil.com/?https://spa.example.com/callback",
        "http://spa.example.com/callback",
        "//spa.example.com/callback",
        "javascript:alert(1)//https://spa.example.com/callback",
        "https://spa.example.com/callback\n",
        "http://127.0.0.1/callback",
    ] {
        for kind in ["code", "token"] {
            let answer =
                browser.get(&code_request("spa", SPA_URI, &[("redirect_uri", uri), ("response_type", kind)]));
            assert_eq!((answer.status, answer.header("location")), (400, ""), "{uri}");
            assert_eq!(answer.title(), "That did not work");
        }
    }
    let twice = format!("{}&redirect_uri=https://evil.example.com", code_request("spa", SPA_URI, &[]));
    assert_eq!(browser.get(&twice).status, 400);
    let nobody = browser.get(&code_request("nobody", SPA_URI, &[]));
    assert_eq!((nobody.status, nobody.header("location")), (400, ""));
    // A program on the person's own machine chooses its port, and nothing else.
    for (uri, expected) in [
        ("http://127.0.0.1:4711/callback", 200),
        ("http://[::1]:4711/callback", 200),
        ("http://localhost:4711/callback", 200),
        ("http://127.0.0.1:4711/other", 400),
        ("http://127.0.0.1:4711@evil.com/callback", 400),
        ("http://127.0.0.2:4711/callback", 400),
        ("http://127.0.0.1.evil.com:4711/callback", 400),
    ] {
        assert_eq!(browser.get(&code_request("cli", uri, &[])).status, expected, "{uri}");
    }
    // Tokens of the console are given without a question: not to another port.
    let other = "http://127.0.0.1:4711/callback";
    let answer = browser.get(&code_request("console", other, &[("response_type", "token")]));
    assert_eq!((answer.status, answer.header("location")), (400, ""));
}

#[test]
fn an_answer_says_who_gives_it() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let issuer = http.platform.api().to_owned();
    let good = browser.authorize(&code_request("spa", SPA_URI, &[]));
    assert_eq!(good.parameter('?', "iss"), issuer);
    let bad = browser.get(&code_request("spa", SPA_URI, &[("response_type", "code token")]));
    assert_eq!(bad.parameter('?', "error"), "unsupported_response_type");
    assert_eq!(bad.parameter('?', "iss"), issuer);
    let page = Browser::new(&http).get(&code_request("spa", SPA_URI, &[("prompt", "none")]));
    assert_eq!(
        (page.parameter('?', "error"), page.parameter('?', "iss")),
        ("login_required".to_owned(), issuer)
    );
}

#[test]
fn a_token_is_in_no_query_no_referer_and_no_cache() {
    let http = shared();
    let mut browser = Browser::signed_in(&http);
    let asked = [("response_type", "token"), ("code_challenge", ""), ("code_challenge_method", "")];
    let answer = browser.authorize(&code_request("spa", SPA_URI, &asked));
    let (before, after) = answer.location().split_once('#').expect("a fragment");
    assert!(after.contains("access_token=") && !before.contains("access_token"), "{answer:?}");
    assert_eq!(answer.header("referrer-policy"), "no-referrer");
    assert_eq!(answer.header("cache-control"), "no-store");
    let code = browser.authorize(&code_request("spa", SPA_URI, &[]));
    assert_eq!((code.header("referrer-policy"), code.header("cache-control")), ("no-referrer", "no-store"));
    let query = [("response_type", "token"), ("response_mode", "query")];
    let refused = browser.get(&code_request("spa", SPA_URI, &query));
    assert_eq!(refused.parameter('#', "error"), "invalid_request");
    // Nor is one read from there.
    let token = answer.parameter('#', "access_token");
    assert_eq!(browser.get(&format!("/user?access_token={token}")).status, 401);
    // Some clients get none without a code.
    let confidential = browser.get(&code_request("app", APP_URI, &[("response_type", "token")]));
    assert_eq!(confidential.parameter('#', "error"), "unauthorized_client");
}

#[test]
fn the_next_page_is_on_this_site() {
    let http = shared();
    for next in [
        "https://evil.com",
        "//evil.com",
        "/\\evil.com",
        "\\\\evil.com",
        "javascript:alert(1)",
        "/\t/evil.com",
    ] {
        let mut browser = Browser::new(&http);
        let page = browser.get(&format!("/oauth/sign-in?{}", encode(&[("next", next)])));
        assert_eq!(browser.fill_in(&page).location(), "/", "{next}");
        let again = browser.get(&format!("/oauth/sign-in?{}", encode(&[("next", next)])));
        assert_eq!(again.location(), "/", "{next}");
    }
    // What a form says it leads to is part of what its token is for.
    let mut browser = Browser::new(&http);
    let page = browser.get("/oauth/sign-in?next=/here");
    let email = http.platform.setting("COPPICE_EMAIL");
    let password = http.platform.setting("COPPICE_PASSWORD");
    let changed = browser.submit(&page, &[("email", email), ("password", password), ("next", "/there")]);
    assert_eq!(changed.status, 401);
    assert!(!browser.cookies.contains_key("coppice-session"));
}

#[test]
fn no_page_is_shown_inside_another() {
    let http = shared();
    let mut stranger = Browser::new(&http);
    let mut browser = Browser::signed_in(&http);
    for page in [
        stranger.get("/oauth/sign-in"),
        stranger.get(&code_request("spa", SPA_URI, &[])),
        stranger.get(&code_request("spa", "https://evil", &[])),
        browser.get(&code_request("spa", SPA_URI, &[("prompt", "consent")])),
        browser.get("/oauth/device"),
        browser.get("/oauth/logout"),
    ] {
        assert!(page.header("content-security-policy").contains("frame-ancestors 'none'"), "{page:?}");
        assert_eq!(page.header("x-frame-options"), "DENY");
        assert_eq!(page.header("referrer-policy"), "no-referrer");
        assert_eq!(page.header("cache-control"), "no-store");
        assert_eq!(page.header("access-control-allow-origin"), "");
        assert_eq!(page.header("content-encoding"), "");
    }
}

#[test]
fn passwords_can_not_be_tried_one_after_the_other() {
    let http = shared();
    let email = new_user(&http, "victim", "the victim's password");
    let mut guesser = Browser::of(&http, &email, "a guess at the password");
    let mut page = guesser.get("/oauth/sign-in");
    for _ in 0..10 {
        page = guesser.fill_in(&page);
        assert_eq!(page.status, 401);
        assert!(page.text.contains("is not right"), "{}", page.text);
    }
    let refused = guesser.fill_in(&page);
    assert_eq!((refused.status, refused.title()), (429, "Too many attempts"));
    // The right one is refused as well, whatever its letters' case.
    let mut owner = Browser::of(&http, &email.to_uppercase(), "the victim's password");
    let page = owner.get("/oauth/sign-in");
    assert_eq!(owner.fill_in(&page).status, 429);
    // An address that nobody has is treated the same.
    let mut other = Browser::of(&http, "no-one@example.com", "a guess at the password");
    let mut page = other.get("/oauth/sign-in");
    for _ in 0..10 {
        page = other.fill_in(&page);
        assert!(page.text.contains("is not right"), "{}", page.text);
    }
    assert_eq!(other.fill_in(&page).status, 429);
    // Others sign in.
    Browser::signed_in(&http);
}

#[test]
fn an_address_is_no_other_one_that_looks_like_it() {
    let http = shared();
    let email = new_user(&http, "mark", "the password of mark");
    // With the sign for kelvin.
    for other in [email.replace('k', "\u{212a}"), email.replace('k', "\u{212a}").to_uppercase()] {
        let mut browser = Browser::of(&http, &other, "the password of mark");
        let page = browser.get("/oauth/sign-in");
        assert_eq!(browser.fill_in(&page).status, 401, "{other}");
    }
    let mut browser = Browser::of(&http, &email.to_uppercase(), "the password of mark");
    let page = browser.get("/oauth/sign-in");
    assert_eq!(browser.fill_in(&page).status, 303);
}

#[test]
fn signing_in_begins_a_session_that_nobody_knew_before() {
    let http = shared();
    let mut browser = Browser::new(&http);
    browser.cookies.insert("coppice-session".to_owned(), "A".repeat(43));
    browser.sign_in();
    let first = browser.cookies["coppice-session"].clone();
    assert_ne!(first, "A".repeat(43));
    let page = browser.get(&code_request("spa", SPA_URI, &[("prompt", "login")]));
    browser.fill_in(&page);
    assert_ne!(browser.cookies["coppice-session"], first);
    // The earlier one has ended.
    let mut thief = Browser::new(&http);
    thief.cookies.insert("coppice-session".to_owned(), first);
    assert_eq!(thief.get("/oauth/device").title(), "Sign in");
}

#[test]
fn cookies_are_kept_from_scripts_and_other_sites() {
    let http = shared();
    let mut browser = Browser::new(&http);
    let page = browser.get("/oauth/sign-in");
    let answer = browser.fill_in(&page);
    for cookie in [page.header("set-cookie"), answer.header("set-cookie")] {
        for part in ["Path=/", "HttpOnly", "SameSite=Lax"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains("Domain"), "{cookie}");
    }
}

#[test]
fn with_tls_no_other_site_can_set_a_cookie() {
    let mut options = crate::setup::options();
    options.flags.extend(["--public-url", "https://db.example.com"].map(str::to_owned));
    let http = Http::new(Platform::start(PROGRAM, options));
    assert!(http.platform.setting("COPPICE_AUTH_URL").starts_with("https://db.example.com/realms/main/"));
    let mut browser = Browser::new(&http);
    let page = browser.get("/oauth/sign-in");
    let answer = browser.fill_in(&page);
    assert_eq!(answer.location(), "/");
    for cookie in [page.header("set-cookie"), answer.header("set-cookie")] {
        // Browsers take a cookie with this name only from this host, and only by TLS.
        assert!(cookie.starts_with("__Host-coppice-") && cookie.contains("; Secure"), "{cookie}");
    }
    assert_eq!(browser.get("/oauth/device").title(), "Connect a device");
}

#[test]
fn who_is_disabled_is_out_at_once() {
    let http = shared();
    let email = new_user(&http, "leaver", "the leaver's password");
    let mut browser = Browser::of(&http, &email, "the leaver's password");
    let tokens = tokens_of_spa(&http, &mut browser, "openid offline_access");
    let code = browser.code(&code_request("spa", SPA_URI, &[]));
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);
    super::operator(&http, &["user", "disable", &email], "").expect("an account");
    assert_eq!(who_am_i(&http, &tokens["access_token"]), (401, "invalid_token".to_owned()));
    let refresh = tokens["refresh_token"].as_str().expect("a token");
    let pairs = [("grant_type", "refresh_token"), ("refresh_token", refresh), ("client_id", "spa")];
    browser.post("/oauth/token", &pairs).is_error(400, "invalid_grant");
    super::redeem(&http, &code, SPA_URI, &[("client_id", "spa")]).is_error(400, "invalid_grant");
    assert_eq!(browser.get("/oauth/device").title(), "Sign in");
    let page = browser.get("/oauth/sign-in");
    assert!(browser.fill_in(&page).text.contains("is not right"));
}

#[test]
fn no_sign_in_in_flight_outlives_a_new_password() {
    let http = shared();
    let email = new_user(&http, "hurried", "the first password");
    let (email, is_set) = (email.as_str(), AtomicBool::new(false));
    let begun = AtomicUsize::new(0);
    let signed_in = std::thread::scope(|scope| {
        let sign_in_again_and_again = || {
            let mut signed_in = Vec::new();
            // Once more after it is set: that one was begun before.
            while !is_set.load(Ordering::SeqCst) {
                let mut browser = Browser::of(&http, email, "the first password");
                let page = browser.get("/oauth/sign-in?next=/signed-in");
                if browser.fill_in(&page).status == 303 {
                    begun.fetch_add(1, Ordering::SeqCst);
                    signed_in.push(browser);
                }
            }
            signed_in
        };
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(sign_in_again_and_again)).collect();
        wait_for("many are signed in", Duration::from_secs(120), || {
            (begun.load(Ordering::SeqCst) >= 12).then_some(())
        });
        let complaint = set_password(&http, email, "the second password");
        is_set.store(true, Ordering::SeqCst);
        assert_eq!(complaint, "");
        threads.into_iter().flat_map(|thread| thread.join().expect("it ended")).collect::<Vec<_>>()
    });
    assert!(signed_in.len() >= 12);
    for mut browser in signed_in {
        assert_eq!(browser.get("/oauth/device").title(), "Sign in");
    }
}

#[test]
fn a_new_password_ends_every_session() {
    let http = shared();
    let email = new_user(&http, "forgetful", "the first password");
    let mut browser = Browser::of(&http, &email, "the first password");
    let tokens = tokens_of_spa(&http, &mut browser, "openid offline_access");
    assert!(set_password(&http, &email, "short").contains("10 to 256 characters"));
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 200);
    assert_eq!(set_password(&http, &email.to_uppercase(), "the second password"), "");
    assert_eq!(who_am_i(&http, &tokens["access_token"]), (401, "invalid_token".to_owned()));
    assert_eq!(browser.get("/oauth/device").title(), "Sign in");
    let page = browser.get("/oauth/sign-in");
    assert_eq!(browser.fill_in(&page).status, 401);
    Browser::of(&http, &email, "the second password").sign_in();
    assert!(set_password(&http, "nobody@example.com", "a long password").contains("nobody here"));
}
