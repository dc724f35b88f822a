//! Invitations, from being made to being accepted, withdrawn or forgotten.

use coppice_test_support::{Options, Platform};
use serde_json::{Value, json};

use super::{is_timestamp, shared};
use crate::http::{Answer, Http, fields, text_of};
use crate::people::{Person, in_metastore, token_of};
use crate::setup::{PROGRAM, options};

const FIELDS: [&str; 9] = [
    "created_at",
    "email",
    "expires_at",
    "first_name",
    "id",
    "last_name",
    "organization_id",
    "role",
    "status",
];

fn invite(http: &Http, organization: &str, email: &str) -> Value {
    let path = format!("/organizations/{organization}/invitations");
    http.post(&path, &json!({ "email": email })).expect(201)
}

fn token(invitation: &Value) -> String {
    token_of(&text_of(&invitation["invite_link"]))
}

fn accept(http: &Http, person: &Person, token: &str) -> Answer {
    http.as_key(&person.key, "POST", "/invitations/accept", Some(&json!({ "token": token })))
}

/// Lets an invitation's time be over.
fn expire(http: &Http, invitation: &Value) {
    let id = text_of(&invitation["id"]);
    in_metastore(http, &format!("update invitations set expires_at = now() where id = '{id}'"));
}

#[test]
fn an_invitation_has_exactly_the_documented_fields() {
    let http = shared();
    let organization = http.new_organization("invitations");
    let path = format!("/organizations/{organization}/invitations");
    let made = http.post(&path, &json!({ "email": " Ada@Example.COM ", "x": 1 })).expect(201);
    assert_eq!(fields(&made), [&FIELDS[..5], &["invite_link"], &FIELDS[5..]].concat());
    let expected = json!({
        "email": "ada@example.com", "first_name": null, "last_name": null, "organization_id": organization,
        "role": "editor", "status": "pending",
    });
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(&made[field], value, "{field}");
    }
    is_timestamp(&made["created_at"]);
    is_timestamp(&made["expires_at"]);
    let link = text_of(&made["invite_link"]);
    assert!(link.starts_with(&format!("{}/invitation?token=", http.platform.api())), "{link}");
    assert_eq!(token(&made).len(), 43, "256 bits");
    let one = format!("{path}/{}", text_of(&made["id"]));
    assert_eq!(http.get(&one).expect(200), made, "the link is shown again");
    assert_eq!(http.get(&path).expect(200), json!({ "invitations": [made] }));

    let kept =
        in_metastore(&http, &format!("select i from invitations i where organization_id = '{organization}'"));
    assert!(!kept.contains(&token(&made)), "the secret is not kept as it is");
    expire(&http, &made);
    let expired = http.get(&one).expect(200);
    assert_eq!((fields(&expired), &expired["status"]), (FIELDS.to_vec(), &json!("expired")));
}

#[test]
fn an_invitation_is_for_an_address_and_a_role() {
    let http = shared();
    let organization = http.new_organization("bodies");
    let path = format!("/organizations/{organization}/invitations");
    for (body, id) in [
        (json!({}), "missing_field"),
        (json!({ "email": null }), "missing_field"),
        (json!({ "email": "" }), "invalid_field"),
        (json!({ "email": "ada" }), "invalid_field"),
        (json!({ "email": "ada@localhost" }), "invalid_field"),
        (json!({ "email": "ada@example.com\r\nBcc: eve@example.com" }), "invalid_field"),
        (json!({ "email": format!("{}@example.com", "x".repeat(250)) }), "invalid_field"),
        (json!({ "email": 1 }), "invalid_field"),
        (json!({ "email": "ada@example.com", "role": "owner" }), "invalid_field"),
        (json!({ "email": "ada@example.com", "role": 7 }), "invalid_field"),
        (json!([]), "invalid_json"),
    ] {
        http.post(&path, &body).expect_error(400, id);
    }
    let admin = http.post(&path, &json!({ "email": "a@example.com", "role": "admin" })).expect(201);
    assert_eq!(admin["role"], "admin");
    let default = http.post(&path, &json!({ "email": "b@example.com", "role": null })).expect(201);
    assert_eq!(default["role"], "editor");
    http.get(&format!("{path}/inv_nowhere")).expect_error(404, "invitation_not_found");
    http.get(&format!("{path}/a.b")).expect_error(400, "invalid_path_parameter");
    // Of another organization.
    let elsewhere = format!("/organizations/{{org}}/invitations/{}", text_of(&admin["id"]));
    http.get(&elsewhere).expect_error(404, "invitation_not_found");
    http.delete(&elsewhere).expect_error(404, "invitation_not_found");
    http.send(http.request("POST", &format!("{elsewhere}/resend"))).expect_error(404, "invitation_not_found");
}

#[test]
fn invitations_are_listed_newest_first_in_pages_and_filtered() {
    let http = shared();
    let organization = http.new_organization("list");
    let path = format!("/organizations/{organization}/invitations");
    let made: Vec<_> = ["ada", "bob_x", "carol"]
        .map(|name| invite(&http, &organization, &format!("{name}@example.com")))
        .into();
    in_metastore(
        &http,
        &format!(
            "update invitations set first_name = 'Carol', last_name = 'Ö%' where id = '{}'",
            text_of(&made[2]["id"])
        ),
    );
    expire(&http, &made[0]);
    let list = |query: &str| -> Vec<String> {
        let list = http.get(&format!("{path}{query}")).expect(200);
        let invitations = list["invitations"].as_array().expect("a list").clone();
        invitations.iter().map(|one| text_of(&one["email"]).replace("@example.com", "")).collect()
    };
    for (query, expected) in [
        ("", &["carol", "bob_x", "ada"][..]),
        ("?status=pending", &["carol", "bob_x"]),
        ("?status=expired", &["ada"]),
        ("?status=", &["carol", "bob_x", "ada"]),
        ("?email=Bob_X@Example.com", &["bob_x"]),
        ("?email=bob", &[]),
        ("?search=EXAMPLE", &["carol", "bob_x", "ada"]),
        ("?search=b_x", &["bob_x"]),
        ("?search=_", &["bob_x"]),
        ("?search=%25", &["carol"]),
        ("?search=AROL", &["carol"]),
        ("?first_name=aro", &["carol"]),
        ("?last_name=%C3%B6", &["carol"]),
        ("?first_name=Ö", &[]),
        ("?first=1", &["bob_x", "ada"]),
        ("?first=1&max=1", &["bob_x"]),
        ("?first=3", &[]),
        ("?first=4294967295&max=100", &[]),
        ("?max=2&status=pending&search=example&unknown=1", &["carol", "bob_x"]),
    ] {
        assert_eq!(list(query), expected, "{query}");
    }
    for query in
        ["status=gone", "first=-1", "first=x", "max=0", "max=101", "max=1.5", "search=%00", "email=a%00"]
    {
        http.get(&format!("{path}?{query}")).expect_error(400, "invalid_query_parameter");
    }
}

#[test]
fn only_those_who_may_invite_see_the_link() {
    let http = shared();
    let organization = http.new_organization("links");
    let path = format!("/organizations/{organization}/invitations");
    let editor = Person::in_organization(&http, &organization, "editor", "editor");
    let viewer = Person::in_organization(&http, &organization, "viewer", "viewer");
    let made = invite(&http, &organization, "ada@example.com");
    let one = format!("{path}/{}", text_of(&made["id"]));
    let seen = http.as_key(&editor.key, "GET", &one, None).expect(200);
    assert_eq!(fields(&seen), FIELDS);
    http.as_key(&viewer.key, "GET", &one, None).expect_error(403, "role_not_allowed");
    let body = json!({ "email": "eve@example.com" });
    http.as_key(&editor.key, "POST", &path, Some(&body)).expect_error(403, "role_not_allowed");
    let reads = http.new_token("/api-keys", json!({ "scopes": ["invite:read"] }));
    assert_eq!(fields(&http.as_key(&reads, "GET", &one, None).expect(200)), FIELDS);
    let refused = http.as_key(&reads, "POST", &format!("{one}/resend"), None);
    assert_eq!(refused.expect_error(403, "insufficient_scope"), "invalid API key");
    let key = http.new_token(&format!("/organizations/{organization}/api-keys"), json!({}));
    assert_eq!(http.as_key(&key, "GET", &one, None).expect(200), made);
}

#[test]
fn an_address_is_invited_once_at_a_time() {
    let http = shared();
    let organization = http.new_organization("once");
    let path = format!("/organizations/{organization}/invitations");
    let first = invite(&http, &organization, "ada@example.com");
    let again = || http.post(&path, &json!({ "email": "ADA@example.com", "role": "viewer" }));
    let refused = again().expect_error(409, "invitation_conflict");
    assert_eq!(refused, "ada@example.com is already invited or a member");
    expire(&http, &first);
    let second = again().expect(201);
    assert_ne!(second["id"], first["id"]);
    assert_eq!(
        http.get(&path).expect(200),
        json!({ "invitations": [second] }),
        "the expired one is replaced"
    );
    let ada = Person::in_organization(&http, &organization, "ada", "viewer");
    let body = json!({ "email": ada.email });
    http.post(&path, &body).expect_error(409, "invitation_conflict");
    let requests = (0..6).map(|_| http.request("POST", &path).json(&json!({ "email": "x@example.com" })));
    let answers = http.send_together(requests.collect());
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1, "{answers:?}");
}

#[test]
fn an_accepted_invitation_makes_a_member() {
    let http = shared();
    let organization = http.new_organization("accepting");
    let (ada, eve) = (Person::new(&http, "ada"), Person::new(&http, "eve"));
    let invitation = invite(&http, &organization, &ada.email.to_uppercase());
    let token = token(&invitation);
    accept(&http, &eve, &token).expect_error(404, "invitation_not_found");
    accept(&http, &ada, "nonsense").expect_error(404, "invitation_not_found");
    let refused = http.as_key(&ada.key, "POST", "/invitations/accept", Some(&json!({})));
    assert_eq!(refused.expect_error(400, "missing_field"), "token is required");
    let accepted = accept(&http, &ada, &token).expect(200);
    assert_eq!(accepted, json!({ "organization_id": organization, "role": "editor" }));
    http.as_key(&ada.key, "GET", &format!("/organizations/{organization}"), None).expect(200);
    accept(&http, &ada, &token).expect_error(404, "invitation_not_found");
    let list = http.get(&format!("/organizations/{organization}/invitations")).expect(200);
    assert_eq!(list, json!({ "invitations": [] }));
    let key = http.new_token(&format!("/organizations/{organization}/api-keys"), json!({}));
    let body = json!({ "token": token });
    http.as_key(&key, "POST", "/invitations/accept", Some(&body)).expect_error(403, "user_required");
    let limited = http.new_token("/api-keys", json!({ "branches": ["x"] }));
    http.as_key(&limited, "POST", "/invitations/accept", Some(&body)).expect_error(403, "restricted_key");
}

#[test]
fn a_member_who_accepts_again_keeps_the_role() {
    let http = shared();
    let organization = http.new_organization("again");
    for has_expired in [false, true] {
        let ada = Person::new(&http, "ada");
        let invitation = invite(&http, &organization, &ada.email);
        // Became one by another way, meanwhile.
        in_metastore(
            &http,
            &format!(
                "insert into members (organization_id, user_id, role)
                 values ('{organization}', '{}', 'viewer')",
                ada.id
            ),
        );
        if has_expired {
            expire(&http, &invitation);
        }
        let accepted = accept(&http, &ada, &token(&invitation)).expect(200);
        assert_eq!(accepted, json!({ "organization_id": organization, "role": "viewer" }));
        accept(&http, &ada, &token(&invitation)).expect_error(404, "invitation_not_found");
        let list = http.get(&format!("/organizations/{organization}/invitations")).expect(200);
        assert_eq!(list, json!({ "invitations": [] }), "it is used up");
    }
}

#[test]
fn an_expired_invitation_can_only_be_deleted() {
    let http = shared();
    let organization = http.new_organization("too late");
    let ada = Person::new(&http, "ada");
    let invitation = invite(&http, &organization, &ada.email);
    let path = format!("/organizations/{organization}/invitations/{}", text_of(&invitation["id"]));
    expire(&http, &invitation);
    let refused = accept(&http, &ada, &token(&invitation)).expect_error(400, "invitation_not_pending");
    assert_eq!(refused, "invitation is not pending");
    let resend = || http.send(http.request("POST", &format!("{path}/resend")));
    resend().expect_error(400, "invitation_not_pending");
    assert_eq!(http.get(&path).expect(200)["status"], "expired");
    assert_eq!(http.delete(&path).status, 204);
    let again = http.delete(&path).expect_error(404, "invitation_not_found");
    assert_eq!(again, format!("invitation {} not found", text_of(&invitation["id"])));
    resend().expect_error(404, "invitation_not_found");
}

#[test]
fn an_invitation_sent_again_has_another_link_and_its_whole_time() {
    let http = shared();
    let organization = http.new_organization("again and again");
    let ada = Person::new(&http, "ada");
    let before = invite(&http, &organization, &ada.email);
    let path = format!("/organizations/{organization}/invitations/{}", text_of(&before["id"]));
    let id = text_of(&before["id"]);
    in_metastore(
        &http,
        &format!("update invitations set expires_at = now() + interval '1 hour' where id = '{id}'"),
    );
    let answer = http.send(http.request("POST", &format!("{path}/resend")));
    assert_eq!((answer.status, answer.bytes.len()), (204, 0));
    let after = http.get(&path).expect(200);
    assert_ne!(after["invite_link"], before["invite_link"]);
    assert_eq!((&after["status"], &after["created_at"]), (&json!("pending"), &before["created_at"]));
    assert!(text_of(&after["expires_at"]) > text_of(&before["expires_at"]));
    accept(&http, &ada, &token(&before)).expect_error(404, "invitation_not_found");
    accept(&http, &ada, &token(&after)).expect(200);
}

#[test]
fn a_withdrawn_invitation_is_not_accepted_even_when_both_meet() {
    let http = shared();
    let organization = http.new_organization("meeting");
    for round in 0..5 {
        let ada = Person::new(&http, &format!("ada{round}"));
        let invitation = invite(&http, &organization, &ada.email);
        let path = format!("/organizations/{organization}/invitations/{}", text_of(&invitation["id"]));
        let body = json!({ "token": token(&invitation) });
        let accepting = http.anonymous("POST", "/invitations/accept").bearer_auth(&ada.key).json(&body);
        let other = match round % 2 {
            0 => http.request("DELETE", &path),
            _ => http.request("POST", &format!("{path}/resend")),
        };
        let answers = http.send_together(vec![accepting, other]);
        let (accepted, other) = (&answers[0], &answers[1]);
        if accepted.status == 200 {
            other.expect_error(404, "invitation_not_found");
        } else {
            accepted.expect_error(404, "invitation_not_found");
            assert_eq!(other.status, 204);
        }
        let there = http.as_key(&ada.key, "GET", &format!("/organizations/{organization}"), None);
        assert_eq!(there.status == 200, accepted.status == 200);
    }
}

#[test]
fn an_invitation_is_accepted_once() {
    let http = shared();
    let organization = http.new_organization("one of many");
    let ada = Person::new(&http, "ada");
    let invitation = invite(&http, &organization, &ada.email);
    let body = json!({ "token": token(&invitation) });
    let requests =
        (0..5).map(|_| http.anonymous("POST", "/invitations/accept").bearer_auth(&ada.key).json(&body));
    let answers = http.send_together(requests.collect());
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        answer.expect_error(404, "invitation_not_found");
    }
}

#[test]
fn quotas_of_people_hold_when_calls_come_together() {
    let flags = ["--members-per-organization", "3", "--invitations-per-organization", "4"];
    let flags = flags.map(str::to_owned).to_vec();
    let http = Http::new(Platform::start(PROGRAM, Options { flags, ..options() }));
    let organization = http.new_organization("small");
    let path = format!("/organizations/{organization}/invitations");
    let people: Vec<_> = (0..8).map(|index| Person::new(&http, &format!("p{index}"))).collect();
    let requests =
        people.iter().map(|person| http.request("POST", &path).json(&json!({ "email": person.email })));
    let answers = http.send_together(requests.collect());
    let made: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
    assert_eq!(made.len(), 4, "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        let message = answer.expect_error(400, "invitation_limit_reached");
        assert_eq!(message, "invitation limit of 4 reached");
    }
    let requests = made.iter().map(|answer| {
        let invitation = answer.json();
        let person = people.iter().find(|person| invitation["email"] == person.email).expect("invited");
        let body = json!({ "token": token(&invitation) });
        http.anonymous("POST", "/invitations/accept").bearer_auth(&person.key).json(&body)
    });
    let answers = http.send_together(requests.collect());
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 2, "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(answer.expect_error(400, "member_limit_reached"), "member limit of 3 reached");
    }
    let left = http.get(&path).expect(200)["invitations"].as_array().map(Vec::len);
    assert_eq!(left, Some(2), "what was refused is still pending");
    http.post(&path, &json!({ "email": "late@example.com" })).expect_error(400, "member_limit_reached");
}

#[test]
fn invitations_have_a_rate_that_counts_what_was_withdrawn_too() {
    let http = shared();
    let organization = http.new_organization("eager");
    let path = format!("/organizations/{organization}/invitations");
    for _ in 0..50 {
        let made = invite(&http, &organization, "ada@example.com");
        let one = format!("{path}/{}", text_of(&made["id"]));
        assert_eq!(http.send(http.request("POST", &format!("{one}/resend"))).status, 204);
        assert_eq!(http.delete(&one).status, 204);
    }
    let refused = http.post(&path, &json!({ "email": "ada@example.com" }));
    assert_eq!(refused.expect_error(429, "rate_limited"), "too many requests");
    let wait: u32 = refused.header("retry-after").parse().expect("whole seconds");
    assert!((3000..=3600).contains(&wait), "{wait}");
    assert_eq!(http.get(&path).expect(200), json!({ "invitations": [] }));
}
