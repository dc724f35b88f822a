//! What the provider says about a person, and whether to believe it.

use chrono::Utc;
use coppice_core::email;
use jsonwebtoken::{DecodingKey, Header};
use serde::{Deserialize, Deserializer};

use super::error::{OutsideError, Result, broken};
use super::keys::{self, SKEW_SECONDS};

/// Claims of an ID token.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    /// One text or a list of them.
    aud: serde_json::Value,
    azp: Option<String>,
    iat: Option<f64>,
    nonce: Option<String>,
    /// When the provider asked the person last who they are, in seconds.
    pub(super) auth_time: Option<f64>,
    /// How the provider knows the person (RFC 8176), if it says so.
    #[serde(default)]
    amr: serde_json::Value,
    #[serde(flatten)]
    pub(super) profile: Profile,
}

impl Claims {
    /// Whether the provider says that it asked for a second factor.
    pub(super) fn has_second_factor(&self) -> bool {
        let words = self.amr.as_array().map(Vec::as_slice).unwrap_or_default();
        words.iter().any(|word| word == "mfa")
    }
}

/// Claims about the person, from the ID token or from userinfo.
#[derive(Debug, Deserialize)]
pub(super) struct Profile {
    pub(super) sub: String,
    pub(super) email: Option<String>,
    #[serde(default, deserialize_with = "truth")]
    email_verified: bool,
    pub(super) name: Option<String>,
}

/// Some providers write truth as text.
fn truth<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<bool, D::Error> {
    Ok(match serde_json::Value::deserialize(from)? {
        serde_json::Value::Bool(value) => value,
        serde_json::Value::String(text) => text == "true",
        _ => false,
    })
}

impl Profile {
    /// The address that the provider vouches for, in lower case.
    pub(super) fn verified_email(&self) -> Result<String> {
        let vouched = self.email.as_deref().filter(|_| self.email_verified);
        vouched.and_then(email::normalised).ok_or(OutsideError::Unverified)
    }
}

/// The issuer, the audience and the nonce that a token must have.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
}

/// The claims of an ID token that `key` signed (OpenID Connect Core, 3.1.3.7).
pub(super) fn verify(
    token: &str,
    header: &Header,
    key: &DecodingKey,
    expected: &Expected<'_>,
) -> Result<Claims> {
    let by_for = (expected.issuer, expected.client_id);
    let claims: Claims = keys::claims_of(token, header, key, by_for, &["iss", "sub", "aud", "exp"])
        .map_err(|error| broken(format!("its token: {error}")))?;
    let is_for_several = claims.aud.as_array().is_some_and(|all| all.len() > 1);
    match (&claims.azp, is_for_several) {
        (Some(party), _) if party != expected.client_id => {
            return Err(broken("its token was made for another client"));
        }
        (None, true) => return Err(broken("its token is for several and names no client")),
        _ => {}
    }
    let latest = (Utc::now().timestamp() + SKEW_SECONDS.cast_signed()) as f64;
    if claims.iat.is_none_or(|iat| iat > latest) {
        return Err(broken("its token was made in the future, or at no time"));
    }
    if claims.auth_time.is_some_and(|time| time > latest) {
        return Err(broken("its token says that it asked the person in the future"));
    }
    if claims.nonce.as_deref() != Some(expected.nonce) {
        return Err(OutsideError::Foreign("the token's nonce is another one".to_owned()));
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
    use jsonwebtoken::jwk::Jwk;
    use jsonwebtoken::{Algorithm, EncodingKey};
    use serde_json::{Value, json};

    use super::*;
    use crate::outside::keys::{Keys, header_of};

    const EXPECTED: Expected<'static> =
        Expected { issuer: "https://id.example.com", client_id: "coppice", nonce: "n" };

    struct Signer {
        key: EncodingKey,
        public: Vec<u8>,
        keys: Keys,
    }

    fn signer() -> Signer {
        let pair = Ed25519KeyPair::generate().expect("a key");
        let der = pair.to_pkcs8v1().expect("DER");
        let public = pair.public_key().as_ref().to_vec();
        let jwk: Jwk = serde_json::from_value(json!({
            "kty": "OKP", "crv": "Ed25519", "x": BASE64.encode(&public), "kid": "k", "alg": "EdDSA", "use": "sig",
        }))
        .expect("a JWK");
        Signer { key: EncodingKey::from_ed_der(der.as_ref()), public, keys: Keys::of(vec![jwk]) }
    }

    fn claims() -> Value {
        let now = Utc::now().timestamp();
        json!({
            "iss": EXPECTED.issuer, "sub": "s", "aud": "coppice", "exp": now + 60, "iat": now, "nonce": "n",
            "email": "ada@example.com", "email_verified": true,
        })
    }

    fn header(alg: Algorithm) -> Header {
        Header { kid: Some("k".to_owned()), ..Header::new(alg) }
    }

    fn judge(signer: &Signer, token: &str) -> Result<Claims> {
        let header = header_of(token)?;
        let key = signer.keys.find(&header).ok_or_else(|| broken("no such key"))?;
        verify(token, &header, &key, &EXPECTED)
    }

    fn told(change: impl FnOnce(&mut Value)) -> Result<Claims> {
        let (signer, mut claims) = (signer(), claims());
        change(&mut claims);
        let token = jsonwebtoken::encode(&header(Algorithm::EdDSA), &claims, &signer.key).expect("a token");
        judge(&signer, &token)
    }

    #[test]
    fn a_token_for_us_from_the_issuer_is_believed() {
        let claims = told(|_| ()).expect("a good token");
        assert_eq!(claims.profile.verified_email().expect("verified"), "ada@example.com");
        assert!(told(|claims| claims["aud"] = json!(["coppice"])).is_ok());
        assert!(told(|claims| claims["auth_time"] = claims["iat"].clone()).is_ok());
        assert!(
            told(|claims| {
                claims["aud"] = json!(["coppice", "other"]);
                claims["azp"] = json!("coppice");
            })
            .is_ok()
        );
    }

    #[test]
    fn a_token_that_has_to_be_understood_beyond_what_is_known_is_refused() {
        let signer = signer();
        for crit in [vec!["exp".to_owned()], vec![]] {
            let header = Header { crit: Some(crit), ..header(Algorithm::EdDSA) };
            let token = jsonwebtoken::encode(&header, &claims(), &signer.key).expect("a token");
            assert!(judge(&signer, &token).is_err(), "{header:?}");
        }
    }

    #[test]
    fn a_second_factor_counts_where_the_provider_says_so() {
        for (amr, has_one) in [
            (json!(["pwd", "mfa"]), true),
            (json!(["pwd", "otp"]), false),
            (json!("mfa"), false),
            (json!([1, {}]), false),
            (Value::Null, false),
        ] {
            let shown = amr.to_string();
            let claims = told(|claims| claims["amr"] = amr).expect("a good token");
            assert_eq!(claims.has_second_factor(), has_one, "{shown}");
        }
        assert!(!told(|_| ()).expect("a good token").has_second_factor());
    }

    #[test]
    fn a_token_that_is_not_for_us_now_is_refused() {
        let now = Utc::now().timestamp();
        let wrong = [
            ("iss", json!("https://id.example.com/")),
            ("iss", json!("https://evil.example.com")),
            ("iss", Value::Null),
            ("iss", json!([EXPECTED.issuer])),
            ("iss", json!([EXPECTED.issuer, "https://evil.example.com"])),
            ("aud", json!("other")),
            ("aud", json!(["other"])),
            ("aud", json!(["coppice", "other"])),
            ("azp", json!("other")),
            ("exp", json!(now - 31)),
            ("exp", Value::Null),
            ("iat", json!(now + 90)),
            ("auth_time", json!(now + 90)),
            ("auth_time", json!(1e300)),
            ("nbf", json!(now + 90)),
            ("sub", Value::Null),
            ("nonce", json!("another")),
            ("nonce", Value::Null),
        ];
        for (name, value) in wrong {
            let shown = format!("{name} = {value}");
            assert!(told(|claims| claims[name] = value).is_err(), "{shown} is accepted");
        }
        for name in ["iss", "aud", "exp", "iat", "sub", "nonce"] {
            let without = told(|claims| {
                claims.as_object_mut().expect("an object").remove(name);
            });
            assert!(without.is_err(), "a token without {name} is accepted");
        }
    }

    #[test]
    fn nobody_else_signs_for_the_issuer() {
        let (signer, other) = (signer(), signer());
        let by_other =
            jsonwebtoken::encode(&header(Algorithm::EdDSA), &claims(), &other.key).expect("a token");
        assert!(judge(&signer, &by_other).is_err());
        // What everybody can read is no secret to sign with.
        let key = EncodingKey::from_secret(&signer.public);
        let confused = jsonwebtoken::encode(&header(Algorithm::HS256), &claims(), &key).expect("a token");
        assert!(judge(&signer, &confused).is_err());
        let part = |value: &Value| BASE64.encode(value.to_string());
        let unsigned = format!("{}.{}.", part(&json!({ "alg": "none", "kid": "k" })), part(&claims()));
        assert!(judge(&signer, &unsigned).is_err());
        let unknown = Header { kid: Some("other".to_owned()), ..Header::new(Algorithm::EdDSA) };
        let unknown = jsonwebtoken::encode(&unknown, &claims(), &signer.key).expect("a token");
        assert!(judge(&signer, &unknown).is_err());
    }

    #[test]
    fn an_address_counts_when_the_provider_vouches_for_it() {
        for (email, verified, counts) in [
            (json!("ada@example.com"), json!(true), true),
            (json!("ada@example.com"), json!("true"), true),
            (json!("ada@example.com"), json!(false), false),
            (json!("ada@example.com"), json!("false"), false),
            (json!("ada@example.com"), json!(1), false),
            (json!("ada@example.com"), Value::Null, false),
            (json!("ada"), json!(true), false),
            (json!("a da@example.com"), json!(true), false),
            (json!("adm\u{130}n@example.com"), json!(true), false),
            (json!("mar\u{212a}@example.com"), json!(true), false),
            (json!("ada@ex\u{430}mple.com"), json!(true), false),
            (json!("Ada@Example.com"), json!(true), true),
            (json!("ada@localhost"), json!(true), false),
            (json!("\"a@b\"@example.com"), json!(true), false),
            (json!("admin@coppice.local,x@example.com"), json!(true), false),
            (json!("<script>@example.com"), json!(true), false),
            (json!("ada@example.com."), json!(true), false),
            (Value::Null, json!(true), false),
        ] {
            let shown = format!("{email} {verified}");
            let claims = told(|claims| {
                claims["email"] = email;
                claims["email_verified"] = verified;
            });
            assert_eq!(claims.expect("a token").profile.verified_email().is_ok(), counts, "{shown}");
        }
    }
}
