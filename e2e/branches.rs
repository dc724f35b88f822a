//! What stories do with branches through the API.

use std::path::PathBuf;
use std::time::Duration;

use coppice_test_support::{Platform, wait_for};
use serde_json::{Value, json};

/// How long a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The API's path of a branch of the only project.
pub(crate) fn path(coppice: &Platform, branch: &str) -> String {
    coppice.branch_path(branch).expect("the branch of the only project")
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

pub(crate) fn wait_for_status(coppice: &Platform, path: &str, wanted: &str) {
    wait_for(wanted, PATIENCE, || (status(coppice, path) == wanted).then_some(()));
}

/// Puts a branch to sleep.
pub(crate) fn hibernate(coppice: &Platform, path: &str) {
    change(coppice, path, &json!({ "hibernate": true }));
    wait_for_status(coppice, path, "STATUS_TYPE_HIBERNATED");
}

/// The data directory of a branch on the host.
pub(crate) fn data_of(coppice: &Platform, branch: &str) -> PathBuf {
    let id = coppice.branch_id(branch);
    let volumes = std::fs::read_dir(coppice.data_dir().join("pool/volumes")).expect("volumes");
    let mut volumes = volumes.map(|entry| entry.expect("an entry").path());
    let is_of_branch = |volume: &PathBuf| {
        let label = std::fs::read(volume.join("label.json")).expect("a label");
        let label: Value = serde_json::from_slice(&label).expect("JSON");
        label["branch"] == *id
    };
    volumes.find(is_of_branch).expect("the branch's volume").join("data")
}
