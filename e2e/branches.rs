//! What stories do with branches through the API.

use coppice_test_support::Platform;
use serde_json::Value;

/// The API's path of a branch of the only project.
pub(crate) fn path(coppice: &Platform, branch: &str) -> String {
    let project = coppice.cli(&["project", "list"])["projects"][0]["id"].as_str().expect("an id").to_owned();
    format!("/organizations/{{org}}/projects/{project}/branches/{}", coppice.branch_id(branch))
}

pub(crate) fn change(coppice: &Platform, path: &str, body: &Value) {
    let (status, answer) = coppice.call("PATCH", path, Some(body));
    assert_eq!(status, 200, "{answer}");
}

pub(crate) fn describe(coppice: &Platform, path: &str) -> Value {
    let (status, answer) = coppice.call("GET", path, None);
    assert_eq!(status, 200, "{answer}");
    answer
}

pub(crate) fn status(coppice: &Platform, path: &str) -> String {
    describe(coppice, path)["status"]["statusType"].as_str().expect("a status").to_owned()
}
