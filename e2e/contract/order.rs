//! Of several things that are wrong, the first in the documented order is told.

use serde_json::json;

use super::shared;

#[test]
fn the_first_failure_in_the_documented_order_is_told() {
    let http = shared();
    let project = http.new_project("order");
    let id = project.rsplit('/').next().expect("an id");
    let key = |more: serde_json::Value| http.new_token("/api-keys", more);
    let reader = key(json!({ "scopes": ["project:read"], "projects": ["prj_other"] }));
    let limited = key(json!({ "projects": ["prj_other"] }));
    let organization = http.new_token("/organizations/{org}/api-keys", json!({ "scopes": ["org:read"] }));
    let writer = http.new_token("/organizations/{org}/api-keys", json!({ "scopes": ["org:write"] }));
    let admin = http.admin().to_owned();
    let nowhere = "/organizations/org_nowhere";
    let here = "/organizations/{org}";
    let path = |organization: &str, project: &str| format!("{organization}/projects/{project}");
    for (key, method, path, status, failure) in [
        // Route and method come before the credential.
        ("nonsense", "GET", "/nowhere".to_owned(), 404, "route_not_found"),
        ("nonsense", "PUT", path(here, "a.b"), 405, "method_not_allowed"),
        // The credential before the path.
        ("nonsense", "GET", path("/organizations/%20", "a.b"), 401, "invalid_token"),
        // The path before the scope.
        (&reader, "PATCH", path(here, "a.b"), 400, "invalid_path_parameter"),
        // The scope before a person, a member and the limits of a key.
        (&organization, "DELETE", nowhere.to_owned(), 403, "insufficient_scope"),
        (&reader, "PATCH", path(nowhere, id), 403, "insufficient_scope"),
        (&reader, "PATCH", path(here, id), 403, "insufficient_scope"),
        // A person before a member.
        (&writer, "DELETE", nowhere.to_owned(), 403, "user_required"),
        // A member before the limits of a key.
        (&limited, "PATCH", path(nowhere, id), 403, "organization_access_denied"),
        // The limits before the body and what exists.
        (&limited, "PATCH", path(here, id), 403, "project_access_denied"),
        (&limited, "PATCH", path(here, "prj_unknown"), 403, "project_access_denied"),
        (&limited, "POST", format!("{here}/projects"), 403, "restricted_key"),
        // The media type before its size, its JSON and what exists.
        (&admin, "PATCH", path(here, "prj_unknown"), 415, "unsupported_media_type"),
    ] {
        let request = http.anonymous(method, &path).bearer_auth(key);
        let answer = http.send(request.header("content-type", "text/plain").body("x".repeat(2 << 20)));
        assert_eq!(answer.refusal(), (status, failure.to_owned()), "{method} {path}: {}", answer.text());
    }
    let unknown = path(here, "prj_unknown");
    let send = |body: String| http.send(http.request("PATCH", &unknown).body(body));
    send("x".repeat(2 << 20)).expect_error(413, "body_too_large");
    send("x".to_owned()).expect_error(400, "invalid_json");
    send(r#"{"name": ""}"#.to_owned()).expect_error(400, "invalid_field");
    send("{}".to_owned()).expect_error(404, "project_not_found");
    // What exists before rules that need it.
    let branches = format!("{unknown}/branches");
    http.post(&branches, &super::custom("x", json!({ "image": "postgres:1" })))
        .expect_error(404, "project_not_found");
}
