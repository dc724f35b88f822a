//! Organizations that ask their members for a second factor.

use serde_json::{Value, json};

use super::{PASSWORD, PLACE, enrol};
use crate::http::Http;
use crate::oauth::browser::Browser;
use crate::oauth::{metastore, new_user, operator, shared, tokens_of_spa, who_am_i};

/// The id of the error, or nothing when it is none.
fn refused(http: &Http, token: &Value, method: &str, path: &str, body: Option<&Value>) -> String {
    let answer = http.as_key(token.as_str().expect("a token"), method, path, body);
    if answer.status < 400 { String::new() } else { answer.refusal().1 }
}

#[test]
fn an_organization_that_asks_for_a_second_factor_lets_nobody_in_without() {
    let http = shared();
    let owner = new_user(&http, "owner-of-vault", PASSWORD);
    let member = new_user(&http, "member-of-vault", PASSWORD);
    let mut browser = Browser::of(&http, &owner, PASSWORD);
    let before = tokens_of_spa(&http, &mut browser, "*")["access_token"].clone();
    let made = http.as_key(
        before.as_str().expect("a token"),
        "POST",
        "/organizations",
        Some(&json!({"name": "vault"})),
    );
    let organization = made.expect(201)["id"].as_str().expect("an id").to_owned();
    let path = format!("/organizations/{organization}");
    metastore(
        &http,
        &format!(
            "insert into members (organization_id, user_id, role)
         select '{organization}', id, 'admin' from users where email = '{member}'"
        ),
    );
    let mut of_member = Browser::of(&http, &member, PASSWORD);
    let token = tokens_of_spa(&http, &mut of_member, "*")["access_token"].clone();
    let key_of = |token: &Value, path: &str| {
        let made = http.as_key(token.as_str().expect("a token"), "POST", path, Some(&json!({ "name": "k" })));
        made.expect(201)["key"]["token"].clone()
    };
    let own_key = key_of(&token, "/api-keys");
    let organization_key = key_of(&token, &format!("{path}/api-keys"));

    let (on, off) = (json!({ "requires_second_factor": true }), json!({ "requires_second_factor": false }));
    for credential in [&before, &organization_key] {
        let told = refused(&http, credential, "PUT", &path, Some(&on));
        assert_eq!(told, "second_factor_required", "nobody shuts themselves out, or others");
    }
    enrol(&mut browser, &owner);
    let with_factor = tokens_of_spa(&http, &mut browser, "*")["access_token"].clone();
    let set = http.as_key(with_factor.as_str().expect("a token"), "PUT", &path, Some(&on)).expect(200);
    assert_eq!(set["requires_second_factor"], true);

    // Tokens and keys that were there before it was asked for.
    let projects = format!("{path}/projects");
    for credential in [&token, &own_key] {
        for (method, path, body) in [
            ("GET", &path, None),
            ("PUT", &path, Some(&off)),
            ("GET", &projects, None),
            ("GET", &format!("{path}/members"), None),
            ("GET", &format!("{path}/audit-log"), None),
            ("POST", &format!("{path}/invitations"), Some(&json!({}))),
        ] {
            assert_eq!(
                refused(&http, credential, method, path, body),
                "second_factor_required",
                "{method} {path}"
            );
        }
        assert_eq!(refused(&http, credential, "GET", "/organizations", None), "", "it is still seen");
    }
    let told = http.as_key(token.as_str().expect("a token"), "GET", &path, None).json()["message"].clone();
    let place = format!("add one at {}{PLACE}", http.platform.api());
    assert!(told.as_str().expect("a message").contains(&place), "{told}");
    assert_eq!(refused(&http, &organization_key, "GET", &path, None), "");

    // Whoever adds one signs in anew, and makes their keys anew: those from before
    // may be somebody's who had the password alone, as may what such keys make.
    let late_key = key_of(&token, "/api-keys");
    enrol(&mut of_member, &member);
    assert_eq!(who_am_i(&http, &token).0, 401, "begun without it");
    for key in [&own_key, &late_key, &key_of(&own_key, "/api-keys")] {
        assert_eq!(refused(&http, key, "GET", &path, None), "second_factor_required");
    }
    let told = http.as_key(own_key.as_str().expect("a key"), "GET", &path, None).json()["message"].clone();
    assert!(told.as_str().expect("a message").contains("make a new key"), "{told}");
    let token = tokens_of_spa(&http, &mut of_member, "*")["access_token"].clone();
    assert_eq!(refused(&http, &token, "GET", &path, None), "");
    let new_key = key_of(&token, "/api-keys");
    for key in [&new_key, &key_of(&new_key, "/api-keys")] {
        assert_eq!(refused(&http, key, "GET", &path, None), "");
    }
    // And whose is removed is out again, with their keys, also when they add another.
    operator(&http, &["user", "remove-second-factor", &member], "").expect("it is there");
    assert_eq!(refused(&http, &new_key, "GET", &path, None), "second_factor_required");
    assert_eq!(who_am_i(&http, &token).0, 401);
    of_member.sign_in();
    enrol(&mut of_member, &member);
    assert_eq!(refused(&http, &new_key, "GET", &path, None), "second_factor_required");
    http.as_key(with_factor.as_str().expect("a token"), "PUT", &path, Some(&off)).expect(200);
    assert_eq!(refused(&http, &own_key, "GET", &path, None), "");
}
