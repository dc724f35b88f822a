//! What can be had, and what a disabled organization can't.

use serde_json::{Value, json};

use super::{custom, shared};
use crate::http::{fields, text_of};

/// What is refused while an organization is disabled; everything else is not.
const NEED_ENABLED: [&str; 19] = [
    "createWebhook",
    "createProject",
    "updateProject",
    "createBranch",
    "undeleteBranch",
    "promoteBranch",
    "detachBranch",
    "resetBranch",
    "upgradeBranch",
    "restoreFromBackup",
    "updateBranch",
    "rotateBranchCredentials",
    "queryBranch",
    "diffBranches",
    "executeOnBranch",
    "createGithubAppInstallation",
    "updateGithubAppInstallation",
    "createGithubRepository",
    "updateGithubRepository",
];

#[test]
fn a_disabled_organization_makes_nothing_and_still_reads_and_deletes() {
    let http = shared();
    let id = http.new_organization("closed");
    let path = format!("/organizations/{id}");
    let project = http.post(&format!("{path}/projects"), &json!({ "name": "p" })).expect(201);
    let project = format!("{path}/projects/{}", text_of(&project["id"]));
    let branch = http.post(&format!("{project}/branches"), &custom("b", json!({}))).expect(201);
    let branch = format!("{project}/branches/{}", text_of(&branch["id"]));
    assert!(http.platform.run(&["admin", "org", "disable", &id]).status.success());

    let document = http.get("/openapi.json").expect(200);
    let mut refused = vec![];
    for (template, item) in document["paths"].as_object().expect("paths") {
        if !template.starts_with("/organizations/{organizationID}") {
            continue;
        }
        let at = template.replace("{organizationID}", &id);
        let at = at.split('/').map(|part| if part.starts_with('{') { "nowhere" } else { part });
        let at = at.collect::<Vec<_>>().join("/");
        for (method, operation) in item.as_object().expect("an item") {
            let request = http.request(&method.to_uppercase(), &at);
            // Of what has a body, none is right.
            let answer = match operation.get("requestBody") {
                Some(_) => http.send(request.json(&json!([]))),
                None => http.send(request),
            };
            if answer.refusal() == (403, "organization_disabled".to_owned()) {
                refused.push(text_of(&operation["operationId"]));
            }
        }
    }
    refused.sort_unstable();
    let mut expected = NEED_ENABLED;
    expected.sort_unstable();
    assert_eq!(refused, expected);
    let wake = http.with("PATCH", &branch, &json!({ "hibernate": false }));
    assert_eq!(wake.expect_error(403, "organization_disabled"), format!("organization {id} is disabled"));

    let renamed = http.with("PUT", &path, &json!({ "name": "renamed" })).expect(200);
    assert_eq!(json!([renamed["name"], renamed["status"]["status"]]), json!(["renamed", "disabled"]));
    let key = http.new_key(&format!("{path}/api-keys"), json!({}));
    assert_eq!(http.with("DELETE", &format!("{path}/api-keys"), &json!({ "ids": [key["id"]] })).status, 204);
    http.as_key(&text_of(&key["token"]), "GET", &path, None).expect_error(401, "invalid_token");
    for (what, missing) in [(&branch, "branch_not_found"), (&project, "project_not_found")] {
        http.get(what).expect(200);
        assert_eq!(http.delete(what).status, 204);
        http.get(what).expect_error(404, missing);
    }
    assert_eq!(http.delete(&path).status, 204);
}

#[test]
fn regions_types_and_images_have_exactly_the_documented_fields() {
    let http = shared();
    let get = |what: &str| http.get(&format!("/organizations/{{org}}/{what}"));
    let only = |list: &Value, field: &str, names: &[&str]| {
        let items = list[field].as_array().expect("a list");
        assert!(!items.is_empty(), "{field}");
        items.iter().for_each(|item| assert_eq!(fields(item), names, "{field}"));
    };
    let regions = get("regions").expect(200);
    only(&regions, "regions", &["backupsEnabled", "id", "organizationId", "provider", "publicAccess"]);
    let types = get("instanceTypes").expect(200);
    let names = ["hourlyRate", "name", "ram", "region", "storageMonthlyRate", "vcpus"];
    only(&types, "instanceTypes", &names);
    let rates =
        json!([types["instanceTypes"][0]["hourlyRate"], types["instanceTypes"][0]["storageMonthlyRate"]]);
    assert_eq!(rates, json!([0.0, 0.0]), "without a price list nothing is charged");
    for same in ["instanceTypes?region=local", "instanceTypes?region=", "instanceTypes?x=1"] {
        assert_eq!(get(same).expect(200), types, "{same}");
    }
    let images = get("images?region=local").expect(200);
    only(&images, "images", &["fullVersion", "majorVersion", "name", "region"]);
    for what in ["instanceTypes", "images", "extensions?image=postgres:17&"] {
        let path =
            if what.contains('?') { format!("{what}region=mars") } else { format!("{what}?region=mars") };
        assert_eq!(get(&path).expect_error(400, "invalid_region"), "invalid region mars");
    }
}

#[test]
fn extensions_of_an_image_are_listed_by_name() {
    let http = shared();
    let get = |query: &str| http.get(&format!("/organizations/{{org}}/extensions{query}"));
    let list = get("?image=postgres:17").expect(200);
    let extensions = list["extensions"].as_array().expect("a list");
    for extension in extensions {
        assert_eq!(fields(extension), ["description", "docs", "name", "preloadRequired", "type", "version"]);
    }
    let names: Vec<_> = extensions.iter().map(|extension| text_of(&extension["name"])).collect();
    assert!(names.is_sorted() && names.contains(&"pg_trgm".to_owned()), "{names:?}");
    let of = |name: &str| extensions.iter().find(|extension| extension["name"] == name).expect("listed");
    assert_eq!(
        (&of("pg_trgm")["type"], &of("pg_trgm")["preloadRequired"]),
        (&json!("extension"), &json!(false))
    );
    assert_eq!(of("pg_stat_statements")["preloadRequired"], true);
    assert_eq!(of("auto_explain")["type"], "module");
    assert_eq!(get("").expect_error(400, "missing_parameter"), "query parameter image is required");
    get("?image=").expect_error(400, "missing_parameter");
    for image in ["postgres:9", "postgres", "mysql:8", "postgres:17.999"] {
        let message = get(&format!("?image={image}")).expect_error(400, "invalid_image");
        assert!(message.starts_with(&format!("invalid image {image}: ")), "{message}");
    }
    assert_eq!(get("?image=postgresql:17").expect(200), list);
}
