//! The GitHub App: pull requests of a mapped repository get branches.
//!
//! **Owns** who may link what, what is asked of GitHub, and what becomes of it.
//! **Must not know** how requests reach us, or how an answer of the API looks.
//! **Start reading** at `look.rs`, which is what happens to a pull request.
//!
//! GitHub sends deliveries once, in no order, and not at all while we are away.
//! So a delivery only marks a row (`deliveries.rs`); what is done follows from
//! what GitHub answers when it is asked how things are now. Asking every hour
//! which pull requests are open (`compare.rs`) marks the same rows, and what failed
//! is asked for again (`redelivery.rs`).

mod api;
mod compare;
mod config;
mod deliveries;
mod deployment;
mod jobs;
mod links;
mod look;
mod mappings;
mod redelivery;
mod token;
mod words;

use api::GithubApi;
pub use config::{AppKey, GithubConfig};
pub use deliveries::GithubDelivery;
pub use jobs::JobKey;
pub use links::LinkRequest;
pub use mappings::MappingRequest;
pub(crate) use redelivery::Redelivery;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use coppice_core::{Error, ErrorCode, Result};
use coppice_store::Store;

use crate::AppConfig;
use crate::attempts::Attempts;
use crate::audit::Audit;
use crate::branches::Branches;
use crate::secrets::MasterKey;

/// Pull requests with branches of their own.
#[derive(Clone)]
pub struct Github {
    store: Store,
    key: Arc<MasterKey>,
    attempts: Attempts,
    audit: Audit,
    branches: Branches,
    /// Who is asked, if there is a GitHub App.
    api: Option<Arc<GithubApi>>,
    /// See [`crate::AppConfig::public_url`].
    public_url: String,
    /// Most keys that jobs of an organization may hold.
    job_keys_max: u32,
    /// Whether everything is there that clients may expect.
    is_set_up: Arc<AtomicBool>,
}

impl Github {
    pub(crate) fn new(
        (store, key): (Store, Arc<MasterKey>),
        (audit, branches): (Audit, Branches),
        is_set_up: Arc<AtomicBool>,
        config: &AppConfig,
    ) -> Self {
        let attempts = Attempts::new(store.clone(), key.clone());
        let api = |config| Arc::new(GithubApi::new(config, store.clone(), attempts.clone()));
        let api = config.github.clone().map(api);
        let (public_url, job_keys_max) = (config.public_url.clone(), config.limits.api_keys_max);
        Self { store, key, attempts, audit, branches, api, public_url, job_keys_max, is_set_up }
    }

    /// What GitHub is asked by.
    ///
    /// # Errors
    /// `github_not_configured`
    fn api(&self) -> Result<&GithubApi> {
        self.api.as_deref().ok_or_else(|| {
            Error::invalid(
                ErrorCode::GithubNotConfigured,
                "this platform has no GitHub App: its operator can set one up",
            )
        })
    }

    /// Whether this platform has a GitHub App.
    pub fn is_there(&self) -> bool {
        self.api.is_some()
    }

    /// Where people install this platform's GitHub App.
    ///
    /// # Errors
    /// `github_not_configured`; `service_unavailable` while GitHub does not say it.
    pub async fn install_page(&self) -> Result<String> {
        Ok(self.api()?.install_page().await?)
    }
}
