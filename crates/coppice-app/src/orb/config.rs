//! Orb as the operator set it up.

use std::time::Duration;

use reqwest::Url;
use zeroize::Zeroizing;

/// Orb as the operator set it up.
#[derive(Clone)]
pub struct OrbConfig {
    /// What proves to Orb who we are.
    pub api_key: Zeroizing<String>,
    /// What deliveries are signed with; several while one is being replaced.
    pub webhook_secrets: Vec<Zeroizing<String>>,
    /// Where it is asked.
    pub api: Url,
    /// The plan of organizations that have none, by the name that the operator gave it there.
    pub plan: String,
    /// How long after it was used Orb takes usage; what is older comes in a backfill.
    pub grace: Duration,
}

impl std::fmt::Debug for OrbConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrbConfig")
            .field("api", &self.api.as_str())
            .field("plan", &self.plan)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}
