//! Programs that people sign in to.

use crate::random::{equal, sha256};
use crate::redirect;
use crate::scope::Scopes;

/// Id of the built-in client of command lines that are made to send a secret.
pub const CLI: &str = "cli";
/// The command line's secret, unless the operator chose another. Everybody has
/// the program, so it protects nothing.
pub const CLI_SECRET: &str = "coppice-cli";
/// Id of the built-in client of this platform's own command line, which sends
/// no secret and so gets another refresh token at each use.
pub const COMMAND_LINE: &str = "coppice-cli";
/// Id of the built-in client of this platform's console.
pub const CONSOLE: &str = "console";

/// What is kept of a client's secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretDigest(String);

impl SecretDigest {
    /// The digest of a secret that the operator chose.
    pub fn of(secret: &str) -> Self {
        Self(sha256(secret))
    }

    fn is_of(&self, secret: &str) -> bool {
        equal(&self.0, &sha256(secret))
    }
}

impl std::fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretDigest")
    }
}

/// Who vouches for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It is part of the platform: no consent is asked for where its redirect
    /// URI leads back to the platform.
    Own,
    /// The operator set it up.
    Operator,
    /// It registered itself.
    Nobody,
}

/// A client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its id.
    pub id: String,
    /// What people are shown.
    pub name: String,
    /// None for a public client, which can keep no secret.
    pub secret: Option<SecretDigest>,
    /// Where people may be sent back to after signing in, and after signing out.
    pub redirect_uris: Vec<String>,
    /// Whether the port of a loopback address may be any.
    pub any_loopback_port: bool,
    /// Who vouches for it.
    pub trust: Trust,
    /// Whether it may get a token without a code.
    pub may_use_implicit: bool,
    /// Whether it may connect devices.
    pub may_use_device: bool,
}

impl Client {
    /// The command line. Everybody has the program, so its secret is none, but
    /// clients of this kind are made to send one.
    pub fn cli(secret: &str) -> Self {
        Self {
            id: CLI.to_owned(),
            name: "Coppice CLI".to_owned(),
            secret: Some(SecretDigest::of(secret)),
            redirect_uris: [
                "http://127.0.0.1/callback",
                "http://[::1]/callback",
                "http://localhost/callback",
            ]
            .map(str::to_owned)
            .into(),
            any_loopback_port: true,
            trust: Trust::Own,
            may_use_implicit: false,
            may_use_device: true,
        }
    }

    /// This platform's own command line.
    pub fn command_line() -> Self {
        Self {
            id: COMMAND_LINE.to_owned(),
            name: "Coppice command line".to_owned(),
            secret: None,
            redirect_uris: vec![],
            any_loopback_port: false,
            trust: Trust::Own,
            may_use_implicit: false,
            may_use_device: true,
        }
    }

    /// The console, served by the platform itself under `public_url`.
    pub fn console(public_url: &str) -> Self {
        // On one's own machine both names of it are used.
        let mut places = vec![public_url.to_owned()];
        if let Some(rest) = public_url.strip_prefix("http://127.0.0.1") {
            places.push(format!("http://localhost{rest}"));
        } else if let Some(rest) = public_url.strip_prefix("http://localhost") {
            places.push(format!("http://127.0.0.1{rest}"));
        }
        let pages = ["/", "/callback", "/docs/oauth2-redirect.html"];
        let redirect_uris =
            places.iter().flat_map(|place| pages.map(|page| format!("{place}{page}"))).collect();
        Self {
            id: CONSOLE.to_owned(),
            name: "Coppice console".to_owned(),
            secret: None,
            redirect_uris,
            any_loopback_port: false,
            trust: Trust::Own,
            may_use_implicit: true,
            may_use_device: false,
        }
    }

    /// What it is granted when it asks for `asked`.
    pub fn granted<'a>(&self, asked: impl Iterator<Item = &'a str>) -> Scopes {
        match self.trust {
            Trust::Nobody => Scopes::granted_to_stranger(asked),
            Trust::Own | Trust::Operator => Scopes::granted(asked),
        }
    }

    /// Whether it can keep a secret.
    pub fn is_confidential(&self) -> bool {
        self.secret.is_some()
    }

    /// Whether a code must come with a proof of who asked for it. The secret
    /// of the command line is known to everybody, so it proves nothing.
    pub fn needs_proof(&self) -> bool {
        !self.is_confidential() || self.id == CLI
    }

    /// Whether its refresh tokens are replaced at each use.
    pub fn rotates_refresh_tokens(&self) -> bool {
        !self.is_confidential()
    }

    /// Whether people may be sent to this URI.
    pub fn allows_redirect(&self, uri: &str) -> bool {
        self.redirect_uris.iter().any(|registered| redirect::matches(registered, uri, self.any_loopback_port))
    }

    /// Whether `secret` proves that a request comes from it; none must be sent
    /// by a client that has none.
    pub fn is_proven_by(&self, secret: Option<&str>) -> bool {
        match (&self.secret, secret) {
            (Some(digest), Some(secret)) => digest.is_of(secret),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Whether what a person allowed once counts for the next time. Not where
    /// any program could pose as this client: on a loopback port, or under an
    /// app's scheme (RFC 8252, 8.6).
    pub fn remembers_consent(&self, redirect_uri: &str) -> bool {
        redirect::is_site(redirect_uri)
    }

    /// Whether no consent is needed: what is given to it there goes back to the
    /// platform, which is at `public_url`. Another name of the same machine is
    /// another place, as another program may listen there.
    pub fn needs_no_consent(&self, redirect_uri: &str, public_url: &str) -> bool {
        let is_own_place = redirect_uri.strip_prefix(public_url).is_some_and(|path| path.starts_with('/'));
        self.trust == Trust::Own && !self.any_loopback_port && is_own_place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_is_where_the_platform_is() {
        let console = Client::console("http://127.0.0.1:7070");
        assert!(console.allows_redirect("http://127.0.0.1:7070/"));
        assert!(console.allows_redirect("http://localhost:7070/callback"));
        // Its tokens are given without a question, so another port is another program.
        assert!(!console.allows_redirect("http://127.0.0.1:7071/callback"));
        assert!(!Client::console("https://db.example.com").allows_redirect("http://localhost/callback"));
    }

    #[test]
    fn the_console_asks_nobody_where_the_platform_is_and_everybody_elsewhere() {
        let console = Client::console("http://127.0.0.1:7070/db");
        let asks = |uri: &str| !console.needs_no_consent(uri, "http://127.0.0.1:7070/db");
        assert!(!asks("http://127.0.0.1:7070/db/callback"));
        for elsewhere in [
            "http://localhost:7070/db/callback",
            "http://127.0.0.1:7070/dbx/callback",
            "http://127.0.0.1:7070/callback",
            "http://127.0.0.1:7070/db@evil.example/",
            "https://console.example.com/callback",
        ] {
            assert!(asks(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn the_command_line_listens_on_any_port_and_asks_each_time() {
        let cli = Client::cli("x");
        assert!(cli.allows_redirect("http://127.0.0.1:40000/callback"));
        let place = "http://127.0.0.1:40000/callback";
        assert!(!cli.needs_no_consent(place, "http://127.0.0.1:40000") && !cli.remembers_consent(place));
        assert!(cli.needs_proof());
    }

    #[test]
    fn a_secret_is_proven_by_itself_alone() {
        let cli = Client::cli("right");
        assert!(cli.is_proven_by(Some("right")));
        assert!(!cli.is_proven_by(Some("wrong")) && !cli.is_proven_by(None));
        let console = Client::console("https://db.example.com");
        assert!(console.is_proven_by(None) && !console.is_proven_by(Some("")));
    }
}
