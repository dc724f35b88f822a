//! Settings of who may sign in, and where else than here.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use coppice_app::OutsideConfig;
use coppice_core::sign_up::SignUp;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::is_on;

/// The secret of the client that the provider knows; a flag would show it to
/// everybody on the machine.
const SECRET_VARIABLE: &str = "COPPICE_AUTH_ISSUER_SECRET";

/// Settings of a provider as they can be written in each place; in the file,
/// the table `[auth.issuer]`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct IssuerArgs {
    /// An OpenID Connect provider that people may sign in at: its issuer URL
    #[arg(long, env = "COPPICE_AUTH_ISSUER_URL", value_name = "URL")]
    #[serde(rename = "url")]
    auth_issuer_url: Option<String>,
    /// What that provider knows this installation as
    #[arg(long, env = "COPPICE_AUTH_ISSUER_CLIENT_ID", value_name = "ID")]
    #[serde(rename = "client_id")]
    auth_issuer_client_id: Option<String>,
    /// A file with the client's secret; or set COPPICE_AUTH_ISSUER_SECRET
    #[arg(long, env = "COPPICE_AUTH_ISSUER_SECRET_FILE", value_name = "FILE")]
    #[serde(rename = "secret_file")]
    auth_issuer_secret_file: Option<PathBuf>,
    /// What people know that provider as [default: its host]
    #[arg(long, env = "COPPICE_AUTH_ISSUER_NAME", value_name = "NAME")]
    #[serde(rename = "name")]
    auth_issuer_name: Option<String>,
}

impl IssuerArgs {
    /// What is set here, else what is set there.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            auth_issuer_url: self.auth_issuer_url.or(other.auth_issuer_url),
            auth_issuer_client_id: self.auth_issuer_client_id.or(other.auth_issuer_client_id),
            auth_issuer_secret_file: self.auth_issuer_secret_file.or(other.auth_issuer_secret_file),
            auth_issuer_name: self.auth_issuer_name.or(other.auth_issuer_name),
        }
    }
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct SignInConfig {
    /// Who may get an account by signing in.
    pub(crate) sign_up: SignUp,
    /// Whether people may sign in with passwords.
    pub(crate) has_passwords: bool,
    /// Where people may sign in besides here, if anywhere.
    pub(crate) outside: Option<OutsideConfig>,
}

impl SignInConfig {
    /// Reads the settings.
    pub(super) fn new(
        sign_up: Option<&str>,
        passwords: Option<&str>,
        issuer: IssuerArgs,
    ) -> anyhow::Result<Self> {
        let outside = outside(issuer)?;
        let sign_up = match sign_up {
            Some(text) => SignUp::parse(text)
                .with_context(|| format!("auth-signup can be `invite`, `open` or `off`, not `{text}`"))?,
            None => SignUp::default(),
        };
        let has_passwords = is_on("auth-passwords", passwords)?;
        if !has_passwords && outside.is_none() {
            bail!("without passwords nobody could sign in: set auth-issuer-url too");
        }
        Ok(Self { sign_up, has_passwords, outside })
    }
}

fn outside(set: IssuerArgs) -> anyhow::Result<Option<OutsideConfig>> {
    // A variable that is set to nothing.
    let is_set = |text: &String| !text.is_empty();
    let Some(issuer) = set.auth_issuer_url.filter(is_set) else { return Ok(None) };
    let host = host_of(&issuer).with_context(|| {
        format!("the issuer `{issuer}` must begin with https:// (http:// only on this machine)")
    })?;
    let client_id = set.auth_issuer_client_id.filter(is_set).context(
        "an issuer needs a client id: set auth-issuer-client-id to what the provider knows this platform as",
    )?;
    let client_secret = match set.auth_issuer_secret_file {
        Some(path) => Some(read_secret(&path)?),
        None => std::env::var(SECRET_VARIABLE).ok().map(Zeroizing::new),
    };
    Ok(Some(OutsideConfig {
        issuer,
        client_id,
        client_secret: client_secret.filter(|secret| !secret.is_empty()),
        name: set.auth_issuer_name.filter(is_set).unwrap_or(host),
    }))
}

fn host_of(issuer: &str) -> Option<String> {
    let url = reqwest::Url::parse(issuer).ok()?;
    let host = url.host_str()?;
    let is_here = matches!(host, "127.0.0.1" | "[::1]" | "localhost");
    (url.scheme() == "https" || (url.scheme() == "http" && is_here)).then(|| host.to_owned())
}

/// A file with one secret and perhaps the end of a line.
pub(super) fn read_secret(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let text = Zeroizing::new(text);
    Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(issuer: &str, passwords: &str, signup: &str) -> anyhow::Result<SignInConfig> {
        SignInConfig::new(Some(signup), Some(passwords), toml::from_str(issuer)?)
    }

    #[test]
    fn a_provider_is_described_in_the_file() {
        let issuer = "url = \"https://id.example.com/realms/a\"\nclient_id = \"x\"";
        let config = config(issuer, "off", "open").expect("settings");
        let outside = config.outside.expect("a provider");
        assert_eq!(outside.issuer, "https://id.example.com/realms/a");
        assert_eq!((outside.client_id.as_str(), outside.name.as_str()), ("x", "id.example.com"));
        assert!(!config.has_passwords && config.sign_up == SignUp::Open);
    }

    #[test]
    fn settings_with_which_nobody_could_sign_in_are_refused() {
        let good = "url = \"https://id.example.com\"\nclient_id = \"x\"";
        assert!(config("", "on", "invite").is_ok() && config(good, "on", "off").is_ok());
        for (issuer, passwords, signup) in [
            ("", "off", "invite"),
            ("", "maybe", "invite"),
            ("", "on", "everybody"),
            ("url = \"https://id.example.com\"", "on", "invite"),
            ("url = \"http://id.example.com\"\nclient_id = \"x\"", "on", "invite"),
            ("url = \"id.example.com\"\nclient_id = \"x\"", "on", "invite"),
            ("uri = \"https://id.example.com\"", "on", "invite"),
        ] {
            assert!(config(issuer, passwords, signup).is_err(), "{issuer} {passwords} {signup}");
        }
    }

    #[test]
    fn a_secret_is_read_without_the_end_of_its_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), " s3cret \r\n").expect("written");
        assert_eq!(read_secret(file.path()).expect("a secret").as_str(), " s3cret ");
        assert!(read_secret(Path::new("/does/not/exist")).is_err());
    }
}
