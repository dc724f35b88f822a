//! What is refused to whom, and as what.

use coppice_test_support::text_of;
use serde_json::json;

use crate::backups::Project;
use crate::{Http, shared};

/// The first user is no more than a viewer of an organization from now on.
fn demote(http: &Http, organization: &str) {
    http.metastore(&format!("update members set role = 'viewer' where organization_id = '{organization}'"));
}

#[test]
fn who_may_look_changes_nothing() {
    let http = shared();
    let organization = http.new_organization("looked at");
    let path = format!("/organizations/{organization}");
    demote(&http, &organization);
    http.get(&path).expect(200);
    http.post(&format!("{path}/projects"), &json!({ "name": "p" })).expect_error(403, "role_not_allowed");
    http.with("PUT", &path, &json!({ "name": "x" })).expect_error(403, "role_not_allowed");
}

#[test]
fn who_may_not_invite_sees_no_link() {
    let http = shared();
    let path = "/organizations/{org}/invitations";
    let made = http.post(path, &json!({ "email": "grace@example.com" })).expect(201);
    assert!(made["invite_link"].is_string());
    let key = http.new_token("/organizations/{org}/api-keys", json!({ "scopes": ["invite:read"] }));
    let one = format!("{path}/{}", text_of(&made["id"]));
    let seen = http.as_key(&key, "GET", &one, None).expect(200);
    assert_eq!(seen["id"], made["id"]);
    assert!(seen["invite_link"].is_null());
}

#[test]
fn an_organization_that_requires_a_second_factor_is_closed_to_who_has_none() {
    let http = shared();
    let organization = http.new_organization("careful");
    let require = "update organizations set requires_second_factor = true";
    http.metastore(&format!("{require} where id = '{organization}'"));
    http.get(&format!("/organizations/{organization}")).expect_error(403, "second_factor_required");
}

#[test]
fn what_is_not_in_the_trash_is_not_found_there() {
    let http = shared();
    let project = Project::make(&http);
    let trashed = project.of(&project.kept).replace("/branches/", "/trash/");
    http.delete(&trashed).expect_error(404, "branch_not_found");
}

#[test]
fn what_would_lie_too_deep_does_not_come_back_from_the_trash() {
    let http = shared();
    let project = Project::make(&http);
    let (kept, top) = (&project.kept, &project.new);
    let below = |n: &str| format!("'d{}' || lpad(({n})::text, 2, '0')", &kept[3..]);
    let (id, parent) = (below("n"), below("n - 1"));
    // It has so many levels below it as there may be, and its former parent is there again.
    http.metastore(&format!(
        "begin;
         insert into branches select (jsonb_populate_record(b, jsonb_build_object('id', {id}, 'name', {id},
             'parent_id', case when n > 1 then {parent} end,
             'former_parent_id', case when n = 1 then b.id end, 'volume_id', {id}))).*
             from branches b, generate_series(1, 49) n where b.id = '{kept}';
         insert into volumes (id, host_id, branch_id, state, account, image_major, image_minor)
             select {id}, host_id, {id}, 'admitted', nextval('volume_accounts'), 17, 0
             from volumes v, generate_series(1, 49) n where v.branch_id = '{kept}';
         update branches set goal = 'trashed', deleted_at = now(), purge_at = now() + interval '1 day',
             former_parent_id = '{top}' where id = '{kept}';
         commit"
    ));
    let back = format!("{}/undelete", project.of(kept).replace("/branches/", "/trash/"));
    http.post(&back, &json!({})).expect_error(400, "branch_depth_exceeded");
}

#[test]
fn the_owner_is_not_removed() {
    let http = shared();
    let owner = text_of(&http.get("/user").expect(200)["id"]);
    let key = http.new_token("/organizations/{org}/api-keys", json!({}));
    let path = format!("/organizations/{{org}}/members/{owner}");
    http.as_key(&key, "DELETE", &path, None).expect_error(403, "cannot_remove_owner");
}

#[test]
fn a_protected_branch_is_not_deleted() {
    let http = shared();
    let project = Project::make(&http);
    http.metastore(&format!("update branches set protected = true where id = '{}'", project.kept));
    http.delete(&project.of(&project.kept)).expect_error(409, "branch_protected");
}

#[test]
fn a_cursor_of_the_audit_log_that_is_made_up_is_invalid() {
    let http = shared();
    http.get("/organizations/{org}/audit-log?cursor=made.up").expect_error(400, "invalid_cursor");
}

#[test]
fn a_key_for_one_branch_is_given_nothing_of_another() {
    let http = shared();
    let project = Project::make(&http);
    let key = http.new_token("/organizations/{org}/api-keys", json!({ "branches": [project.kept] }));
    let (branch, other) = (project.of(&project.kept), &project.new);
    let reset = json!({ "from": { "branchID": other } });
    let refused = http.as_key(&key, "POST", &format!("{branch}/reset"), Some(&reset));
    refused.expect_error(403, "branch_access_denied");
    let refused = http.as_key(&key, "GET", &format!("{branch}/diff?against={other}"), None);
    refused.expect_error(403, "branch_access_denied");
}

#[test]
fn a_project_with_a_protected_branch_is_not_deleted() {
    let http = shared();
    let project = Project::make(&http);
    http.metastore(&format!("update branches set protected = true where id = '{}'", project.kept));
    let path = format!("/organizations/{{org}}/projects/{}", project.id);
    http.delete(&path).expect_error(409, "branch_protected");
}

#[test]
fn who_may_look_at_a_branch_is_told_no_password_of_it() {
    let http = shared();
    let project = Project::make(&http);
    let key = http.new_token("/organizations/{org}/api-keys", json!({ "scopes": ["branch:read"] }));
    let branch = project.of(&project.kept);
    http.as_key(&key, "GET", &branch, None).expect(200);
    let refused = http.as_key(&key, "GET", &format!("{branch}/credentials"), None);
    refused.expect_error(403, "insufficient_scope");
}
