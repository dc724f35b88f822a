//! An issuer of tokens that are shown to us. It is asked for its keys and nothing else.

use jsonwebtoken::{DecodingKey, Header};
use reqwest::Client;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::error::{OutsideError, Result};
use super::keys::{self, Keys};
use super::{http, metadata};
use crate::cached::Cached;

/// Why nothing is known from a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unproven {
    /// Its issuer did not make it for us, or not for now.
    #[error("{0}")]
    Token(String),
    /// The keys of the issuer are not to be had.
    #[error(transparent)]
    Issuer(#[from] OutsideError),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct TokenSigner {
    issuer: String,
    client: OnceCell<Client>,
    keys: Cached<Keys>,
}

impl TokenSigner {
    /// The issuer that calls itself so. It is not asked before a token of it is shown.
    pub(crate) fn new(issuer: String) -> Self {
        Self { issuer, client: OnceCell::new(), keys: Cached::default() }
    }

    /// What a token says that is for `audience`, now.
    pub(crate) async fn claims<T: DeserializeOwned + Clone>(
        &self,
        token: &str,
        audience: &str,
    ) -> std::result::Result<T, Unproven> {
        let unread = |_| Unproven::Token("it is no JWT that can be understood".to_owned());
        let header = keys::header_of(token).map_err(unread)?;
        let has_key = |keys: &Keys| keys.find(&header).is_some();
        // A key that is not known may be a new one.
        let keys = self.keys.get(has_key, || self.fetch()).await?;
        let key = keys.find(&header);
        let key = key.ok_or_else(|| Unproven::Token("no key of its issuer signed it".to_owned()))?;
        judge(token, &header, &key, (&self.issuer, audience)).map_err(Unproven::Token)
    }

    async fn fetch(&self) -> Result<Keys> {
        let client = self.client.get_or_try_init(async || http::client()).await?;
        keys::fetch(client, metadata::place_of_keys(client, &self.issuer).await?).await
    }
}

/// What a token says that `key` signed, or what is wrong with it.
fn judge<T: DeserializeOwned + Clone>(
    token: &str,
    header: &Header,
    key: &DecodingKey,
    by_for: (&str, &str),
) -> std::result::Result<T, String> {
    keys::claims_of(token, header, key, by_for, &["iss", "aud", "exp"]).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512, RsaEncoding, RsaKeyPair};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
    use chrono::Utc;
    use jsonwebtoken::{Algorithm, EncodingKey};
    use serde_json::{Value, json};

    use super::*;

    const ISSUER: &str = "https://jobs.example.com";
    const US: &str = "https://db.example.com";

    struct Signer {
        pair: RsaKeyPair,
        keys: Keys,
    }

    fn signer() -> Signer {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        let public = pair.public_key();
        let (n, e) = (public.modulus(), public.exponent());
        let jwk = json!({
            "kty": "RSA", "kid": "k", "alg": "RS256", "use": "sig",
            "n": BASE64.encode(n.big_endian_without_leading_zero()),
            "e": BASE64.encode(e.big_endian_without_leading_zero()),
        });
        let keys = Keys::of(vec![serde_json::from_value(jwk).expect("a JWK")]);
        Signer { pair, keys }
    }

    fn part(value: &Value) -> String {
        BASE64.encode(value.to_string())
    }

    fn signed(signer: &Signer, (alg, by): (&str, &'static dyn RsaEncoding), claims: &Value) -> String {
        let text = format!("{}.{}", part(&json!({ "alg": alg, "kid": "k" })), part(claims));
        let mut signature = vec![0; signer.pair.public_modulus_len()];
        signer.pair.sign(by, &SystemRandom::new(), text.as_bytes(), &mut signature).expect("a signature");
        format!("{text}.{}", BASE64.encode(signature))
    }

    fn claims() -> Value {
        let now = Utc::now().timestamp();
        json!({ "iss": ISSUER, "aud": US, "iat": now, "nbf": now, "exp": now + 300, "jti": "1" })
    }

    fn judged(signer: &Signer, token: &str) -> std::result::Result<Value, String> {
        let header = keys::header_of(token).map_err(|error| error.to_string())?;
        let key = signer.keys.find(&header).ok_or("no such key")?;
        judge(token, &header, &key, (ISSUER, US))
    }

    #[test]
    fn a_token_is_believed_that_the_issuer_made_for_us_and_for_now_and_no_other() {
        let signer = signer();
        let told = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            judged(&signer, &signed(&signer, ("RS256", &RSA_PKCS1_SHA256), &claims))
        };
        assert_eq!(told("jti", json!("2")).expect("a good token")["jti"], "2");
        let now = Utc::now().timestamp();
        for (name, value) in [
            ("iss", json!("https://jobs.example.com/")),
            ("iss", json!("https://evil.example.com")),
            ("iss", Value::Null),
            ("iss", json!([ISSUER, "https://evil.example.com"])),
            ("aud", json!("https://db.example.com.evil.example")),
            ("aud", json!("https://db.example.com/")),
            ("aud", Value::Null),
            ("exp", json!(now - 31)),
            ("exp", Value::Null),
            ("nbf", json!(now + 90)),
        ] {
            assert!(told(name, value.clone()).is_err(), "{name} = {value} is believed");
        }
    }

    #[test]
    fn what_everybody_can_read_signs_nothing_and_neither_does_nobody() {
        let (signer, other) = (signer(), signer());
        let good = ("RS256", &RSA_PKCS1_SHA256 as &dyn RsaEncoding);
        assert!(judged(&signer, &signed(&signer, good, &claims())).is_ok());
        assert!(judged(&signer, &signed(&other, good, &claims())).is_err());
        // The key is published for another algorithm.
        assert!(judged(&signer, &signed(&signer, ("RS512", &RSA_PKCS1_SHA512), &claims())).is_err());
        let modulus = signer.pair.public_key().modulus();
        let public = EncodingKey::from_secret(modulus.big_endian_without_leading_zero());
        let header = Header { kid: Some("k".to_owned()), ..Header::new(Algorithm::HS256) };
        let confused = jsonwebtoken::encode(&header, &claims(), &public).expect("a token");
        assert!(judged(&signer, &confused).is_err());
        let unsigned = format!("{}.{}.", part(&json!({ "alg": "none", "kid": "k" })), part(&claims()));
        assert!(judged(&signer, &unsigned).is_err());
    }
}
