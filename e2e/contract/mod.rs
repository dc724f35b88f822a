//! The API as its documentation says, from outside: every answer's fields,
//! every bound, every rule that a client may rely on.

mod branches;
mod invitations;
mod keys;
mod labels;
mod logs;
mod members;
mod metrics;
mod order;
mod organizations;
mod outage;
mod parents;
mod races;
mod removal;
mod repetition;
mod resends;
mod transport;
mod trash;
mod unanswered;

use std::sync::Arc;

use coppice_test_support::is_timestamp;
use serde_json::{Value, json};

use crate::http::{Http, Shared};
use crate::setup::platform;

static SHARED: Shared = Shared::new();

fn shared() -> Arc<Http> {
    SHARED.get(platform)
}

/// Body of createBranch for an empty database with more in its configuration.
fn custom(name: &str, more: Value) -> Value {
    let mut configuration = json!({ "region": "local", "instanceType": "micro", "image": "postgres:17" });
    for (field, value) in more.as_object().expect("an object") {
        configuration[field] = value.clone();
    }
    json!({ "name": name, "mode": "custom", "configuration": configuration })
}
