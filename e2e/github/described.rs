//! What is asked of GitHub is what GitHub describes, and GitHub's own library gets along with the same settings.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Github;

/// What GitHub says of its API, as `make setup` fetches it.
pub(super) fn description() -> PathBuf {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/github/description.json");
    assert!(place.exists(), "{} is missing: run `make setup`", place.display());
    place
}

/// Every operation of the description was asked for, nothing else was, and nothing in another way.
pub(super) fn all_was_asked_as_github_describes_it(github: &mut Github) {
    let checked = github.program.command(&json!({ "command": "checked" }));
    assert_eq!(checked["mismatches"], json!([]));
    let operations = checked["operations"].as_object().expect("operations");
    let unasked: Vec<_> = operations.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name).collect();
    assert!(operations.len() >= 18 && unasked.is_empty(), "{unasked:?} were not asked for");
}

/// GitHub's library signs in with the App's id and key, finds what the App has told, and finds every delivery signed.
pub(super) fn the_library_of_github_sees_what_the_app_told(github: &mut Github, pull: i64) {
    let commit = github.commit(pull);
    let seen = github.program.command(&json!({ "command": "library", "pull": pull, "commit": commit }));
    assert_eq!(seen["app"], json!([4242, "coppice"]), "{seen}");
    assert_eq!(json!([seen["installations"], seen["unverified"]]), json!([[100], 0]), "{seen}");
    assert_eq!(seen["checks"], json!([["Coppice", "success"]]), "{seen}");
    let all = seen["comments"].as_array().expect("comments");
    assert_eq!(all, &[Value::from("coppice[bot]")], "{seen}");
}
