//! The App as its operator set it up.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use coppice_core::{Error, Result};
use reqwest::Url;
use serde_json::json;
use zeroize::Zeroizing;

/// Seconds that a token of the App is good for; GitHub takes no more than 600.
const LIFETIME: i64 = 540;
/// Seconds that GitHub's clock may be behind ours.
const SKEW: i64 = 60;

/// The App as its operator set it up.
#[derive(Clone)]
pub struct GithubConfig {
    /// Its id, or its client id: what GitHub takes as the issuer of its tokens.
    pub app_id: String,
    /// What it signs with.
    pub key: std::sync::Arc<AppKey>,
    /// What it is known by where people let it act for them.
    pub client_id: String,
    /// The secret that goes with it.
    pub client_secret: Zeroizing<String>,
    /// What deliveries are signed with; several while one is being replaced.
    pub webhook_secrets: Vec<Zeroizing<String>>,
    /// Where people sign in at GitHub; no slash at its end.
    pub site: Url,
    /// Where programs ask; no slash at its end.
    pub api: Url,
    /// The issuer of the tokens that prove for which pull request a job runs, exactly as it calls itself.
    pub jobs_issuer: String,
}

impl std::fmt::Debug for GithubConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GithubConfig")
            .field("app_id", &self.app_id)
            .field("client_id", &self.client_id)
            .field("site", &self.site.as_str())
            .field("api", &self.api.as_str())
            .finish_non_exhaustive()
    }
}

/// The private key of the App.
pub struct AppKey(RsaKeyPair);

impl std::fmt::Debug for AppKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AppKey")
    }
}

impl AppKey {
    /// Reads a key as GitHub gives it: RSA in PEM, PKCS #1 or PKCS #8.
    pub fn read(pem: &str) -> Option<Self> {
        let begin = pem.find("-----BEGIN ")?;
        let (label, rest) = pem[begin + 11..].split_once("-----")?;
        let (body, _) = rest.split_once("-----END ")?;
        let text = Zeroizing::new(body.split_ascii_whitespace().collect::<String>());
        let der = Zeroizing::new(STANDARD.decode(text.as_bytes()).ok()?);
        let pair = match label {
            "RSA PRIVATE KEY" => RsaKeyPair::from_der(&der),
            "PRIVATE KEY" => RsaKeyPair::from_pkcs8(&der),
            _ => return None,
        };
        pair.ok().map(Self)
    }

    /// What the App says who it is with, to GitHub, for some minutes from `now` on.
    ///
    /// # Errors
    /// `internal_error` when the cryptographic library fails.
    pub(super) fn token(&self, app_id: &str, now: i64) -> Result<Zeroizing<String>> {
        let claims = json!({ "iat": now - SKEW, "exp": now + LIFETIME, "iss": app_id });
        let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(&json!({ "alg": "RS256", "typ": "JWT" })), part(&claims));
        let mut signature = vec![0; self.0.public_modulus_len()];
        self.0
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .map_err(|_| Error::internal("the key of the GitHub App does not sign"))?;
        Ok(Zeroizing::new(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::AsDer as _;
    use aws_lc_rs::rsa::KeySize;
    use jsonwebtoken::{Algorithm, DecodingKey, Validation};

    use super::*;

    #[test]
    fn the_app_says_who_it_is_for_some_minutes_with_the_key_that_github_gave_it() {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        let der = STANDARD.encode(pair.as_der().expect("as PKCS #8").as_ref());
        let lines: Vec<_> = der.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line)).collect();
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"));
        let now = chrono::Utc::now().timestamp();
        let token = AppKey::read(&pem).expect("it is read").token("42", now).expect("a token");
        let public = pair.public_key();
        let (n, e) = (public.modulus(), public.exponent());
        let key = DecodingKey::from_rsa_raw_components(
            n.big_endian_without_leading_zero(),
            e.big_endian_without_leading_zero(),
        );
        use aws_lc_rs::signature::KeyPair as _;
        let mut validation = Validation::new(Algorithm::RS256);
        validation.set_issuer(&["42"]);
        let told =
            jsonwebtoken::decode::<serde_json::Value>(&*token, &key, &validation).expect("a good token");
        assert!(
            told.claims["exp"].as_i64().expect("an end") - told.claims["iat"].as_i64().expect("a start")
                <= 600
        );
        for bad in [
            "",
            "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----",
            "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----",
        ] {
            assert!(AppKey::read(bad).is_none(), "{bad}");
        }
    }
}
