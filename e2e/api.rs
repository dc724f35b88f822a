//! The API's answers, errors and order of checks.

use serde_json::json;

use crate::setup::platform;

#[test]
fn requests_are_checked_in_the_documented_order() {
    let coppice = platform();
    let projects = "/organizations/{org}/projects";
    let code = |key: Option<&str>, method: &str, path: &str, body: Option<&serde_json::Value>| {
        let (status, body) = coppice.call_as(key, method, path, body);
        (status, body["id"].as_str().unwrap_or_default().to_owned())
    };
    let key = coppice.setting("COPPICE_API_KEY").to_owned();
    let key = Some(key.as_str());
    let expect = |got: (u16, String), status: u16, id: &str| assert_eq!(got, (status, id.to_owned()));

    expect(code(key, "GET", "/nowhere", None), 404, "route_not_found");
    expect(code(key, "PUT", projects, None), 405, "method_not_allowed");
    expect(code(None, "GET", projects, None), 401, "missing_token");
    expect(code(Some("pku_nonsense"), "GET", projects, None), 401, "invalid_token");
    expect(code(key, "GET", "/organizations/a%20b/projects", None), 400, "invalid_path_parameter");
    expect(code(key, "GET", "/organizations/org_unknown/projects", None), 403, "organization_access_denied");
    expect(code(key, "GET", &format!("{projects}/prj_unknown"), None), 404, "project_not_found");
    expect(code(key, "POST", projects, Some(&json!([]))), 400, "invalid_json");
    expect(code(key, "POST", projects, Some(&json!({}))), 400, "missing_field");
    expect(code(key, "POST", projects, Some(&json!({ "name": " " }))), 400, "invalid_field");
    let bad_range =
        json!({ "name": "x", "configuration": { "ipFiltering": { "cidr": [{ "cidr": "nonsense" }] } } });
    expect(code(key, "POST", projects, Some(&bad_range)), 400, "invalid_cidr");
    expect(code(key, "GET", &format!("{projects}/"), None), 200, "");
}

#[test]
fn projects_and_branches_come_and_go() {
    let coppice = platform();
    let (status, project) =
        coppice.call("POST", "/organizations/{org}/projects", Some(&json!({ "name": " shop " })));
    assert_eq!((status, &project["name"]), (201, &json!("shop")));
    assert_eq!(
        project["configuration"],
        json!({
            "scaleToZero": {
                "baseBranches": { "enabled": false, "inactivityPeriodMinutes": 30 },
                "childBranches": { "enabled": false, "inactivityPeriodMinutes": 30 },
            },
            "ipFiltering": { "enabled": false, "cidr": [] },
        })
    );
    let path = format!("/organizations/{{org}}/projects/{}", project["id"].as_str().expect("an id"));
    let branches = format!("{path}/branches");
    assert_eq!(coppice.call("GET", &branches, None), (200, json!({ "branches": [] })));

    let custom = |name: &str, image: &str| {
        let configuration = json!({ "region": "local", "instanceType": "micro", "image": image });
        json!({ "name": name, "mode": "custom", "configuration": configuration })
    };
    let id_of = |answer: &(u16, serde_json::Value)| answer.1["id"].as_str().unwrap_or_default().to_owned();
    let refused = coppice.call("POST", &branches, Some(&custom("a", "postgres:9")));
    assert_eq!((refused.0, id_of(&refused).as_str()), (400, "invalid_image"));
    let (status, parent) = coppice.call("POST", &branches, Some(&custom("a", "postgres:17")));
    assert_eq!(status, 201, "{parent}");
    let taken = coppice.call("POST", &branches, Some(&custom("a", "postgres:17")));
    assert_eq!((taken.0, id_of(&taken).as_str()), (409, "branch_name_taken"));

    let parent_id = parent["id"].as_str().expect("an id");
    let child = json!({ "name": "b", "mode": "inherit", "parentID": parent_id });
    let (status, child) = coppice.call("POST", &branches, Some(&child));
    assert_eq!((status, &child["parentID"]), (201, &json!(parent_id)));
    let child_path = format!("{branches}/{}", child["id"].as_str().expect("an id"));
    let (_, full) = coppice.call("GET", &child_path, None);
    assert_eq!(full["status"]["statusType"], "STATUS_TYPE_HEALTHY");
    assert_eq!(full["configuration"]["instanceType"], "micro");
    let wrong_user = coppice.call("GET", &format!("{child_path}/credentials?username=root"), None);
    assert_eq!((wrong_user.0, id_of(&wrong_user).as_str()), (400, "invalid_username"));

    assert_eq!(coppice.call("DELETE", &format!("{branches}/{parent_id}"), None).0, 204);
    assert_eq!(coppice.call("DELETE", &format!("{branches}/{parent_id}"), None).0, 404);
    let (_, orphan) = coppice.call("GET", &child_path, None);
    assert_eq!(orphan["parentID"], json!(null), "children stay");
    assert_eq!(coppice.call("DELETE", &path, None).0, 204);
    assert_eq!(coppice.call("GET", &child_path, None).0, 404);
}

#[test]
fn what_can_be_had_is_listed() {
    let coppice = platform();
    let get = |what: &str| coppice.call("GET", &format!("/organizations/{{org}}/{what}"), None);
    let (status, regions) = get("regions");
    assert_eq!(status, 200);
    // Whether anything is kept is up to the machine.
    let backups_enabled = regions["regions"][0]["backupsEnabled"].as_bool();
    assert_eq!(
        regions["regions"],
        json!([{
            "id": "local", "publicAccess": false, "backupsEnabled": backups_enabled, "provider": "custom",
            "organizationId": null,
        }])
    );
    assert!(backups_enabled.is_some(), "{regions}");
    assert_eq!(get("instanceTypes?region=local").1["instanceTypes"][0]["name"], "micro");
    assert_eq!(get("instanceTypes?region=mars").1["id"], "invalid_region");
    assert_eq!(get("images").1["images"][0]["name"], "postgres:17.10");
}
