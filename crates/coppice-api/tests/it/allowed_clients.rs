//! What a person let in is listed, and can be taken back.

use crate::asked_anew::{allows, asked_by_client, signed_in, token, with_client};
use crate::browser::HOST;
use crate::http::Http;
use crate::sign_in_links::field;

fn page(http: &Http, browser: &str) -> String {
    let page = http.anonymous("GET", "/account/clients", &[HOST, ("cookie", browser)]);
    assert_eq!(page.status, 200, "{}", page.text());
    page.text()
}

fn take_back(http: &Http, browser: &str, client: &str) {
    let body = format!("csrf={}&client_id={client}", field(&page(http, browser), "csrf"));
    let form = ("content-type", "application/x-www-form-urlencoded");
    let done = http.send_text("POST", "/account/clients/end", &[HOST, form, ("cookie", browser)], &body);
    assert_eq!((done.status, done.header("location")), (303, "/account/clients"), "{}", done.text());
}

#[test]
fn a_client_from_which_it_is_taken_back_is_signed_out_and_has_to_ask_again() {
    let http = with_client("editor");
    let browser = signed_in(&http);
    assert!(page(&http, &browser).contains("There is none"));

    allows(&http, &browser);
    let token = token(&http, &browser);
    let listed = page(&http, &browser);
    for told in ["An editor", "Nobody vouches for it", "Not signed in", "Coppice console", "Signed in."] {
        assert!(listed.contains(told), "{told}: {listed}");
    }
    let is_in = || http.as_key(&token, "GET", "/user", None).status;
    let is_let_in = || asked_by_client(&http, &browser, "none").status == 303;
    assert!(is_in() == 200 && is_let_in());

    take_back(&http, &browser, "dyn_editor");
    assert!(is_in() == 200 && !is_let_in(), "one client's end is no other's");
    take_back(&http, &browser, "console");
    assert_eq!(is_in(), 401);
    assert!(page(&http, &browser).contains("There is none"));
    assert!(http.asks(
        "select array_agg(target_ids[1] order by target_ids[1]) = '{console,dyn_editor}' from audit_log \
         where action = 'account.endClient'"
    ));
}

#[test]
fn who_is_not_signed_in_is_asked_to_and_a_form_of_another_browser_takes_nothing_back() {
    let http = with_client("reader");
    let (browser, other) = (signed_in(&http), signed_in(&http));
    let anonymous = http.anonymous("GET", "/account/clients", &[HOST]);
    assert_eq!(
        (anonymous.status, anonymous.header("location").split('?').next()),
        (303, Some("/oauth/sign-in"))
    );

    let token = token(&http, &browser);
    let body = format!("csrf={}&client_id=console", field(&page(&http, &other), "csrf"));
    let form = ("content-type", "application/x-www-form-urlencoded");
    http.send_text("POST", "/account/clients/end", &[HOST, form, ("cookie", &browser)], &body);
    assert_eq!(http.as_key(&token, "GET", "/user", None).status, 200);
}
