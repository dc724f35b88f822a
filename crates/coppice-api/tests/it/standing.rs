//! How organizations stand that somebody is paid for.

use std::time::Duration;

use coppice_test_support::wait_for;
use serde_json::{Value, json};

use crate::Http;

const PATIENCE: Duration = Duration::from_secs(120);

impl Http {
    /// Whether an organization is enabled, why not, and its tier.
    pub(crate) fn standing(&self, organization: &str) -> Value {
        let status = self.get(&format!("/organizations/{organization}")).expect(200)["status"].take();
        json!([status["status"], status["billing_status"], status["usage_tier"]])
    }

    pub(crate) fn wait_standing(&self, organization: &str, expected: &Value) {
        wait_for(&format!("{organization} is {expected}"), PATIENCE, || {
            (self.standing(organization) == *expected).then_some(())
        });
    }
}
