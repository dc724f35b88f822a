//! Stripe as the operator set it up.

use reqwest::Url;
use zeroize::Zeroizing;

/// Stripe as the operator set it up.
#[derive(Clone)]
pub struct StripeConfig {
    /// What proves to Stripe who we are.
    pub secret_key: Zeroizing<String>,
    /// What deliveries are signed with; several while one is being replaced.
    pub webhook_secrets: Vec<Zeroizing<String>>,
    /// Where it is asked.
    pub api: Url,
    /// Whether a new organization has to have a card on file before it may run
    /// anything, and one that loses it is disabled.
    pub is_required: bool,
}

impl std::fmt::Debug for StripeConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StripeConfig")
            .field("api", &self.api.as_str())
            .field("is_required", &self.is_required)
            .finish_non_exhaustive()
    }
}
