//! The second factor: who has only the password gets nothing.

mod organizations;
mod phone;

use coppice_test_support::Platform;
use phone::Phone;
use serde_json::json;

use super::browser::{Answer, Browser};
use super::{
    SPA_URI, claims, code_request, metastore, new_user, operator, shared, tokens_of_spa, who_am_i,
    with_clients,
};
use crate::http::Http;

const PASSWORD: &str = "the first of two factors";
const PLACE: &str = "/account/second-factor";
const SECOND_STEP: &str = "/oauth/sign-in/second-step?next=%2Fsigned-in";

/// Adds a second factor in a browser that is signed in; the app, and the recovery codes.
fn enrol(browser: &mut Browser, email: &str) -> (Phone, Vec<String>) {
    let page = browser.get(PLACE);
    assert_eq!(page.title(), "Add a second factor", "{}", page.text);
    let (_, hidden) = page.form();
    let secret = &hidden.iter().find(|(name, _)| name == "secret").expect("a secret").1;
    let phone = Phone::with(secret, email);
    let added = browser.submit(&page, &[("code", &phone.shows())]);
    assert_eq!(added.title(), "Your recovery codes", "{}", added.text);
    let codes = added.text.split("<li><code>").skip(1);
    let codes: Vec<_> = codes.map(|rest| rest.split('<').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(codes.len(), 10);
    (phone, codes)
}

/// Somebody with a second factor, and the browser it was added in.
fn somebody(http: &Http, name: &str) -> (Browser, String, Phone, Vec<String>) {
    let email = new_user(http, name, PASSWORD);
    let mut browser = Browser::of(http, &email, PASSWORD);
    browser.sign_in();
    let (phone, codes) = enrol(&mut browser, &email);
    (browser, email, phone, codes)
}

/// A browser in which the password was typed, and the page that it led to.
fn half_way(http: &Http, email: &str) -> (Browser, Answer) {
    let mut browser = Browser::of(http, email, PASSWORD);
    let page = browser.get("/oauth/sign-in?next=/signed-in");
    let answer = browser.fill_in(&page);
    assert_eq!(answer.location(), SECOND_STEP);
    let page = browser.get(SECOND_STEP);
    assert_eq!(page.title(), "Second step", "{}", page.text);
    (browser, page)
}

/// Shows the second factor from a browser of its own; what came of it.
fn show(http: &Http, email: &str, code: &str) -> (Browser, Answer) {
    let (mut browser, page) = half_way(http, email);
    let answer = browser.submit(&page, &[("code", code)]);
    let is_in = browser.cookies.contains_key("coppice-session");
    assert_eq!(is_in, answer.status == 303, "{}", answer.text);
    (browser, answer)
}

/// The text of the page's complaint.
fn complaint(page: &Answer) -> &str {
    let (_, rest) = page.text.split_once("role=\"alert\">").unwrap_or_default();
    rest.split('<').next().unwrap_or_default()
}

#[test]
fn a_password_alone_lets_nobody_in_who_has_a_second_factor() {
    let http = shared();
    let email = new_user(&http, "careful", PASSWORD);
    let mut elsewhere = Browser::of(&http, &email, PASSWORD);
    let before = tokens_of_spa(&http, &mut elsewhere, "openid *");
    assert_eq!(claims(before["access_token"].as_str().expect("a token"))["amr"], json!(["pwd"]));
    let mut browser = Browser::of(&http, &email, PASSWORD);
    browser.sign_in();
    let page = browser.get(PLACE);
    let wrong = browser.submit(&page, &[("code", "000000")]);
    assert_eq!((wrong.status, wrong.title()), (400, "Add a second factor"));
    // Nobody makes an app's secret but the platform, for this browser.
    assert_eq!(browser.submit(&page, &[("secret", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ")]).status, 400);
    let mut copied = Browser::of(&http, &email, PASSWORD);
    copied.cookies = browser.cookies.clone();
    let of_client = tokens_of_spa(&http, &mut browser, "openid *");
    let (phone, _) = enrol(&mut browser, &email);
    assert_eq!(browser.get(PLACE).title(), "Your second factor", "it goes on here");
    // What was begun with the password alone has ended, here and elsewhere.
    for tokens in [&before, &of_client] {
        assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 401);
    }
    assert_eq!(copied.get("/oauth/device").title(), "Sign in", "a copy of the cookie");
    assert_eq!(elsewhere.get("/oauth/device").title(), "Sign in");

    let (mut thief, page) = half_way(&http, &email);
    assert!(thief.cookies.contains_key("coppice-half") && !thief.cookies.contains_key("coppice-session"));
    for secret in ["coppice-half", "coppice-browser"] {
        let stolen = thief.cookies[secret].clone();
        let mut browser = Browser::of(&http, &email, PASSWORD);
        browser.cookies.insert("coppice-session".to_owned(), stolen);
        assert_eq!(browser.get("/oauth/device").title(), "Sign in", "{secret} is no session");
    }
    assert_eq!(thief.get(&code_request("spa", SPA_URI, &[])).title(), "Sign in");
    let silent = thief.get(&code_request("spa", SPA_URI, &[("prompt", "none")]));
    assert_eq!(silent.parameter('?', "error"), "login_required");
    assert_eq!(thief.get("/oauth/device").title(), "Sign in");
    let asked = thief.post("/oauth/device_authorization", &[("client_id", "spa")]).json(200);
    let allow = [("user_code", asked["user_code"].as_str().expect("a code")), ("answer", "allow")];
    assert_eq!(thief.post("/oauth/device", &allow).title(), "Sign in", "no device is connected");
    for place in [PLACE, "/account/password"] {
        assert!(thief.get(place).location().starts_with("/oauth/sign-in?"), "{place}");
    }
    for code in ["", "123456", "BCDF-GHJK-LMNP-QRST"] {
        assert_eq!(thief.submit(&page, &[("code", code)]).status, 401, "{code}");
    }
    // Another browser has no part in it.
    let mut other = Browser::of(&http, &email, PASSWORD);
    assert!(other.get(SECOND_STEP).location().starts_with("/oauth/sign-in?"));
    assert_eq!(other.submit(&page, &[("code", &phone.shows_anew(&http))]).title(), "Sign in");
    // Nor is anybody told who has a second factor that does not know the password.
    let plain = new_user(&http, "carefree", PASSWORD);
    let guess = |email: &str| {
        let mut browser = Browser::of(&http, email, "not the password");
        let page = browser.get("/oauth/sign-in");
        let answer = browser.fill_in(&page);
        (answer.status, complaint(&answer).to_owned(), browser.cookies.len())
    };
    assert_eq!(guess(&email), guess(&plain));

    let mut owner = Browser::of(&http, &email, PASSWORD);
    let request = code_request("spa", SPA_URI, &[("scope", "openid *")]);
    let page = owner.get(&request);
    let next = owner.fill_in(&page).location().to_owned();
    let page = owner.get(&next);
    assert!(page.header("content-security-policy").ends_with("form-action 'self' https://spa.example.com"));
    let next = owner.submit(&page, &[("code", &phone.shows_anew(&http))]).location().to_owned();
    let page = owner.get(&next);
    assert_eq!(
        page.title(),
        "Allow spa to use your account?",
        "what was allowed by a password alone has ended"
    );
    let allowed = owner.submit(&page, &[("answer", "allow")]);
    assert!(!allowed.parameter('?', "code").is_empty(), "and goes on where they wanted to");
    let tokens = tokens_of_spa(&http, &mut owner, "openid *");
    for token in ["access_token", "id_token"] {
        let claims = claims(tokens[token].as_str().expect("a token"));
        assert_eq!((&claims["acr"], &claims["amr"]), (&json!("2"), &json!(["pwd", "otp", "mfa"])), "{token}");
    }
}

#[test]
fn each_code_is_good_once() {
    let http = shared();
    let (mut first, email, phone, codes) = somebody(&http, "watched");
    // Over whose shoulder somebody looked: also the code it was added with is spent.
    assert_eq!(show(&http, &email, &phone.shows()).1.status, 401);
    let code = phone.shows_anew(&http);
    assert_eq!(show(&http, &email, &code).1.location(), "/signed-in");
    let (_, again) = show(&http, &email, &code);
    assert_eq!(again.status, 401);
    assert!(complaint(&again).contains("used before"), "{}", again.text);
    // Of two at the same time, one.
    let (mut one, page_of_one) = half_way(&http, &email);
    let (mut two, page_of_two) = half_way(&http, &email);
    let code = phone.shows_anew(&http);
    let outcomes = std::thread::scope(|scope| {
        let one = scope.spawn(|| one.submit(&page_of_one, &[("code", &code)]).status);
        let two = two.submit(&page_of_two, &[("code", &code)]).status;
        let mut both = [one.join().expect("an answer"), two];
        both.sort_unstable();
        both
    });
    assert_eq!(outcomes, [303, 401]);

    let typed = codes[3].to_lowercase().replace('-', " ");
    assert_eq!(show(&http, &email, &typed).1.location(), "/signed-in");
    assert_eq!(show(&http, &email, &codes[3]).1.status, 401);
    let page = first.get(PLACE);
    assert!(page.text.contains("9 are left"), "{}", page.text);
    // Nobody else's.
    let (_, other, ..) = somebody(&http, "unwatched");
    assert_eq!(show(&http, &other, &codes[4]).1.status, 401);
    // New ones take the place of those that are left.
    let renewed = first.submit(&page, &[("code", &phone.shows_anew(&http))]);
    assert_eq!(renewed.title(), "Your recovery codes", "{}", renewed.text);
    assert!(!renewed.text.contains(&codes[4]));
    assert_eq!(show(&http, &email, &codes[4]).1.status, 401);
    let kept = metastore(&http, "select string_agg(code_hash, ' ') from recovery_codes");
    assert!(codes.iter().all(|code| !kept.contains(&code.replace('-', ""))), "only hashes are kept");
}

#[test]
fn guessing_at_codes_is_limited_for_each_account_and_address_and_for_each_account() {
    let http = shared();
    let (_, email, phone, codes) = somebody(&http, "guessed");
    let (mut thief, page) = half_way(&http, &email);
    let mut tries = |code: &str| thief.submit(&page, &[("code", code)]);
    let mut guess = |code: &str| tries(code).status;
    let elsewhere = "delete from attempts where kind = 'second-factor'";
    for _ in 0..5 {
        metastore(&http, elsewhere);
        for _ in 0..10 {
            assert_eq!(guess("000000"), 401);
        }
        assert_eq!(guess("000000"), 429, "from this address");
        assert_eq!(guess(&phone.shows_anew(&http)), 429, "also with the right one");
        assert_eq!(guess(&codes[0]), 429, "of either kind");
    }
    // With a fresh address each time, too; the password alone is no help for a day.
    metastore(&http, elsewhere);
    let paused = tries(&phone.shows_anew(&http));
    assert_eq!(paused.status, 429, "from anywhere");
    assert!(paused.text.contains("Use one of your recovery codes"), "{}", paused.text);
    assert!(paused.text.contains("href=\"/oauth/sign-in/second-step?next=%2Fsigned-in\""), "{}", paused.text);
    // Nobody guesses a recovery code, so its owner is not shut out, and has their app back.
    assert_eq!(show(&http, &email, &codes[0]).1.location(), "/signed-in");
    assert_eq!(show(&http, &email, &phone.shows_anew(&http)).1.location(), "/signed-in");
    let (_, other, phone, _) = somebody(&http, "left-alone");
    assert_eq!(show(&http, &other, &phone.shows_anew(&http)).1.location(), "/signed-in");
}

#[test]
fn another_password_keeps_the_second_factor_and_ends_what_waits_for_it() {
    let http = shared();
    let (mut browser, email, phone, codes) = somebody(&http, "renewed");
    let (mut thief, waiting) = half_way(&http, &email);
    let page = browser.get("/account/password");
    let new = "another first of two factors";
    let typed = [("password", PASSWORD), ("new_password", new), ("repeated_password", new)];
    assert_eq!(browser.submit(&page, &typed).title(), "Password changed");
    let late = thief.submit(&waiting, &[("code", &phone.shows_anew(&http))]);
    assert_eq!((late.status, late.title()), (401, "Sign in"), "it was begun with the old password");
    assert!(!thief.cookies.contains_key("coppice-session"));
    super::set_password(&http, &email, PASSWORD);
    assert_eq!(show(&http, &email, "000000").1.status, 401);
    assert_eq!(show(&http, &email, &codes[0]).1.location(), "/signed-in");
    // Disabled meanwhile.
    let (mut waiting, page) = half_way(&http, &email);
    operator(&http, &["user", "disable", &email], "").expect("an account");
    assert_eq!(waiting.submit(&page, &[("code", &phone.shows_anew(&http))]).title(), "Sign in");
}

#[test]
fn it_is_removed_by_who_has_both_factors_or_by_the_operator() {
    let http = shared();
    let (mut browser, email, phone, codes) = somebody(&http, "leaving");
    let tokens = tokens_of_spa(&http, &mut browser, "openid *");
    let remove = |browser: &mut Browser, password: &str, code: &str| {
        let page = browser.get(PLACE);
        let (_, rest) = page.text.split_once("/recovery-codes").expect("the first form");
        let (_, second) = rest.split_once("<form ").expect("the second form");
        let page = Answer { text: format!("<form {second}"), headers: vec![], ..page };
        browser.submit(&page, &[("password", password), ("code", code)])
    };
    for (password, code, why) in [
        ("not the password", phone.shows_anew(&http).as_str(), "This is not your password."),
        (PASSWORD, "000000", "This code is not right"),
        (PASSWORD, "", "This code is not right"),
    ] {
        let page = remove(&mut browser, password, code);
        assert_eq!((page.status, page.title()), (400, "Your second factor"));
        assert!(complaint(&page).starts_with(why), "{}", page.text);
    }
    assert_eq!(remove(&mut browser, PASSWORD, &codes[0]).title(), "Second factor removed");
    assert_eq!(who_am_i(&http, &tokens["access_token"]).0, 401, "every session ends");
    assert_eq!(browser.get("/oauth/device").title(), "Sign in");
    browser.sign_in();
    // Who finds a browser signed in for a while can't add one of their own.
    metastore(
        &http,
        &format!(
            "update browser_sessions set signed_in_at = now() - interval '1 hour'
         where user_id = (select id from users where email = '{email}')"
        ),
    );
    assert!(browser.get(PLACE).location().starts_with("/oauth/sign-in?"));

    let page = browser.get("/oauth/sign-in?anew=yes&next=/signed-in");
    assert_eq!(browser.fill_in(&page).location(), "/signed-in");
    enrol(&mut browser, &email);
    let list = operator(&http, &["user", "list"], "").expect("a list");
    assert!(list.contains(&format!("{email} (verified, second factor)")), "{list}");
    let command = ["user", "remove-second-factor", &email];
    let said = operator(&http, &command, "").expect("it is there");
    assert!(said.contains("no second factor any more"), "{said}");
    assert!(operator(&http, &command, "").expect_err("gone").contains("has no second factor"));
    assert_eq!(browser.get("/oauth/device").title(), "Sign in");
    browser.sign_in();

    let lines = operator(&http, &["audit", "--json", "--limit", "1000"], "").expect("lines");
    let lines: Vec<_> = lines.lines().filter(|line| line.contains(&email)).collect();
    for action in [
        "account.addSecondFactor",
        "account.useRecoveryCode",
        "account.removeSecondFactor",
        "admin.user.removeSecondFactor",
    ] {
        assert!(lines.iter().any(|line| line.contains(action)), "{action}: {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains(&codes[0])), "no secrets");
}

#[test]
fn another_master_key_keeps_the_second_factor_working() {
    let mut http = Http::new(with_clients(&[]));
    let (_, email, phone, codes) = somebody(&http, "resealed");
    let sealed = |http: &Http| {
        metastore(http, "select encode(totp_sealed, 'hex') from users where totp_sealed is not null")
    };
    let before = sealed(&http);
    http.platform.kill();
    rekey(&http.platform);
    http.platform.restart();
    assert_ne!(sealed(&http), before, "it is sealed anew");
    assert_eq!(show(&http, &email, &phone.shows_anew(&http)).1.location(), "/signed-in");
    assert_eq!(show(&http, &email, &codes[0]).1.location(), "/signed-in");
    assert_eq!(show(&http, &email, &codes[0]).1.status, 401);
}

fn rekey(coppice: &Platform) {
    let done = std::process::Command::new(crate::setup::PROGRAM)
        .args(["admin", "rekey", "--data-dir"])
        .arg(coppice.data_dir())
        .output()
        .expect("the executable runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
