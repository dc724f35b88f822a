//! The way to the provider and back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chrono::Utc;
use form_urlencoded::{Serializer, byte_serialize};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use tokio::sync::OnceCell;

use super::attempt::OutsideAttempt;
use super::claims::{self, Claims, Expected, Profile};
use super::error::{OutsideError, Result, broken};
use super::keys::{self, Keys};
use super::metadata::{self, Metadata, SecretPlace};
use super::{OutsideConfig, http};
use crate::cached::Cached;

/// What is asked about a person.
const SCOPES: &str = "openid email profile";

/// A provider that people may sign in at.
#[derive(Debug)]
pub(crate) struct OutsideIssuer {
    config: OutsideConfig,
    /// Where the provider sends people back to.
    redirect_uri: String,
    client: OnceCell<Client>,
    metadata: Cached<Metadata>,
    keys: Cached<Keys>,
}

/// What came back in the answer's address.
#[derive(Clone, Debug, Default)]
pub struct OutsideAnswer {
    /// The code, when all went well.
    pub code: Option<String>,
    /// Which attempt it answers.
    pub state: String,
    /// Who says that it answers (RFC 9207).
    pub issuer: Option<String>,
    /// The error code, when it did not go well.
    pub error: Option<String>,
}

/// A person that the provider vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutsidePerson {
    /// The address that it verified.
    pub(crate) email: String,
    /// Their name, or nothing.
    pub(crate) name: String,
    /// Whether it asked just now who they are.
    pub(crate) was_asked: bool,
    /// Whether it says that it asked for a second factor.
    pub(crate) has_second_factor: bool,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: Option<String>,
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct TokenError {
    error: String,
}

impl OutsideIssuer {
    /// A provider, which sends people back to `redirect_uri`. It is not asked
    /// before somebody signs in.
    pub(crate) fn new(config: OutsideConfig, redirect_uri: String) -> Self {
        Self {
            config,
            redirect_uri,
            client: OnceCell::new(),
            metadata: Cached::default(),
            keys: Cached::default(),
        }
    }

    /// What people know it as.
    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    async fn client(&self) -> Result<&Client> {
        self.client.get_or_try_init(async || http::client()).await
    }

    async fn metadata(&self) -> Result<std::sync::Arc<Metadata>> {
        let client = self.client().await?;
        self.metadata.get(|_| true, || metadata::fetch(client, &self.config.issuer)).await
    }

    /// Begins an attempt after which the person goes on at `then`, a path of
    /// ours: where to send the browser, and what it has to bring back. With
    /// `anew` the provider is to ask who they are even if it knows.
    ///
    /// # Errors
    /// When the provider does not describe itself.
    pub(crate) async fn begin(&self, then: &str, anew: bool) -> Result<(String, OutsideAttempt)> {
        let metadata = self.metadata().await?;
        let attempt = OutsideAttempt::begin(then, anew);
        let mut address = metadata.authorization.clone();
        address
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.config.client_id)
            .append_pair("redirect_uri", &self.redirect_uri)
            .append_pair("scope", SCOPES)
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &attempt.challenge())
            .append_pair("code_challenge_method", "S256");
        if anew {
            // With the second it has to say when it asked.
            address.query_pairs_mut().append_pair("prompt", "login").append_pair("max_age", "0");
        }
        Ok((address.into(), attempt))
    }

    /// Who came back.
    ///
    /// # Errors
    /// When that is not certain.
    pub(crate) async fn complete(
        &self,
        attempt: &OutsideAttempt,
        answer: &OutsideAnswer,
    ) -> Result<OutsidePerson> {
        attempt.check(&answer.state, Utc::now())?;
        let metadata = self.metadata().await?;
        match &answer.issuer {
            Some(issuer) if *issuer != self.config.issuer => {
                return Err(OutsideError::Foreign(format!("{:?} answers", shortened(issuer))));
            }
            None if metadata.names_itself => {
                return Err(OutsideError::Foreign("the answer does not name its issuer".to_owned()));
            }
            _ => {}
        }
        if let Some(code) = &answer.error {
            return Err(OutsideError::Refused(shortened(code)));
        }
        let code = answer.code.as_deref().ok_or_else(|| broken("an answer without a code"))?;
        let tokens = self.redeem(&metadata, attempt, code).await?;
        let token = tokens.id_token.as_deref().ok_or_else(|| broken("no ID token"))?;
        let claims = self.claims(&metadata, attempt, token).await?;
        let has_second_factor = claims.has_second_factor();
        let (profile, was_asked) = (claims.profile, attempt.was_asked(claims.auth_time));
        let profile = match (&profile.email, &metadata.userinfo, &tokens.access_token) {
            (None, Some(place), Some(access)) => self.userinfo(place.clone(), access, &profile.sub).await?,
            _ => profile,
        };
        let email = profile.verified_email()?;
        Ok(OutsidePerson { email, name: profile.name.unwrap_or_default(), was_asked, has_second_factor })
    }

    async fn redeem(&self, metadata: &Metadata, attempt: &OutsideAttempt, code: &str) -> Result<Tokens> {
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect_uri),
            ("code_verifier", &attempt.verifier),
        ];
        let mut request = self.client().await?.post(metadata.token.clone());
        let id = self.config.client_id.as_str();
        match (&self.config.client_secret, metadata.secret_place) {
            (Some(secret), SecretPlace::Header) => {
                let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                let pair = BASE64.encode(format!("{}:{}", encoded(id), encoded(secret)));
                request = request.header(AUTHORIZATION, format!("Basic {pair}"));
            }
            (Some(secret), SecretPlace::Form) => {
                fields.extend([("client_id", id), ("client_secret", secret.as_str())]);
            }
            (None, _) => fields.push(("client_id", id)),
        }
        let form = Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = http::send(request.header(ACCEPT, "application/json").body(form)).await?;
        if matches!(answer.status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED)
            && let Ok(TokenError { error }) = serde_json::from_slice(&answer.body)
        {
            return Err(match error.as_str() {
                "invalid_grant" => OutsideError::Foreign("the code is spent, expired or not ours".to_owned()),
                _ => broken(format!("its token endpoint says {error}: look at the client's id and secret")),
            });
        }
        answer.json("its token endpoint")
    }

    /// What the ID token says, after all checks.
    async fn claims(&self, metadata: &Metadata, attempt: &OutsideAttempt, token: &str) -> Result<Claims> {
        let client = self.client().await?;
        let header = keys::header_of(token)?;
        let has_key = |keys: &Keys| keys.find(&header).is_some();
        // A key that is not known may be a new one.
        let keys = self.keys.get(has_key, || keys::fetch(client, metadata.keys.clone())).await?;
        let key =
            keys.find(&header).ok_or_else(|| broken("a key that it does not publish signed its token"))?;
        let expected = Expected {
            issuer: &self.config.issuer,
            client_id: &self.config.client_id,
            nonce: &attempt.nonce,
        };
        claims::verify(token, &header, &key, &expected)
    }

    /// Many providers tell the address only when asked again.
    async fn userinfo(&self, place: reqwest::Url, access: &str, subject: &str) -> Result<Profile> {
        let request = self.client().await?.get(place).bearer_auth(access).header(ACCEPT, "application/json");
        let profile: Profile = http::send(request).await?.json("its userinfo")?;
        if profile.sub != subject {
            return Err(broken("its userinfo is about somebody else"));
        }
        Ok(profile)
    }
}

/// As much of a text that anybody may have written as the log needs.
fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}
