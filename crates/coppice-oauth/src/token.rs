//! Tokens: what they say, and whether to believe them.
//!
//! Access and ID tokens are signed with a [`SigningKey`](crate::signing::SigningKey),
//! so that everybody can check them. Refresh tokens are for us alone and carry a MAC; clients look
//! only at when they end.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use chrono::{DateTime, Utc};
use coppice_core::authentication::Methods;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::signing::{DamagedKey, PublicKey};

/// Clocks may differ this much.
const SKEW_SECONDS: u64 = 30;
/// The `typ` of access tokens, so that no other token passes for one.
const ACCESS: &str = "Bearer";
const IDENTITY: &str = "ID";
const REFRESH: &str = "Refresh";
/// Longer texts are no tokens of ours.
const LENGTH_MAX: usize = 8192;

/// Who a token is about, as it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Their address.
    pub email: String,
    /// Whether somebody made sure that the address is theirs.
    pub email_verified: bool,
    /// What they want to be called.
    pub name: String,
    /// The same as the address.
    pub preferred_username: String,
}

/// Claims of an access token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "RFC 9068 and OpenID Connect say what they mean")]
pub struct AccessClaims {
    pub iss: String,
    pub aud: String,
    pub azp: String,
    pub typ: String,
    pub sub: String,
    pub exp: i64,
    pub iat: i64,
    pub jti: String,
    pub sid: String,
    pub scope: String,
    #[serde(default)]
    pub acr: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amr: Vec<String>,
    #[serde(flatten)]
    pub profile: Profile,
}

impl AccessClaims {
    /// Claims with everything that never differs.
    #[expect(clippy::too_many_arguments, reason = "one for each claim")]
    pub fn new(
        (iss, aud): (String, String),
        client: &str,
        user: &str,
        session: &str,
        scope: String,
        methods: &Methods,
        profile: Profile,
        now: DateTime<Utc>,
        exp: DateTime<Utc>,
    ) -> Self {
        Self {
            iss,
            aud,
            azp: client.to_owned(),
            typ: ACCESS.to_owned(),
            sub: user.to_owned(),
            exp: exp.timestamp(),
            iat: now.timestamp(),
            jti: crate::random::secret(),
            sid: session.to_owned(),
            scope,
            acr: methods.context_class().to_owned(),
            amr: methods.words().to_vec(),
            profile,
        }
    }
}

/// Claims of an ID token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "OpenID Connect says what they mean")]
pub struct IdClaims {
    pub iss: String,
    pub aud: String,
    pub azp: String,
    pub typ: String,
    pub sub: String,
    pub exp: i64,
    pub iat: i64,
    pub auth_time: i64,
    #[serde(default)]
    pub acr: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amr: Vec<String>,
    pub sid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    #[serde(flatten)]
    pub profile: Profile,
}

impl IdClaims {
    /// About the same person, session and time as an access token.
    pub fn beside(
        access: &AccessClaims,
        access_token: &str,
        signed_in_at: DateTime<Utc>,
        nonce: Option<String>,
    ) -> Self {
        Self {
            iss: access.iss.clone(),
            aud: access.azp.clone(),
            azp: access.azp.clone(),
            typ: IDENTITY.to_owned(),
            sub: access.sub.clone(),
            exp: access.exp,
            iat: access.iat,
            auth_time: signed_in_at.timestamp(),
            acr: access.acr.clone(),
            amr: access.amr.clone(),
            sid: access.sid.clone(),
            at_hash: Some(half_hash(access_token)),
            nonce,
            profile: access.profile.clone(),
        }
    }
}

/// Ties an access token to an ID token: the left half of its hash.
fn half_hash(token: &str) -> String {
    let hash = digest::digest(&digest::SHA256, token.as_bytes());
    BASE64URL.encode(&hash.as_ref()[..16])
}

/// Claims of a refresh token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "RFC 7519 says what they mean")]
pub struct RefreshClaims {
    pub iss: String,
    pub aud: String,
    pub azp: String,
    pub typ: String,
    pub sub: String,
    pub exp: i64,
    pub iat: i64,
    pub jti: String,
    pub sid: String,
}

impl RefreshClaims {
    /// Claims for the person and the session of an access token, with an id that can't be guessed.
    pub fn beside(access: &AccessClaims, exp: DateTime<Utc>, jti: String) -> Self {
        Self {
            iss: access.iss.clone(),
            aud: access.iss.clone(),
            azp: access.azp.clone(),
            typ: REFRESH.to_owned(),
            sub: access.sub.clone(),
            exp: exp.timestamp(),
            iat: access.iat,
            jti,
            sid: access.sid.clone(),
        }
    }
}

/// Why a token is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// It was good once.
    #[error("the token has expired")]
    Expired,
    /// It is not ours, not for this, or was changed.
    #[error("the token is not valid")]
    Invalid,
}

impl From<jsonwebtoken::errors::Error> for Distrust {
    fn from(error: jsonwebtoken::errors::Error) -> Self {
        match error.kind() {
            ErrorKind::ExpiredSignature => Self::Expired,
            _ => Self::Invalid,
        }
    }
}

/// Whether a text has the form of a JWT.
pub fn looks_like_one(text: &str) -> bool {
    text.len() <= LENGTH_MAX
        && text.split('.').count() == 3
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// The key that a token says it was signed with. Nothing else that it says
/// about how to check it is looked at.
pub fn key_id(token: &str) -> Option<String> {
    if !looks_like_one(token) {
        return None;
    }
    jsonwebtoken::decode_header(token).ok()?.kid
}

fn verify<T: DeserializeOwned>(
    token: &str,
    key: &DecodingKey,
    algorithm: Algorithm,
    issuers: &[String],
    audiences: Option<&[String]>,
    even_expired: bool,
) -> Result<T, Distrust> {
    if !looks_like_one(token) {
        return Err(Distrust::Invalid);
    }
    let mut validation = Validation::new(algorithm);
    validation.leeway = SKEW_SECONDS;
    validation.validate_exp = !even_expired;
    validation.set_issuer(issuers);
    match audiences {
        Some(audiences) => {
            validation.set_audience(audiences);
            validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        }
        None => {
            validation.validate_aud = false;
            validation.set_required_spec_claims(&["exp", "iss", "sub"]);
        }
    }
    Ok(jsonwebtoken::decode(token, key, &validation)?.claims)
}

/// Checks an access token that is for one of `audiences`. The algorithm is the
/// key's; what the token says of it must agree.
///
/// # Errors
/// See [`Distrust`].
pub fn verify_access(
    token: &str,
    key: &PublicKey,
    issuers: &[String],
    audiences: &[String],
) -> Result<AccessClaims, Distrust> {
    let (decoding, algorithm) = key.decoding();
    let claims: AccessClaims = verify(token, decoding, algorithm, issuers, Some(audiences), false)?;
    if claims.typ == ACCESS { Ok(claims) } else { Err(Distrust::Invalid) }
}

/// Checks an ID token that comes back as a hint; it may be old.
///
/// # Errors
/// See [`Distrust`].
pub fn verify_id_hint(token: &str, key: &PublicKey, issuers: &[String]) -> Result<IdClaims, Distrust> {
    let (decoding, algorithm) = key.decoding();
    let claims: IdClaims = verify(token, decoding, algorithm, issuers, None, true)?;
    if claims.typ == IDENTITY { Ok(claims) } else { Err(Distrust::Invalid) }
}

/// Makes and checks refresh tokens.
pub struct RefreshKey {
    encoding: EncodingKey,
    decoding: DecodingKey,
}

impl std::fmt::Debug for RefreshKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RefreshKey")
    }
}

impl RefreshKey {
    /// With a secret that only this platform has.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self { encoding: EncodingKey::from_secret(secret), decoding: DecodingKey::from_secret(secret) }
    }

    /// Makes a refresh token.
    ///
    /// # Errors
    /// When the cryptographic library fails.
    pub fn sign(&self, claims: &RefreshClaims) -> Result<String, DamagedKey> {
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), claims, &self.encoding).map_err(|_| DamagedKey)
    }

    /// Checks a refresh token.
    ///
    /// # Errors
    /// See [`Distrust`].
    pub fn verify(&self, token: &str, issuers: &[String]) -> Result<RefreshClaims, Distrust> {
        let claims: RefreshClaims = verify(token, &self.decoding, Algorithm::HS256, issuers, None, false)?;
        if claims.typ == REFRESH { Ok(claims) } else { Err(Distrust::Invalid) }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use serde_json::{Value, json};

    use super::*;
    use crate::signing::tests::key;
    use crate::signing::{SigningAlgorithm, SigningKey};

    const ISSUER: &str = "https://db.example.com/realms/main";
    const AUDIENCE: &str = "platform-api";

    fn profile() -> Profile {
        Profile {
            email: "a@b.example".to_owned(),
            email_verified: true,
            name: "A".to_owned(),
            preferred_username: "a@b.example".to_owned(),
        }
    }

    fn claims(seconds: i64) -> AccessClaims {
        let now = Utc::now();
        let exp = now + TimeDelta::seconds(seconds);
        let (methods, scope) = (Methods::password(), "*".to_owned());
        let (iss, aud) = (ISSUER.to_owned(), AUDIENCE.to_owned());
        AccessClaims::new((iss, aud), "cli", "usr_1", "ses_1", scope, &methods, profile(), now, exp)
    }

    fn verified(token: &str, key: &SigningKey) -> Result<AccessClaims, Distrust> {
        verify_access(token, &key.public, &[ISSUER.to_owned()], &[AUDIENCE.to_owned()])
    }

    fn part(value: &Value) -> String {
        BASE64URL.encode(value.to_string())
    }

    #[test]
    fn a_token_is_believed_until_it_expires() {
        for algorithm in [SigningAlgorithm::Rs256, SigningAlgorithm::EdDsa] {
            let key = key(algorithm);
            let token = key.sign(&claims(300)).expect("a token");
            assert_eq!(key_id(&token).as_ref(), Some(&key.public.id));
            assert_eq!(verified(&token, &key).expect("valid").sub, "usr_1");
            let late = key.sign(&claims(-20)).expect("a token");
            assert!(verified(&late, &key).is_ok(), "clocks differ");
            let old = key.sign(&claims(-40)).expect("a token");
            assert_eq!(verified(&old, &key), Err(Distrust::Expired));
        }
    }

    #[test]
    fn a_token_of_somebody_else_is_not_believed() {
        let key = key(SigningAlgorithm::EdDsa);
        let other = super::tests::key(SigningAlgorithm::EdDsa);
        assert_eq!(verified(&other.sign(&claims(300)).expect("a token"), &key), Err(Distrust::Invalid));
        let token = key.sign(&claims(300)).expect("a token");
        let elsewhere =
            verify_access(&token, &key.public, &["https://other".to_owned()], &[AUDIENCE.to_owned()]);
        assert_eq!(elsewhere, Err(Distrust::Invalid), "another issuer");
        for (name, value) in [("aud", "cli"), ("typ", "ID"), ("typ", "Refresh"), ("iss", "https://evil")] {
            let mut changed = serde_json::to_value(claims(300)).expect("claims");
            changed[name] = value.into();
            let token = key.sign(&changed).expect("a token");
            assert_eq!(verified(&token, &key), Err(Distrust::Invalid), "{name}={value}");
        }
    }

    #[test]
    fn the_token_does_not_choose_how_it_is_checked() {
        let key = key(SigningAlgorithm::Rs256);
        let body = part(&serde_json::to_value(claims(300)).expect("claims"));
        // The public key as the secret of a MAC is the classic.
        let secret = key.public.jwk["n"].as_str().expect("a modulus");
        let header = Header { kid: Some(key.public.id.clone()), ..Header::new(Algorithm::HS256) };
        for secret in [secret.as_bytes(), &BASE64URL.decode(secret).expect("base64")] {
            let mac = jsonwebtoken::encode(&header, &claims(300), &EncodingKey::from_secret(secret));
            assert_eq!(verified(&mac.expect("a token"), &key), Err(Distrust::Invalid));
        }
        for algorithm in ["none", "None", "NONE", "HS256", "PS256", "ES256", "RS512"] {
            let header = part(&json!({ "alg": algorithm, "typ": "JWT", "kid": key.public.id }));
            for signature in ["", "AAAA"] {
                let token = format!("{header}.{body}.{signature}");
                assert_eq!(verified(&token, &key), Err(Distrust::Invalid), "{algorithm}");
            }
        }
    }

    #[test]
    fn nothing_in_a_token_can_be_changed() {
        let key = key(SigningAlgorithm::EdDsa);
        let token = key.sign(&claims(300)).expect("a token");
        let parts: Vec<_> = token.split('.').collect();
        let mut more = serde_json::to_value(claims(300)).expect("claims");
        more["sub"] = "usr_2".into();
        let forged = format!("{}.{}.{}", parts[0], part(&more), parts[2]);
        assert_eq!(verified(&forged, &key), Err(Distrust::Invalid));
        for text in
            ["", "a.b", "a.b.c", "....", &format!("{token}."), &token[..token.len() - 1], &"a".repeat(9000)]
        {
            assert_eq!(verified(text, &key), Err(Distrust::Invalid), "{text}");
        }
    }

    #[test]
    fn one_kind_of_token_does_not_pass_for_another() {
        let key = key(SigningAlgorithm::EdDsa);
        let issuers = [ISSUER.to_owned()];
        let refresh_key = RefreshKey::new(&[7; 32]);
        let access = claims(300);
        let access_token = key.sign(&access).expect("a token");
        let id_token =
            key.sign(&IdClaims::beside(&access, &access_token, Utc::now(), None)).expect("a token");
        let refresh = refresh_key.sign(&RefreshClaims::beside(
            &access,
            Utc::now() + TimeDelta::days(1),
            "id".to_owned(),
        ));
        let refresh = refresh.expect("a token");
        assert_eq!(refresh_key.verify(&refresh, &issuers).expect("valid").sid, "ses_1");
        assert!(verify_id_hint(&id_token, &key.public, &issuers).is_ok());
        assert!(verified(&id_token, &key).is_err() && verified(&refresh, &key).is_err());
        assert!(refresh_key.verify(&access_token, &issuers).is_err());
        assert!(verify_id_hint(&access_token, &key.public, &issuers).is_err());
        assert!(RefreshKey::new(&[8; 32]).verify(&refresh, &issuers).is_err());
    }
}
