//! Organizations, the caller's account and quotas.

use coppice_test_support::{fields, text_of};
use serde_json::{Value, json};

use crate::http::EMAIL;
use crate::{is_timestamp, shared};

const STATUS: [&str; 8] = [
    "admin_reason",
    "billing_reason",
    "billing_status",
    "created_at",
    "disabled_by_admin",
    "last_updated",
    "status",
    "usage_tier",
];

fn is_organization(organization: &Value, name: &str) {
    assert_eq!(fields(organization), ["id", "name", "status"]);
    assert_eq!(organization["name"], name);
    let status = &organization["status"];
    assert_eq!(fields(status), STATUS);
    let expected = json!({
        "status": "enabled", "disabled_by_admin": false, "billing_status": "ok", "usage_tier": "t1",
        "admin_reason": "", "billing_reason": "",
    });
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(&status[field], value, "{field}");
    }
    is_timestamp(&status["last_updated"]);
    is_timestamp(&status["created_at"]);
}

#[test]
fn an_organization_has_exactly_the_documented_fields() {
    let http = shared();
    let body = json!({ "name": " acme ", "marketplace": "aws", "status": { "status": "disabled" } });
    let made = http.post("/organizations", &body).expect(201);
    is_organization(&made, "acme");
    let id = text_of(&made["id"]);
    assert!(id.starts_with("org_") && id.len() == 30, "{id}");
    let path = format!("/organizations/{id}");
    let mut details = made.clone();
    details["requires_second_factor"] = json!(false);
    assert_eq!(http.get(&path).expect(200), details);
    let list = http.get("/organizations").expect(200);
    assert_eq!(fields(&list), ["organizations"]);
    let listed = list["organizations"].as_array().expect("a list");
    assert!(listed.contains(&made));
    assert_eq!(listed[0]["id"], http.organization(), "the oldest first");

    for unchanged in [json!({}), json!({ "id": id }), json!({ "name": null, "id": null }), json!({ "x": 1 })]
    {
        assert_eq!(http.with("PUT", &path, &unchanged).expect(200), details, "{unchanged}");
    }
    let renamed = http.with("PUT", &path, &json!({ "id": id, "name": " new " })).expect(200);
    details["name"] = json!("new");
    assert_eq!(renamed, details);
    let not_a_flag = json!({ "requires_second_factor": "yes" });
    http.with("PUT", &path, &not_a_flag).expect_error(400, "invalid_field");
    http.with("PUT", &path, &json!({ "id": "org_other", "name": "x" })).expect_error(400, "invalid_field");
    http.with("PUT", &path, &json!({ "name": " " })).expect_error(400, "invalid_field");
    assert_eq!(http.get(&path).expect(200), renamed);
}

#[test]
fn names_of_organizations_are_bounded_and_may_repeat() {
    let http = shared();
    let make = |body: Value| http.post("/organizations", &body);
    make(json!({})).expect_error(400, "missing_field");
    make(json!({ "name": format!("\t{}\n", "x".repeat(128)) })).expect(201);
    make(json!({ "name": "x".repeat(129) })).expect_error(400, "invalid_field");
    make(json!({ "name": "\u{a0}" })).expect_error(400, "invalid_field");
    let twins: Vec<_> = (0..2).map(|_| text_of(&make(json!({ "name": "twin" })).expect(201)["id"])).collect();
    assert_ne!(twins[0], twins[1]);
}

#[test]
fn a_deleted_organization_is_closed_to_everybody() {
    let http = shared();
    let id = http.new_organization("short-lived");
    let path = format!("/organizations/{id}");
    let key = http.new_token(&format!("{path}/api-keys"), json!({}));
    let project = http.post(&format!("{path}/projects"), &json!({ "name": "p" })).expect(201);
    http.as_key(&key, "DELETE", &path, None).expect_error(403, "user_required");
    assert_eq!(
        http.delete(&path).expect_error(409, "org_has_projects"),
        "the organization still has projects"
    );
    let project = format!("{path}/projects/{}", text_of(&project["id"]));
    assert_eq!(http.delete(&project).status, 204);
    let answer = http.delete(&path);
    assert_eq!((answer.status, answer.bytes.len()), (204, 0));
    http.as_key(&key, "GET", &path, None).expect_error(401, "invalid_token");
    for (method, path) in [("GET", &path), ("DELETE", &path), ("GET", &project)] {
        http.call(method, path).expect_error(403, "organization_access_denied");
    }
    let regions = http.get(&format!("{path}/regions"));
    regions.expect_error(401, "organization_access_denied");
    let list = http.get("/organizations").expect(200);
    assert!(!list["organizations"].as_array().expect("a list").iter().any(|other| other["id"] == json!(id)));
}

#[test]
fn the_caller_has_an_account_and_may_rename_it() {
    let http = shared();
    let user = http.get("/user").expect(200);
    assert_eq!(fields(&user), ["created_at", "email", "id", "name"]);
    assert_eq!(user["email"], EMAIL);
    is_timestamp(&user["created_at"]);
    let rename = |body: Value| http.with("PATCH", "/user", &body);
    assert_eq!(rename(json!({ "name": " Ada " })).expect(200)["name"], "Ada");
    assert_eq!(rename(json!({ "name": null })).expect(200)["name"], "Ada");
    assert_eq!(rename(json!({})).expect(200)["name"], "Ada");
    assert_eq!(rename(json!({ "name": "x".repeat(128) })).status, 200);
    rename(json!({ "name": "x".repeat(129) })).expect_error(400, "invalid_field");
    assert_eq!(rename(json!({ "name": "" })).expect(200)["name"], "");
    assert_eq!(http.get("/user").expect(200), user);
}

#[test]
fn quotas_are_told_as_documented() {
    let http = shared();
    let project = http.new_project("quotas");
    let effective = json!({
        "maxDescriptionLength": 50, "maxBranchesPerProject": 100, "maxInstancesPerBranch": 5,
        "minInstancesPerBranch": 1, "maxAllowedInstanceType": 32000, "maxBranchesPerHour": 200,
        "maxStorageGBPerBranch": 250,
    });
    assert_eq!(http.get(&format!("{project}/limits")).expect(200), effective);
    let mut organization = effective.clone();
    organization["maxProjects"] = json!(100);
    organization["maxProjectsPerHour"] = json!(200);
    organization["maxBranchesPerOrg"] = json!(500);
    assert_eq!(http.get("/organizations/{org}/limits").expect(200), organization);
    let defaults =
        json!({ "maxInstances": 5, "minInstances": 1, "maxDescriptionLength": 50, "maxBranches": 100 });
    assert_eq!(http.get("/organizations/{org}/projects/limits").expect(200), defaults);
    let members = json!({ "maxMembers": 100, "maxInvites": 50 });
    assert_eq!(http.get("/organizations/{org}/membership-limits").expect(200), members);
    http.get("/organizations/{org}/projects/prj_x/limits").expect_error(404, "project_not_found");
}
