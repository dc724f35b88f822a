//! The GitHub App: flags, variables, or the table `github` of the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use coppice_app::{AppKey, GithubConfig};
use reqwest::Url;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::sign_in::read_secret;

const SITE: &str = "https://github.com";
const API: &str = "https://api.github.com";
const JOBS_ISSUER: &str = "https://token.actions.githubusercontent.com";
/// Fewest characters of a secret that deliveries are signed with.
const SECRET_MIN: usize = 16;

/// Settings as they can be written in each place. Secrets are in files: a flag
/// would show them to everybody on the machine.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GithubArgs {
    /// The id of a GitHub App of yours, by which pull requests get branches; see docs/github.md
    #[arg(long, env = "COPPICE_GITHUB_APP_ID", value_name = "ID")]
    #[serde(rename = "app_id")]
    github_app_id: Option<String>,
    /// A file with the App's private key, in PEM as GitHub gives it
    #[arg(long, env = "COPPICE_GITHUB_PRIVATE_KEY_FILE", value_name = "FILE")]
    #[serde(rename = "private_key_file")]
    github_private_key_file: Option<PathBuf>,
    /// The App's client id
    #[arg(long, env = "COPPICE_GITHUB_CLIENT_ID", value_name = "ID")]
    #[serde(rename = "client_id")]
    github_client_id: Option<String>,
    /// A file with the App's client secret
    #[arg(long, env = "COPPICE_GITHUB_CLIENT_SECRET_FILE", value_name = "FILE")]
    #[serde(rename = "client_secret_file")]
    github_client_secret_file: Option<PathBuf>,
    /// Files with the secret that GitHub signs deliveries with; several while it is being replaced
    #[arg(long, env = "COPPICE_GITHUB_WEBHOOK_SECRET_FILES", value_name = "FILES", value_delimiter = ':')]
    #[serde(rename = "webhook_secret_files")]
    github_webhook_secret_files: Option<Vec<PathBuf>>,
    /// Where people sign in at GitHub, if it is one of your own [default: https://github.com]
    #[arg(long, env = "COPPICE_GITHUB_URL", value_name = "URL")]
    #[serde(rename = "url")]
    github_url: Option<String>,
    /// Where programs ask it [default: https://api.github.com]
    #[arg(long, env = "COPPICE_GITHUB_API_URL", value_name = "URL")]
    #[serde(rename = "api_url")]
    github_api_url: Option<String>,
    /// Who signs what its jobs prove themselves by [default: https://token.actions.githubusercontent.com, or
    /// /_services/token below an address of your own]
    #[arg(long, env = "COPPICE_GITHUB_JOBS_ISSUER", value_name = "URL")]
    #[serde(rename = "jobs_issuer")]
    github_jobs_issuer: Option<String>,
}

impl GithubArgs {
    /// What is set here, else what is set there.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            github_app_id: self.github_app_id.or(other.github_app_id),
            github_private_key_file: self.github_private_key_file.or(other.github_private_key_file),
            github_client_id: self.github_client_id.or(other.github_client_id),
            github_client_secret_file: self.github_client_secret_file.or(other.github_client_secret_file),
            github_webhook_secret_files: self
                .github_webhook_secret_files
                .or(other.github_webhook_secret_files),
            github_url: self.github_url.or(other.github_url),
            github_api_url: self.github_api_url.or(other.github_api_url),
            github_jobs_issuer: self.github_jobs_issuer.or(other.github_jobs_issuer),
        }
    }

    /// The App, if there is one.
    pub(super) fn app(self) -> anyhow::Result<Option<GithubConfig>> {
        // A variable that is set to nothing.
        let is_set = |text: &String| !text.is_empty();
        let Some(app_id) = self.github_app_id.filter(is_set) else { return Ok(None) };
        let client_id = self.github_client_id.filter(is_set);
        let secret_files = self.github_webhook_secret_files.unwrap_or_default();
        let secret_files: Vec<_> =
            secret_files.into_iter().filter(|file| !file.as_os_str().is_empty()).collect();
        if secret_files.is_empty() {
            return Err(needs("github-webhook-secret-files"));
        }
        let site = place("github-url", self.github_url.filter(is_set).as_deref().unwrap_or(SITE))?;
        Ok(Some(GithubConfig {
            app_id,
            key: Arc::new(read_key(&file(self.github_private_key_file, "github-private-key-file")?)?),
            client_id: client_id.ok_or_else(|| needs("github-client-id"))?,
            client_secret: read_secret(&file(self.github_client_secret_file, "github-client-secret-file")?)?,
            webhook_secrets: secret_files
                .iter()
                .map(|path| read_webhook_secret(path))
                .collect::<anyhow::Result<_>>()?,
            jobs_issuer: jobs_issuer(&site, self.github_jobs_issuer.filter(is_set))?,
            site,
            api: place("github-api-url", self.github_api_url.filter(is_set).as_deref().unwrap_or(API))?,
        }))
    }
}

fn needs(setting: &str) -> anyhow::Error {
    anyhow::anyhow!("with github-app-id, {setting} has to be set too: docs/github.md says where it is from")
}

fn file(path: Option<PathBuf>, setting: &str) -> anyhow::Result<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty()).ok_or_else(|| needs(setting))
}

fn read_key(path: &Path) -> anyhow::Result<AppKey> {
    let text = read_secret(path)?;
    AppKey::read(&text).with_context(|| {
        format!(
            "{} holds no private key of a GitHub App: download one from the App's settings",
            path.display()
        )
    })
}

pub(super) fn read_webhook_secret(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    let secret = read_secret(path)?;
    if secret.chars().count() < SECRET_MIN {
        bail!(
            "{} needs at least {SECRET_MIN} characters, for example by `openssl rand -hex 32`",
            path.display()
        );
    }
    Ok(secret)
}

/// Numbers of repositories mean nothing without their GitHub: one of the operator's own has an issuer of its own.
fn jobs_issuer(site: &Url, chosen: Option<String>) -> anyhow::Result<String> {
    let site = site.as_str().trim_end_matches('/');
    let own = if site == SITE { JOBS_ISSUER.to_owned() } else { format!("{site}/_services/token") };
    let chosen = chosen.unwrap_or(own);
    place("github-jobs-issuer", &chosen)?;
    // It is compared to the letter.
    Ok(chosen)
}

fn place(setting: &str, text: &str) -> anyhow::Result<Url> {
    let url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none());
    url.with_context(|| format!("{setting} `{text}` is no address: write for example {SITE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(text: &str) -> anyhow::Result<Option<GithubConfig>> {
        GithubArgs::default().or(toml::from_str(text)?).app()
    }

    #[test]
    fn an_app_is_whole_or_not_there_and_says_what_is_missing() {
        assert!(app("").expect("nothing").is_none() && app("app_id = \"\"").expect("nothing").is_none());
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let (short, long) = (file("short", "s3cret\n"), file("long", "0123456789abcdef\n"));
        for (text, told) in [
            ("app_id = \"1\"".to_owned(), "github-webhook-secret-files has to be set"),
            (
                format!("app_id = \"1\"\nwebhook_secret_files = [{long:?}]"),
                "github-private-key-file has to be set",
            ),
            (
                format!("app_id = \"1\"\nwebhook_secret_files = [{long:?}]\nprivate_key_file = {short:?}"),
                "holds no private key",
            ),
        ] {
            let error = format!("{:#}", app(&text).expect_err(&text));
            assert!(error.contains(told), "{text}: {error}");
        }
        assert!(
            read_webhook_secret(Path::new(&short)).is_err() && read_webhook_secret(Path::new(&long)).is_ok()
        );
        assert!(place("github-url", "https://git.example.com/api/v3").is_ok());
        let issuer_at = |site: &str| jobs_issuer(&place("github-url", site).expect("an address"), None);
        assert_eq!(issuer_at("https://github.com/").expect("an issuer"), JOBS_ISSUER);
        let own = issuer_at("https://git.example.com").expect("an issuer");
        assert_eq!(own, "https://git.example.com/_services/token");
        for bad in ["git.example.com", "file:///x", "https://x/?y"] {
            assert!(place("github-url", bad).is_err(), "{bad}");
        }
    }
}
