//! Agents use the platform through the Model Context Protocol.

use crate::node;
use crate::setup::platform;

#[test]
fn agents_use_tools_through_the_official_client() {
    let coppice = platform();
    let environment = [
        ("COPPICE_URL", coppice.api()),
        ("COPPICE_API_KEY", coppice.setting("COPPICE_API_KEY")),
        ("COPPICE_ORGANIZATION", coppice.setting("COPPICE_ORGANIZATION")),
    ];
    let said = node::run("mcp", &environment);
    assert!(said.contains("the tools fit their clients"), "{said}");
}
