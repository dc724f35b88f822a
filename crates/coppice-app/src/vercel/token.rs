//! Who calls: tokens that Vercel signs for us.

use coppice_core::{Result, VercelInstallationId};
use jsonwebtoken::{DecodingKey, Header};
use reqwest::Client;
use serde::Deserialize;
use tokio::sync::OnceCell;

use super::{VercelCaller, VercelConfig, refused};
use crate::cached::Cached;
use crate::outside::error::OutsideError;
use crate::outside::http;
use crate::outside::keys::{self, Keys};

/// Longest token that is looked at, in bytes.
const TOKEN_MAX: usize = 8192;
/// Longest name of an account or a person at Vercel.
const NAME_MAX: usize = 128;

/// Our integration, and Vercel's keys.
#[derive(Debug)]
pub(crate) struct VercelApi {
    pub(super) config: VercelConfig,
    client: OnceCell<Client>,
    keys: Cached<Keys>,
}

/// What a token says.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    /// None before there is an installation.
    account_id: Option<String>,
    pub(super) installation_id: Option<String>,
    user_id: Option<String>,
    pub(super) user_role: Option<String>,
    user_name: Option<String>,
    user_email: Option<String>,
}

impl VercelApi {
    /// Vercel is not asked before somebody calls.
    pub(crate) fn new(config: VercelConfig) -> Self {
        Self { config, client: OnceCell::new(), keys: Cached::default() }
    }

    /// What a token says, after all checks.
    ///
    /// # Errors
    /// `invalid_token`; `unavailable` while the keys can't be had.
    pub(super) async fn claims(&self, token: &str) -> Result<Claims> {
        if token.len() > TOKEN_MAX {
            return Err(refused("the token is too long to be one of Vercel's"));
        }
        let header = keys::header_of(token).map_err(|_| refused("the token is none of Vercel's"))?;
        let away =
            |error: OutsideError| coppice_core::Error::unavailable(format!("the keys of Vercel: {error}"));
        let client = self.client.get_or_try_init(async || http::client()).await.map_err(away)?;
        let has_key = |keys: &Keys| keys.find(&header).is_some();
        // A key that is not known may be a new one.
        let place = self.config.keys.clone();
        let keys = self.keys.get(has_key, || keys::fetch(client, place)).await.map_err(away)?;
        let key = keys.find(&header).ok_or_else(|| refused("the token was not signed by Vercel"))?;
        verify(token, &header, &key, &self.config)
    }
}

/// The claims of a token that `key` signed, if it is from Vercel, for us, and for now.
fn verify(token: &str, header: &Header, key: &DecodingKey, config: &VercelConfig) -> Result<Claims> {
    let by_for = (config.issuer.as_str(), config.client_id.as_str());
    keys::claims_of(token, header, key, by_for, &["iss", "sub", "aud", "exp"]).map_err(|error| {
        tracing::debug!("a token for the integration on Vercel is refused: {error}");
        refused("the token is not from Vercel, not for this platform, or not valid now")
    })
}

impl Claims {
    /// What the person is shown as: what they call themselves, else their address, which is not known to be theirs.
    pub(super) fn shown_name(&self) -> String {
        self.user_name.as_ref().or(self.user_email.as_ref()).cloned().unwrap_or_default()
    }

    /// Who that is, to an installation.
    ///
    /// # Errors
    /// `invalid_token` when the token is for another one.
    pub(super) fn caller_for(self, installation: VercelInstallationId) -> Result<VercelCaller> {
        if self.installation_id.as_deref() != Some(installation.as_str()) {
            return Err(refused("the token is for another installation"));
        }
        let is_name = |text: &str| {
            (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let nobody = || refused("the token names nobody who could have an account at Vercel");
        let account = self.account_id.filter(|account| is_name(account)).ok_or_else(nobody)?;
        if !self.user_id.as_deref().is_none_or(is_name) {
            return Err(nobody());
        }
        // Without a person it is Vercel itself that asks.
        let may_write = match (&self.user_role, &self.user_id) {
            (None, None) => true,
            (role, _) => role.as_deref() == Some("ADMIN"),
        };
        Ok(VercelCaller { installation, account, user: self.user_id, may_write })
    }
}

#[cfg(test)]
mod tests;
