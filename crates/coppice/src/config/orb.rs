//! Orb: flags, variables, or the table `orb` of the file.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use coppice_app::OrbConfig;
use reqwest::Url;
use serde::Deserialize;

use super::github::read_webhook_secret;
use super::sign_in::read_secret;
use super::within;

const API: &str = "https://api.withorb.com/v1";
/// Hours after which Orb takes usage only as a backfill, where nothing else is agreed on.
const GRACE_HOURS: u32 = 12;
const GRACE_HOURS_MAX: u32 = 31 * 24;
const HOUR: Duration = Duration::from_secs(3600);

/// Settings as they can be written in each place. Secrets are in files: a flag
/// would show them to everybody on the machine.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct OrbArgs {
    /// A file with an API key of your Orb account, which makes invoices when billing.provider is
    /// orb+stripe; see docs/billing.md
    #[arg(long, env = "COPPICE_ORB_API_KEY_FILE", value_name = "FILE")]
    #[serde(rename = "api_key_file")]
    orb_api_key_file: Option<PathBuf>,
    /// Files with the secret that Orb signs deliveries with; several while it is being replaced
    #[arg(long, env = "COPPICE_ORB_WEBHOOK_SECRET_FILES", value_name = "FILES", value_delimiter = ':')]
    #[serde(rename = "webhook_secret_files")]
    orb_webhook_secret_files: Option<Vec<PathBuf>>,
    /// The plan that organizations get at Orb, by its external plan id
    #[arg(long, env = "COPPICE_ORB_PLAN", value_name = "PLAN")]
    #[serde(rename = "plan")]
    orb_plan: Option<String>,
    /// Hours after which Orb takes usage only as a backfill, 2 to 744 [default: 12]
    #[arg(long, env = "COPPICE_ORB_GRACE_HOURS", value_name = "HOURS")]
    #[serde(rename = "grace_hours")]
    orb_grace_hours: Option<u32>,
    /// Where Orb is asked, if not there itself [default: https://api.withorb.com/v1]
    #[arg(long, env = "COPPICE_ORB_API_URL", value_name = "URL")]
    #[serde(rename = "api_url")]
    orb_api_url: Option<String>,
}

impl OrbArgs {
    /// What is set here, else what is set there.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            orb_api_key_file: self.orb_api_key_file.or(other.orb_api_key_file),
            orb_webhook_secret_files: self.orb_webhook_secret_files.or(other.orb_webhook_secret_files),
            orb_plan: self.orb_plan.or(other.orb_plan),
            orb_grace_hours: self.orb_grace_hours.or(other.orb_grace_hours),
            orb_api_url: self.orb_api_url.or(other.orb_api_url),
        }
    }

    /// Orb, if `is_used` says that it makes invoices; else its settings wait.
    pub(super) fn orb(self, is_used: bool) -> anyhow::Result<Option<OrbConfig>> {
        if !is_used {
            return Ok(None);
        }
        let needs = |setting: &str| {
            anyhow::anyhow!(
                "with billing.provider orb+stripe, {setting} has to be set too: see docs/billing.md"
            )
        };
        // A variable that is set to nothing.
        let is_named = |path: &PathBuf| !path.as_os_str().is_empty();
        let key_file = self.orb_api_key_file.filter(is_named).ok_or_else(|| needs("orb-api-key-file"))?;
        let plan = self.orb_plan.filter(|plan| !plan.is_empty()).ok_or_else(|| needs("orb-plan"))?;
        let secret_files = self.orb_webhook_secret_files.unwrap_or_default();
        let secrets = secret_files.iter().filter(|path| is_named(path)).map(|path| read_webhook_secret(path));
        let webhook_secrets = secrets.collect::<anyhow::Result<Vec<_>>>()?;
        if webhook_secrets.is_empty() {
            return Err(needs("orb-webhook-secret-files"));
        }
        let api_key = read_secret(&key_file)?;
        if api_key.is_empty() || !api_key.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("{} holds no API key of Orb", key_file.display());
        }
        let text = self.orb_api_url.filter(|text| !text.is_empty());
        let text = text.as_deref().unwrap_or(API);
        let is_place =
            |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
        let api = Url::parse(text).ok().filter(is_place);
        let api =
            api.with_context(|| format!("orb-api-url `{text}` is no address: write for example {API}"))?;
        let hours =
            within("orb-grace-hours", self.orb_grace_hours.unwrap_or(GRACE_HOURS), 2..=GRACE_HOURS_MAX)?;
        Ok(Some(OrbConfig { api_key, webhook_secrets, api, plan, grace: HOUR * hours }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orb(text: &str) -> anyhow::Result<Option<OrbConfig>> {
        OrbArgs::default().or(toml::from_str(text)?).orb(true)
    }

    #[test]
    fn orb_is_whole_and_its_secrets_are_shown_to_nobody() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let (key, secret) = (file("key", "planted_key\n"), file("secret", "0123456789_planted\n"));
        let (bad, short) = (file("bad", "two words"), file("short", "planted"));
        let text = |key: &str, secret: &str, more: &str| {
            format!(
                "api_key_file = {key:?}\nwebhook_secret_files = [{secret:?}]\nplan = \"standard\"\n{more}"
            )
        };
        let good = orb(&text(&key, &secret, "")).expect("settings").expect("Orb");
        assert_eq!((good.api.as_str(), good.grace), ("https://api.withorb.com/v1", HOUR * 12));
        let shown = format!("{good:?}");
        assert!(!shown.contains("planted"), "{shown}");
        assert!(OrbArgs::default().orb(false).expect("nothing").is_none());
        for (text, told) in [
            (String::new(), "orb-api-key-file has to be set"),
            (format!("api_key_file = {key:?}"), "orb-plan has to be set"),
            (format!("api_key_file = {key:?}\nplan = \"x\""), "orb-webhook-secret-files has to be set"),
            (text(&bad, &secret, ""), "holds no API key"),
            (text(&key, &short, ""), "at least 16 characters"),
            (text(&key, &secret, "api_url = \"withorb.com\""), "is no address"),
            (text(&key, &secret, "grace_hours = 1"), "can be 2 to 744"),
        ] {
            let error = format!("{:#}", orb(&text).expect_err(&text));
            assert!(error.contains(told) && !error.contains("planted"), "{text}: {error}");
        }
    }
}
