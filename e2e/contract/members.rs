//! Members of organizations, their roles, and the end of an organization.

use coppice_test_support::Platform;
use serde_json::{Value, json};

use super::{is_timestamp, shared};
use crate::http::{Http, fields, text_of};
use crate::people::{Person, in_metastore};
use crate::setup::{PROGRAM, options, postgres_dir};

#[test]
fn a_member_has_exactly_the_documented_fields() {
    let http = shared();
    let organization = http.new_organization("members");
    let path = format!("/organizations/{organization}/members");
    let ada = Person::in_organization(&http, &organization, "ada", "viewer");
    let list = http.get(&path).expect(200);
    assert_eq!(fields(&list), ["members"]);
    let members = list["members"].as_array().expect("a list");
    let roles: Vec<_> = members.iter().map(|member| text_of(&member["role"])).collect();
    assert_eq!(roles, ["owner", "viewer"], "who joined first comes first");
    for member in members {
        assert_eq!(fields(member), ["email", "id", "joined_at", "name", "role"]);
        is_timestamp(&member["joined_at"]);
    }
    let expected = json!([ada.id, ada.email, "ada"]);
    assert_eq!(json!([members[1]["id"], members[1]["email"], members[1]["name"]]), expected);
    assert_eq!(http.as_key(&ada.key, "GET", &path, None).expect(200), list, "a viewer may look");
}

#[test]
fn the_roles_that_can_be_given_are_listed() {
    let list = shared().get("/organizations/{org}/roles").expect(200);
    let roles = list["roles"].as_array().expect("a list");
    let ids: Vec<_> = roles.iter().map(|role| text_of(&role["id"])).collect();
    assert_eq!(ids, ["admin", "editor", "viewer"]);
    for role in roles {
        assert_eq!(fields(role), ["description", "id", "name"]);
    }
}

#[test]
fn a_removed_member_is_out_with_the_next_request() {
    let http = shared();
    let organization = http.new_organization("removal");
    let path = format!("/organizations/{organization}");
    let ada = Person::in_organization(&http, &organization, "ada", "admin");
    let made = http.as_key(&ada.key, "POST", &format!("{path}/api-keys"), Some(&json!({ "name": "stays" })));
    let stays = text_of(&made.expect(201)["key"]["token"]);
    let member = format!("{path}/members/{}", ada.id);

    let answer = http.delete(&member);
    assert_eq!((answer.status, answer.bytes.len()), (204, 0));
    http.as_key(&ada.key, "GET", &path, None).expect_error(403, "organization_access_denied");
    http.as_key(&stays, "GET", &path, None).expect(200);
    assert_eq!(
        http.as_key(&ada.key, "GET", "/organizations", None).expect(200),
        json!({ "organizations": [] })
    );
    let again = http.delete(&member).expect_error(404, "member_not_found");
    assert_eq!(again, format!("member {} not found", ada.id));
}

#[test]
fn nobody_removes_themselves_or_the_owner() {
    let http = shared();
    let organization = http.new_organization("who removes whom");
    let members = format!("/organizations/{organization}/members");
    let owner = text_of(&http.get("/user").expect(200)["id"]);
    let admin = Person::in_organization(&http, &organization, "admin", "admin");
    let editor = Person::in_organization(&http, &organization, "editor", "editor");
    let remove = |key: &str, user: &str| http.as_key(key, "DELETE", &format!("{members}/{user}"), None);

    let refused = remove(http.admin(), &owner).expect_error(403, "cannot_remove_self");
    assert_eq!(refused, "you cannot remove yourself");
    remove(&admin.key, &admin.id).expect_error(403, "cannot_remove_self");
    let refused = remove(&admin.key, &owner).expect_error(403, "cannot_remove_owner");
    assert_eq!(refused, "the owner cannot be removed");
    remove(&editor.key, &admin.id).expect_error(403, "role_not_allowed");
    remove(&editor.key, &editor.id).expect_error(403, "role_not_allowed");
    remove(http.admin(), "a%20b").expect_error(400, "invalid_path_parameter");
    remove(http.admin(), "usr_nowhere").expect_error(404, "member_not_found");
    // A key of the organization is nobody's, so it may remove anybody but the owner.
    let key = http.new_token(&format!("/organizations/{organization}/api-keys"), json!({}));
    remove(&key, &owner).expect_error(403, "cannot_remove_owner");
    assert_eq!(remove(&key, &admin.id).status, 204);
    assert_eq!(http.get(&members).expect(200)["members"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_role_acts_at_once() {
    let http = shared();
    let organization = http.new_organization("roles");
    let path = format!("/organizations/{organization}");
    let ada = Person::in_organization(&http, &organization, "ada", "viewer");
    let role = format!("{path}/members/{}/role", ada.id);
    let project = json!({ "name": "p" });
    let make = || http.as_key(&ada.key, "POST", &format!("{path}/projects"), Some(&project));
    make().expect_error(403, "role_not_allowed");
    let answer = http.with("PUT", &role, &json!({ "role": "editor", "more": 1 }));
    assert_eq!((answer.status, answer.bytes.len()), (204, 0));
    make().expect(201);
    assert_eq!(http.with("PUT", &role, &json!({ "role": "editor" })).status, 204);

    for (body, id) in [
        (json!({}), "missing_field"),
        (json!({ "role": null }), "missing_field"),
        (json!({ "role": "owner" }), "invalid_field"),
        (json!({ "role": "Admin" }), "invalid_field"),
        (json!({ "role": 1 }), "invalid_field"),
        (json!([]), "invalid_json"),
    ] {
        http.with("PUT", &role, &body).expect_error(400, id);
    }
    let admin = json!({ "role": "admin" });
    http.as_key(&ada.key, "PUT", &role, Some(&admin)).expect_error(403, "role_not_allowed");
    let owner = text_of(&http.get("/user").expect(200)["id"]);
    let put = |user: &str| http.with("PUT", &format!("{path}/members/{user}/role"), &admin);
    assert_eq!(put(&owner).expect_error(409, "owner_role_fixed"), "the owner keeps the owner role");
    put("usr_nowhere").expect_error(404, "member_not_found");
    put("a%20b").expect_error(400, "invalid_path_parameter");
}

#[test]
fn of_removals_that_meet_one_removes() {
    let http = shared();
    let organization = http.new_organization("racing removals");
    for round in 0..5 {
        let ada = Person::in_organization(&http, &organization, &format!("ada{round}"), "editor");
        let path = format!("/organizations/{organization}/members/{}", ada.id);
        let requests = (0..2).map(|_| http.request("DELETE", &path)).collect();
        let mut statuses: Vec<_> = http.send_together(requests).iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 404]);
    }
}

#[test]
fn giving_members_more_rights_has_a_rate_and_taking_them_away_has_none() {
    let http = shared();
    let organization = http.new_organization("busy");
    let ada = Person::in_organization(&http, &organization, "ada", "viewer");
    in_metastore(
        &http,
        &format!(
            "insert into organization_changes (organization_id, kind, changed_at)
             select '{organization}', 'member', now() - interval '50 minutes' from generate_series(1, 199)"
        ),
    );
    let path = format!("/organizations/{organization}/members/{}", ada.id);
    let put = |role: &str| http.with("PUT", &format!("{path}/role"), &json!({ "role": role }));
    assert_eq!(put("editor").status, 204);
    let refused = put("admin");
    assert_eq!(refused.expect_error(429, "rate_limited"), "too many requests");
    let wait: u32 = refused.header("retry-after").parse().expect("whole seconds");
    assert!((500..=600).contains(&wait), "the first of them is an hour old in ten minutes: {wait}");
    let members = || http.get(&format!("/organizations/{organization}/members")).expect(200);
    assert_eq!(members()["members"][1]["role"], "editor", "what was refused did not happen");
    assert_eq!(put("viewer").status, 204, "nobody waits who takes rights away");
    assert_eq!(put("editor").expect_error(429, "rate_limited"), "too many requests");
    http.delete(&path);
    assert_eq!(members()["members"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_deletion_that_was_asked_for_happens() {
    let http = shared();
    let organization = http.new_organization("unwanted");
    let path = format!("/organizations/{organization}");
    let request = format!("{path}/deletion-request");
    let admin = Person::in_organization(&http, &organization, "admin", "admin");
    let key = http.new_token(&format!("{path}/api-keys"), json!({}));
    let ask = |key: &str| http.as_key(key, "POST", &request, None);
    assert_eq!(ask(&admin.key).expect_error(403, "owner_required"), "only the owner can do this");
    ask(&key).expect_error(403, "user_required");
    let project = http.post(&format!("{path}/projects"), &json!({ "name": "p" })).expect(201);
    let refused = ask(http.admin()).expect_error(409, "org_has_projects");
    assert_eq!(refused, "the organization still has projects");
    assert_eq!(http.get(&path).expect(200)["status"]["status"], "enabled");
    assert_eq!(http.delete(&format!("{path}/projects/{}", text_of(&project["id"]))).status, 204);

    let answer = ask(http.admin());
    assert_eq!((answer.status, answer.bytes.len()), (202, 0));
    http.get(&path).expect_error(403, "organization_access_denied");
    http.as_key(&key, "GET", &path, None).expect_error(401, "invalid_token");
    http.as_key(&admin.key, "GET", &path, None).expect_error(403, "organization_access_denied");
}

/// An organization whose deletion was asked for and not done: the process died
/// in between.
fn asked_for_deletion() -> (Http, String) {
    let mut settings = options();
    settings
        .environment
        .push(("COPPICE_FAILPOINTS".to_owned(), "organization.deletion_requested".to_owned()));
    let mut http = Http::new(Platform::start(PROGRAM, settings));
    let organization = http.new_organization("unwanted");
    let path = format!("/organizations/{organization}/deletion-request");
    let cut = http.platform.client().call("POST", &path, None);
    assert!(cut.is_err(), "the process died: {cut:?}");
    http.platform.wait_end();
    let postgres = postgres_dir().join("17.10").display().to_string();
    http.platform.set_environment(&[("COPPICE_POSTGRES_DIRS", &postgres)]);
    (http, organization)
}

fn admin(http: &Http, arguments: &[&str]) -> String {
    let output = http.platform.run(&[&["admin", "org"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_deletion_that_was_interrupted_is_finished_at_the_next_start() {
    let (mut http, organization) = asked_for_deletion();
    assert!(admin(&http, &["list"]).contains(&format!("{organization}  disabled")));
    http.platform.spawn();
    http.platform.wait_ready();
    let path = format!("/organizations/{organization}");
    let gone = || Some(http.get(&path)).filter(|answer| answer.status == 403);
    coppice_test_support::wait_for("it is deleted", std::time::Duration::from_secs(60), gone);
}

#[test]
fn the_operator_takes_back_a_deletion_that_is_not_done_yet() {
    let (mut http, organization) = asked_for_deletion();
    assert!(admin(&http, &["cancel-deletion", &organization]).contains("not going to be deleted"));
    assert!(admin(&http, &["tier", &organization, "t2"]).contains("has tier t2"));
    let again = http.platform.run(&["admin", "org", "cancel-deletion", &organization]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("nobody asked"));
    let unknown = http.platform.run(&["admin", "org", "tier", "org_nowhere", "t2"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no organization org_nowhere"));
    http.platform.spawn();
    http.platform.wait_ready();
    let status: Value = http.get(&format!("/organizations/{organization}")).expect(200)["status"].clone();
    assert_eq!(
        (&status["status"], &status["usage_tier"], &status["billing_reason"]),
        (&json!("enabled"), &json!("t2"), &json!(""))
    );
}
