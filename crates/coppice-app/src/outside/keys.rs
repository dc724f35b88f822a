//! The provider's keys, which of them signed a token, and what it says.

use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Header, Validation};
use reqwest::{Client, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{Result, broken};
use super::http::send;

/// Clocks may differ by this.
pub(crate) const SKEW_SECONDS: u64 = 30;
/// Signatures that anybody can check and only the provider can make.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

#[derive(Deserialize)]
struct Document {
    keys: Vec<serde_json::Value>,
}

/// Keys that it signs with.
#[derive(Debug, Default)]
pub(crate) struct Keys(Vec<Jwk>);

/// Fetches the keys.
pub(crate) async fn fetch(client: &Client, place: Url) -> Result<Keys> {
    let document: Document = send(client.get(place)).await?.json("its keys")?;
    // A kind of key that is not known here hides none of the others.
    let known = document.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
    Ok(Keys(known.filter(|key| key.common.public_key_use != Some(PublicKeyUse::Encryption)).collect()))
}

impl Keys {
    /// The key that signed a token with this header.
    pub(crate) fn find(&self, header: &Header) -> Option<DecodingKey> {
        let family = header.alg.family();
        if !ALGORITHMS.contains(&header.alg) || family == AlgorithmFamily::Hmac {
            return None;
        }
        let fits = |key: &&Jwk| match (&header.kid, &key.common.key_id) {
            (Some(wanted), Some(id)) => wanted == id,
            (Some(_), None) => false,
            (None, _) => true,
        };
        let signs_so =
            |key: &Jwk| key.common.key_algorithm.is_none_or(|one| one.to_string().parse() == Ok(header.alg));
        let keys = self.0.iter().filter(fits).filter(|key| signs_so(key));
        let mut keys =
            keys.filter_map(|key| DecodingKey::from_jwk(key).ok()).filter(|key| key.family() == family);
        let key = keys.next()?;
        // A token that names no key can only be of the one there is.
        (header.kid.is_some() || keys.next().is_none()).then_some(key)
    }
}

/// The header of a token. One that has to be understood beyond what is known here is refused (RFC 7515,
/// section 4.1.11).
pub(crate) fn header_of(token: &str) -> Result<Header> {
    let header = jsonwebtoken::decode_header(token).map_err(|error| broken(format!("its token: {error}")))?;
    match header.crit {
        Some(_) => Err(broken("its token has a header that is not known here and has to be understood")),
        None => Ok(header),
    }
}

/// Who made a token: one, and no list of them.
#[derive(Deserialize)]
struct Maker {
    #[serde(rename = "iss")]
    _issuer: String,
}

/// What a token says that `key` signed, if `issuer` made it for `audience` and for now, and it has the claims that
/// are `required`.
pub(crate) fn claims_of<T: DeserializeOwned>(
    token: &str,
    header: &Header,
    key: &DecodingKey,
    (issuer, audience): (&str, &str),
    required: &[&str],
) -> jsonwebtoken::errors::Result<T> {
    let mut validation = Validation::new(header.alg);
    validation.set_issuer(&[issuer]);
    validation.set_audience(&[audience]);
    validation.set_required_spec_claims(required);
    validation.leeway = SKEW_SECONDS;
    validation.validate_nbf = true;
    // The validation alone takes a list of issuers, too, of which one is right.
    jsonwebtoken::decode::<Maker>(token, key, &validation)?;
    Ok(jsonwebtoken::decode(token, key, &validation)?.claims)
}

#[cfg(test)]
impl Keys {
    pub(crate) fn of(keys: Vec<Jwk>) -> Self {
        Self(keys)
    }
}
