//! Our integration on Vercel: flags, variables, or the table `vercel` of the file.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use coppice_app::VercelConfig;
use reqwest::Url;
use serde::Deserialize;

use super::sign_in::read_secret;

const ISSUER: &str = "https://marketplace.vercel.com";
const API: &str = "https://api.vercel.com";
const KEYS: &str = "https://marketplace.vercel.com/.well-known/jwks";

/// Settings as they can be written in each place.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct VercelArgs {
    /// The client id of an integration of yours on Vercel, oac_..., by which people there get databases; see docs/vercel.md
    #[arg(long, env = "COPPICE_VERCEL_CLIENT_ID", value_name = "ID")]
    #[serde(rename = "client_id")]
    vercel_client_id: Option<String>,
    /// Who signs what Vercel shows [default: https://marketplace.vercel.com]
    #[arg(long, env = "COPPICE_VERCEL_ISSUER", value_name = "URL")]
    #[serde(rename = "issuer")]
    vercel_issuer: Option<String>,
    /// Where the keys for that are [default: https://marketplace.vercel.com/.well-known/jwks]
    #[arg(long, env = "COPPICE_VERCEL_KEYS_URL", value_name = "URL")]
    #[serde(rename = "keys_url")]
    vercel_keys_url: Option<String>,
    /// Files with the client secret of the integration, with which Vercel signs its webhooks; several while it is being replaced
    #[arg(long, env = "COPPICE_VERCEL_CLIENT_SECRET_FILES", value_name = "FILES", value_delimiter = ':')]
    #[serde(rename = "client_secret_files")]
    vercel_client_secret_files: Option<Vec<PathBuf>>,
    /// Where Vercel is told things [default: https://api.vercel.com]
    #[arg(long, env = "COPPICE_VERCEL_API_URL", value_name = "URL")]
    #[serde(rename = "api_url")]
    vercel_api_url: Option<String>,
}

impl VercelArgs {
    /// What is set here, else what is set there.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            vercel_client_id: self.vercel_client_id.or(other.vercel_client_id),
            vercel_issuer: self.vercel_issuer.or(other.vercel_issuer),
            vercel_keys_url: self.vercel_keys_url.or(other.vercel_keys_url),
            vercel_client_secret_files: self.vercel_client_secret_files.or(other.vercel_client_secret_files),
            vercel_api_url: self.vercel_api_url.or(other.vercel_api_url),
        }
    }

    /// The integration, if there is one.
    pub(super) fn integration(self) -> anyhow::Result<Option<VercelConfig>> {
        // A variable that is set to nothing.
        let is_set = |text: &String| !text.is_empty();
        let Some(client_id) = self.vercel_client_id.filter(is_set) else { return Ok(None) };
        let place = |name: &str, text: Option<String>, default: &str| {
            let text = text.filter(is_set).unwrap_or_else(|| default.to_owned());
            Url::parse(&text).ok().filter(is_safe).with_context(|| {
                format!("{name} `{text}` must be https, or http on this machine: write for example {default}")
            })
        };
        let keys = place("vercel-keys-url", self.vercel_keys_url, KEYS)?;
        let api = place("vercel-api-url", self.vercel_api_url, API)?;
        let files = self.vercel_client_secret_files.unwrap_or_default();
        let named = files.iter().filter(|path| !path.as_os_str().is_empty());
        let client_secrets = named.map(|path| read_secret(path)).collect::<anyhow::Result<Vec<_>>>()?;
        let issuer = self.vercel_issuer.filter(is_set).unwrap_or_else(|| ISSUER.to_owned());
        Ok(Some(VercelConfig { client_id, issuer, keys, client_secrets, api }))
    }
}

/// Whether what is there is what its owner put there.
fn is_safe(url: &Url) -> bool {
    let is_here = matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
    url.scheme() == "https" || (url.scheme() == "http" && is_here)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integration(text: &str) -> anyhow::Result<Option<VercelConfig>> {
        VercelArgs::default().or(toml::from_str(text)?).integration()
    }

    #[test]
    fn an_integration_believes_keys_that_nobody_can_change_on_the_way() {
        assert!(integration("").expect("none").is_none());
        let usual = integration("client_id = \"oac_1\"").expect("good").expect("one");
        assert_eq!((usual.issuer.as_str(), usual.keys.as_str()), (ISSUER, KEYS));
        let with = |keys: &str| integration(&format!("client_id = \"oac_1\"\nkeys_url = {keys:?}"));
        assert!(with("http://127.0.0.1:1/keys").is_ok());
        for bad in ["http://keys.example/", "keys.example", "file:///etc/passwd"] {
            let error = with(bad).expect_err(bad).to_string();
            assert!(error.contains("must be https"), "{error}");
        }
    }
}
