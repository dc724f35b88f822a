//! Stripe: flags, variables, or the table `stripe` of the file.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use coppice_app::StripeConfig;
use reqwest::Url;
use serde::Deserialize;

use super::github::read_webhook_secret;
use super::sign_in::read_secret;

const API: &str = "https://api.stripe.com";

/// Settings as they can be written in each place. Secrets are in files: a flag
/// would show them to everybody on the machine.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StripeArgs {
    /// A file with a secret or restricted key of your Stripe account, where organizations put a
    /// card on file; see docs/billing.md
    #[arg(long, env = "COPPICE_STRIPE_SECRET_KEY_FILE", value_name = "FILE")]
    #[serde(rename = "secret_key_file")]
    stripe_secret_key_file: Option<PathBuf>,
    /// Files with the secret that Stripe signs deliveries with; several while it is being replaced
    #[arg(long, env = "COPPICE_STRIPE_WEBHOOK_SECRET_FILES", value_name = "FILES", value_delimiter = ':')]
    #[serde(rename = "webhook_secret_files")]
    stripe_webhook_secret_files: Option<Vec<PathBuf>>,
    /// Where Stripe is asked, if not there itself [default: https://api.stripe.com]
    #[arg(long, env = "COPPICE_STRIPE_API_URL", value_name = "URL")]
    #[serde(rename = "api_url")]
    stripe_api_url: Option<String>,
}

impl StripeArgs {
    /// What is set here, else what is set there.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            stripe_secret_key_file: self.stripe_secret_key_file.or(other.stripe_secret_key_file),
            stripe_webhook_secret_files: self
                .stripe_webhook_secret_files
                .or(other.stripe_webhook_secret_files),
            stripe_api_url: self.stripe_api_url.or(other.stripe_api_url),
        }
    }

    /// Stripe, if it is used: `needed_by` is what can't do without it, and
    /// `is_required` says whether organizations need a card there.
    pub(super) fn stripe(
        self,
        needed_by: Option<&str>,
        is_required: bool,
    ) -> anyhow::Result<Option<StripeConfig>> {
        // A variable that is set to nothing.
        let is_named = |path: &PathBuf| !path.as_os_str().is_empty();
        let Some(key_file) = self.stripe_secret_key_file.filter(is_named) else {
            if let Some(setting) = needed_by {
                bail!("with {setting}, stripe-secret-key-file has to be set too: see docs/billing.md");
            }
            return Ok(None);
        };
        let secret_files = self.stripe_webhook_secret_files.unwrap_or_default();
        let secrets = secret_files.iter().filter(|path| is_named(path)).map(|path| read_webhook_secret(path));
        let webhook_secrets = secrets.collect::<anyhow::Result<Vec<_>>>()?;
        if webhook_secrets.is_empty() {
            bail!(
                "with stripe-secret-key-file, stripe-webhook-secret-files has to be set too: Stripe shows the \
                 secret beside the webhook endpoint"
            );
        }
        let secret_key = read_secret(&key_file)?;
        let is_key = ["sk_", "rk_"].iter().any(|kind| secret_key.starts_with(kind));
        if !is_key || !secret_key.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("{} holds no secret key of Stripe: those begin with sk_ or rk_", key_file.display());
        }
        let text = self.stripe_api_url.filter(|text| !text.is_empty());
        let text = text.as_deref().unwrap_or(API);
        let is_place =
            |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
        let api = Url::parse(text).ok().filter(is_place);
        let api =
            api.with_context(|| format!("stripe-api-url `{text}` is no address: write for example {API}"))?;
        Ok(Some(StripeConfig { secret_key, webhook_secrets, api, is_required }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe(text: &str, is_required: bool) -> anyhow::Result<Option<StripeConfig>> {
        let needed_by = is_required.then_some("billing.required");
        StripeArgs::default().or(toml::from_str(text)?).stripe(needed_by, is_required)
    }

    #[test]
    fn stripe_is_whole_or_not_there_and_its_secrets_are_shown_to_nobody() {
        assert!(stripe("", false).expect("nothing").is_none());
        assert!(stripe("secret_key_file = \"\"", false).expect("nothing").is_none());
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let (key, public) = (file("key", "sk_test_planted\n"), file("public", "pk_test_planted"));
        let (secret, short) = (file("secret", "whsec_0123456789\n"), file("short", "whsec_"));
        let text = |key: &str, secret: &str| {
            format!("secret_key_file = {key:?}\nwebhook_secret_files = [{secret:?}]")
        };
        let good = stripe(&text(&key, &secret), true).expect("settings").expect("Stripe");
        assert!(good.is_required && good.api.as_str() == "https://api.stripe.com/");
        let shown = format!("{good:?}");
        assert!(!shown.contains("planted") && !shown.contains("0123456789"), "{shown}");
        for (text, told) in [
            (String::new(), "stripe-secret-key-file has to be set"),
            (format!("secret_key_file = {key:?}"), "stripe-webhook-secret-files has to be set"),
            (text(&public, &secret), "holds no secret key"),
            (text(&key, &short), "at least 16 characters"),
            (format!("{}\napi_url = \"api.stripe.com\"", text(&key, &secret)), "is no address"),
        ] {
            let error = format!("{:#}", stripe(&text, true).expect_err(&text));
            assert!(error.contains(told) && !error.contains("planted"), "{text}: {error}");
        }
    }
}
