//! Links that sign somebody in, once.

use crate::shared;

const HOST: (&str, &str) = ("host", "127.0.0.1:7070");
const NO_USE: u16 = 410;

/// The value of the field with this name.
pub(crate) fn field<'p>(page: &'p str, name: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).expect("a field");
    rest.split('"').next().expect("an end")
}

#[test]
fn a_link_signs_in_once_and_looking_at_it_does_not_use_it_up() {
    let http = shared();
    let secret = http.new_sign_in_link();
    let link = coppice_api::sign_in_link("", &secret);
    let page = http.anonymous("GET", &link, &[HOST]);
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.text().contains(crate::http::EMAIL) && page.header("cache-control").contains("no-store"));
    for _ in 0..3 {
        assert_eq!(http.anonymous("GET", &link, &[HOST]).status, 200, "somebody looks at it");
    }
    let browser = page.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    let csrf = field(&page.text(), "csrf").to_owned();
    let follow = |cookie: &str, csrf: &str| {
        let headers = [HOST, ("cookie", cookie), ("content-type", "application/x-www-form-urlencoded")];
        http.send_text("POST", "/oauth/link", &headers, &format!("csrf={csrf}&token={secret}"))
    };
    // Another site can't have it followed, and it is still good afterwards.
    assert_eq!(follow("", &csrf).status, 400);
    assert_eq!(follow(&browser, "made-up").status, 400);
    let done = follow(&browser, &csrf);
    assert_eq!((done.status, done.header("location")), (303, "/console/"), "{}", done.text());
    let session = done.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    let own = [HOST, ("x-coppice-console", "1"), ("cookie", session.as_str())];
    let who = http.anonymous("GET", "/console/api/session", &own).expect(200);
    assert_eq!(who["user"]["email"], crate::http::EMAIL);

    assert_eq!(follow(&browser, &csrf).status, NO_USE, "once");
    assert_eq!(http.anonymous("GET", &link, &[HOST]).status, NO_USE);
    for made_up in ["", "x", &"x".repeat(secret.len())] {
        let link = coppice_api::sign_in_link("", made_up);
        assert_eq!(http.anonymous("GET", &link, &[HOST]).status, NO_USE, "{made_up}");
    }
}

#[test]
fn a_link_is_good_at_the_names_of_the_site_only() {
    let http = shared();
    let link = coppice_api::sign_in_link("", &http.new_sign_in_link());
    let refused = http.anonymous("GET", &link, &[("host", "evil.example")]);
    assert!(refused.status >= 400 && refused.status != NO_USE, "{}", refused.status);
    assert_eq!(http.anonymous("GET", &link, &[("host", "localhost:7070")]).status, 200);
}
