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

pub(crate) use api::Github;
pub use config::{AppKey, GithubConfig};
pub use deliveries::GithubDelivery;
pub use jobs::JobKey;
pub use links::LinkRequest;
pub use mappings::MappingRequest;
pub(crate) use redelivery::Redelivery;

use coppice_core::{Error, ErrorCode, Result};

use crate::App;

impl App {
    /// What GitHub is asked by.
    ///
    /// # Errors
    /// `github_not_configured`
    fn github(&self) -> Result<&Github> {
        self.github.as_deref().ok_or_else(|| {
            Error::invalid(
                ErrorCode::GithubNotConfigured,
                "this platform has no GitHub App: its operator can set one up",
            )
        })
    }

    /// Whether this platform has a GitHub App.
    pub fn has_github(&self) -> bool {
        self.github.is_some()
    }

    /// Where people install this platform's GitHub App.
    ///
    /// # Errors
    /// `github_not_configured`; `service_unavailable` while GitHub does not say it.
    pub async fn github_install_page(&self) -> Result<String> {
        Ok(self.github()?.install_page().await?)
    }
}
