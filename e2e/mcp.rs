//! Agents use the platform through the Model Context Protocol.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::setup::platform;

#[test]
fn agents_use_tools_through_the_official_client() {
    let coppice = platform();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/mcp");
    assert!(directory.join("node_modules").exists(), "the client is missing: run `make setup`");
    let output = Command::new("node")
        .arg("run.mjs")
        .current_dir(directory)
        .env("COPPICE_URL", coppice.api())
        .env("COPPICE_API_KEY", coppice.setting("COPPICE_API_KEY"))
        .env("COPPICE_ORGANIZATION", coppice.setting("COPPICE_ORGANIZATION"))
        .stdin(Stdio::null())
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("the tools fit their clients"), "{said}");
}
