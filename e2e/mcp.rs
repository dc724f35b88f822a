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
    // Who runs the platform sees who came, and what for.
    let log = coppice.log();
    let of_agents = |line: &&str| line.contains(" route=/mcp ");
    let known = log.lines().filter(of_agents).filter(|line| line.contains(r#"caller="user""#)).count();
    // Whose message is let in is known.
    let mut others = log.lines().filter(of_agents).filter(|line| line.contains(r#"caller="none""#));
    let is_refused = |line: &str| line.contains(" status=401 ") || line.contains(" status=403 ");
    assert!(known > 0 && others.all(is_refused), "{log}");
    assert!(!log.contains("route=unknown"), "{log}");
}
