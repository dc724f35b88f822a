//! The published client of this API works with this server as it is.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::setup::platform;

#[test]
fn the_published_client_understands_every_answer() {
    let coppice = platform();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/sdk");
    assert!(directory.join("node_modules").exists(), "the client is missing: run `make setup`");
    let output = Command::new("node")
        .arg("run.mjs")
        .current_dir(directory)
        .env("COPPICE_URL", coppice.api())
        .env("COPPICE_API_KEY", coppice.setting("COPPICE_API_KEY"))
        .stdin(Stdio::null())
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("operations fit the client"), "{said}");
}
