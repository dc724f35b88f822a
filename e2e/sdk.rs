//! The published client of this API works with this server as it is.

use crate::node;
use crate::setup::platform;

#[test]
fn the_published_client_understands_every_answer() {
    let coppice = platform();
    let environment =
        [("COPPICE_URL", coppice.api()), ("COPPICE_API_KEY", coppice.setting("COPPICE_API_KEY"))];
    let said = node::run("sdk", &environment);
    assert!(said.contains("operations fit the client"), "{said}");
}
