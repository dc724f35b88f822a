//! Settings of signing in: the few that are flags, and the clients, which are
//! only in the file.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use clap::Args;
use coppice_app::IdentityConfig;
use coppice_oauth::client::{CLI, CLI_SECRET, COMMAND_LINE, CONSOLE, Client, SecretDigest, Trust};
use coppice_oauth::issuer::Issuers;
use coppice_oauth::redirect;
use coppice_oauth::signing::SigningAlgorithm;
use serde::Deserialize;

use super::sign_in::{IssuerArgs, SignInConfig};
use super::{is_on, within};

const DEFAULT_KEY_DAYS: u32 = 90;
const KEY_DAYS_MAX: u32 = 3650;
/// Where the editor Cursor takes people who signed in.
const CURSOR: &str = "cursor://anysphere.cursor-mcp/oauth/callback";
/// Fewest characters of a secret that an operator chooses for a client.
const SECRET_MIN: usize = 16;
/// The command line's secret; a flag would show it to everybody on the machine.
const CLI_SECRET_VARIABLE: &str = "COPPICE_AUTH_CLI_SECRET";

/// Settings as they can be written in each place; in the file, the table
/// `[auth]`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AuthArgs {
    /// Names under which tokens are issued; the first is ours [default: main]
    #[arg(long, env = "COPPICE_AUTH_REALMS", value_name = "NAMES", value_delimiter = ',')]
    #[serde(rename = "realms")]
    auth_realms: Option<Vec<String>>,
    /// Whether clients may register themselves: on or off [default: on]
    #[arg(long, env = "COPPICE_AUTH_DYNAMIC_CLIENTS", value_name = "MODE")]
    #[serde(rename = "dynamic_clients")]
    auth_dynamic_clients: Option<String>,
    /// Redirect URIs with schemes of their own that clients may register, each as it stands [default: Cursor's]
    #[arg(long, env = "COPPICE_AUTH_REDIRECT_URIS", value_name = "URIS", value_delimiter = ',')]
    #[serde(rename = "redirect_uris")]
    auth_redirect_uris: Option<Vec<String>>,
    /// How tokens are signed: RS256 or EdDSA [default: RS256]
    #[arg(long, env = "COPPICE_AUTH_SIGNING_ALGORITHM", value_name = "ALGORITHM")]
    #[serde(rename = "signing_algorithm")]
    auth_signing_algorithm: Option<String>,
    /// Days until a new key signs tokens [default: 90]
    #[arg(long, env = "COPPICE_AUTH_SIGNING_KEY_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(KEY_DAYS_MAX)))]
    #[serde(rename = "signing_key_days")]
    auth_signing_key_days: Option<u32>,
    /// Whether who has no account may get one by signing in: invite, open or off [default: invite]
    #[arg(long, env = "COPPICE_AUTH_SIGNUP", value_name = "MODE")]
    #[serde(rename = "signup")]
    auth_signup: Option<String>,
    /// Whether people may sign in with passwords, besides at an issuer: on or off [default: on]
    #[arg(long, env = "COPPICE_AUTH_PASSWORDS", value_name = "MODE")]
    #[serde(rename = "passwords")]
    auth_passwords: Option<String>,
    #[command(flatten)]
    issuer: IssuerArgs,
    #[arg(skip)]
    clients: BTreeMap<String, ClientFile>,
}

impl AuthArgs {
    /// What is set here, else what is set there. Only a file describes clients.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            auth_realms: self.auth_realms.or(other.auth_realms),
            auth_dynamic_clients: self.auth_dynamic_clients.or(other.auth_dynamic_clients),
            auth_redirect_uris: self.auth_redirect_uris.or(other.auth_redirect_uris),
            auth_signing_algorithm: self.auth_signing_algorithm.or(other.auth_signing_algorithm),
            auth_signing_key_days: self.auth_signing_key_days.or(other.auth_signing_key_days),
            auth_signup: self.auth_signup.or(other.auth_signup),
            auth_passwords: self.auth_passwords.or(other.auth_passwords),
            issuer: self.issuer.or(other.issuer),
            clients: other.clients,
        }
    }
}

/// A table `[auth.clients.ID]`.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ClientFile {
    name: Option<String>,
    secret: Option<String>,
    redirect_uris: Vec<String>,
    implicit: Option<bool>,
    device: Option<bool>,
}

impl ClientFile {
    /// The names of what is set here besides redirect URIs.
    fn keys(&self) -> Vec<&'static str> {
        let keys = [
            ("name", self.name.is_some()),
            ("secret", self.secret.is_some()),
            ("implicit", self.implicit.is_some()),
            ("device", self.device.is_some()),
        ];
        keys.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key).collect()
    }
}

/// Refuses what would say nothing of a client that is part of the platform.
fn check_own_client(id: &str, settings: &ClientFile) -> anyhow::Result<()> {
    let (may_be_set, allowed): (&[_], _) = match id {
        COMMAND_LINE => {
            bail!("{COMMAND_LINE} is what `coppice login` signs in as: give the client another name")
        }
        CLI => (&["secret"], "redirect_uris and secret"),
        CONSOLE => (&[], "redirect_uris"),
        _ => return Ok(()),
    };
    match settings.keys().into_iter().find(|key| !may_be_set.contains(key)) {
        Some(key) => {
            bail!("{key} of the client {id}, which is part of the platform, can't be set: only {allowed} can")
        }
        None => Ok(()),
    }
}

impl std::fmt::Debug for ClientFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientFile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct AuthConfig {
    realms: Vec<String>,
    dynamic_clients: bool,
    own_redirect_uris: Vec<String>,
    algorithm: SigningAlgorithm,
    signing_key_days: u32,
    clients: BTreeMap<String, ClientFile>,
    cli_secret: String,
    /// Who may sign in, and where else than here.
    pub(crate) sign_in: SignInConfig,
}

impl AuthConfig {
    /// Reads the settings.
    pub(super) fn new(set: AuthArgs) -> anyhow::Result<Self> {
        let algorithm = set.auth_signing_algorithm.as_deref().unwrap_or("RS256");
        let in_file = set.clients.get(CLI).and_then(|client| client.secret.clone());
        let in_environment = std::env::var(CLI_SECRET_VARIABLE).ok().filter(|secret| !secret.is_empty());
        Ok(Self {
            sign_in: SignInConfig::new(
                set.auth_signup.as_deref(),
                set.auth_passwords.as_deref(),
                set.issuer,
            )?,
            realms: set.auth_realms.unwrap_or_default(),
            dynamic_clients: is_on("auth-dynamic-clients", set.auth_dynamic_clients.as_deref())?,
            own_redirect_uris: own_redirect_uris(set.auth_redirect_uris)?,
            algorithm: SigningAlgorithm::parse(algorithm).with_context(|| {
                format!("tokens can be signed with RS256 or EdDSA, not with `{algorithm}`")
            })?,
            signing_key_days: within(
                "signing_key_days of [auth]",
                set.auth_signing_key_days.unwrap_or(DEFAULT_KEY_DAYS),
                1..=KEY_DAYS_MAX,
            )?,
            cli_secret: in_environment.or(in_file).unwrap_or_else(|| CLI_SECRET.to_owned()),
            clients: set.clients,
        })
    }

    /// What the use cases need, for a platform that people reach at `public_url`.
    pub(crate) fn identity(&self, public_url: &str) -> anyhow::Result<IdentityConfig> {
        let mut clients =
            vec![Client::cli(&self.cli_secret), Client::command_line(), Client::console(public_url)];
        for (id, settings) in &self.clients {
            check_own_client(id, settings)?;
            for uri in &settings.redirect_uris {
                redirect::check(uri)
                    .map_err(|why| anyhow::anyhow!("the redirect URI {uri} of the client {id} {why}"))?;
            }
            match clients.iter_mut().find(|client| client.id == *id) {
                Some(own) => own.redirect_uris.extend(settings.redirect_uris.iter().cloned()),
                None => clients.push(client(id, settings)?),
            }
        }
        Ok(IdentityConfig {
            issuers: Issuers::new(public_url, &self.realms)?,
            clients,
            dynamic_clients: self.dynamic_clients,
            own_redirect_uris: self.own_redirect_uris.clone(),
            algorithm: self.algorithm,
            signing_key_days: self.signing_key_days,
        })
    }
}

fn own_redirect_uris(set: Option<Vec<String>>) -> anyhow::Result<Vec<String>> {
    let Some(uris) = set else { return Ok(vec![CURSOR.to_owned()]) };
    let uris: Vec<_> = uris.into_iter().filter(|uri| !uri.is_empty()).collect();
    for uri in &uris {
        redirect::check_own(uri).map_err(|why| anyhow::anyhow!("the redirect URI {uri} {why}"))?;
    }
    Ok(uris)
}

fn client(id: &str, settings: &ClientFile) -> anyhow::Result<Client> {
    let secret = settings.secret.as_deref();
    if secret.is_some_and(|secret| secret.chars().count() < SECRET_MIN) {
        bail!("the secret of the client {id} needs at least {SECRET_MIN} characters");
    }
    Ok(Client {
        id: id.to_owned(),
        name: settings.name.clone().unwrap_or_else(|| id.to_owned()),
        secret: secret.map(SecretDigest::of),
        redirect_uris: settings.redirect_uris.clone(),
        any_loopback_port: true,
        trust: Trust::Operator,
        may_use_implicit: settings.implicit.unwrap_or_default(),
        may_use_device: settings.device.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> anyhow::Result<IdentityConfig> {
        AuthConfig::new(AuthArgs::default().or(toml::from_str(text)?))?.identity("https://db.example.com")
    }

    #[test]
    fn clients_are_described_in_the_file() {
        let found = config(
            r#"
            realms = ["main", "other"]
            [clients.app]
            name = "App"
            secret = "0123456789abcdef"
            redirect_uris = ["https://app.example.com/cb"]
            device = true
            [clients.console]
            redirect_uris = ["https://console.example.com/"]
            "#,
        )
        .expect("settings");
        let app = found.clients.iter().find(|client| client.id == "app").expect("the client");
        assert!(app.is_confidential() && app.may_use_device && !app.may_use_implicit);
        let console = found.clients.iter().find(|client| client.id == CONSOLE).expect("the console");
        assert!(console.allows_redirect("https://console.example.com/"));
        assert!(console.allows_redirect("https://db.example.com/callback"));
        assert_eq!(found.issuers.all().len(), 3, "the site, and each realm");
    }

    #[test]
    fn settings_that_can_not_work_are_refused() {
        for text in [
            "realms = [\"a/b\"]",
            "dynamic_clients = \"maybe\"",
            "signing_algorithm = \"none\"",
            "[clients.app]\nsecret = \"short\"",
            "[clients.app]\nredirect_uris = [\"http://app.example.com/\"]",
            "[clients.app]\nredirect_urls = []",
        ] {
            assert!(config(text).is_err(), "{text}");
        }
    }

    #[test]
    fn days_outside_the_bounds_are_refused_by_name() {
        for days in ["0", "3651", "4294967295"] {
            let error = config(&format!("signing_key_days = {days}")).expect_err(days).to_string();
            assert!(error.contains("signing_key_days") && error.contains("1 to 3650"), "{error}");
        }
        assert_eq!(config("signing_key_days = 3650").expect("settings").signing_key_days, 3650);
    }

    #[test]
    fn clients_of_the_platform_take_only_what_they_heed() {
        for (text, told) in [
            ("[clients.coppice-cli]", "another name"),
            ("[clients.console]\nsecret = \"0123456789abcdef\"", "secret of the client console"),
            ("[clients.console]\nname = \"Ours\"", "only redirect_uris can"),
            ("[clients.console]\nimplicit = false", "implicit of the client console"),
            ("[clients.console]\ndevice = true", "device of the client console"),
            ("[clients.cli]\ndevice = false", "only redirect_uris and secret can"),
        ] {
            let error = config(text).expect_err(text).to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
        let cli = "[clients.cli]\nsecret = \"s\"\nredirect_uris = [\"http://127.0.0.1/cb\"]";
        let found = config(cli).expect("settings").clients;
        assert_eq!(found.iter().filter(|client| client.id == CLI).count(), 1);
        let cli = found.iter().find(|client| client.id == CLI).expect("the client");
        assert!(cli.allows_redirect("http://127.0.0.1/cb") && cli.secret == Some(SecretDigest::of("s")));
    }
}
