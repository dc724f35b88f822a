//! Programs of others that run in Node.

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `run.mjs` of a directory of stories; `environment` says where and as whom.
/// Returns what it says at its end.
#[track_caller]
pub(crate) fn run(stories: &str, environment: &[(&str, &str)]) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e").join(stories);
    let packages = directory.join("node_modules");
    assert!(packages.exists(), "{} is missing: run `make setup`", packages.display());
    let output = Command::new("node")
        .arg("run.mjs")
        .current_dir(directory)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}
