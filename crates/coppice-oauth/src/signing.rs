//! Keys that tokens are signed with.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Serialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::random::sha256;

/// How tokens are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningAlgorithm {
    /// RSA with 2048 bits: every client can check it.
    Rs256,
    /// Ed25519: smaller and faster.
    EdDsa,
}

impl SigningAlgorithm {
    /// The name in tokens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Reads the name in tokens.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Rs256, Self::EdDsa].into_iter().find(|algorithm| algorithm.as_str() == text)
    }

    fn jwt(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RS256,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}

/// A key could not be made or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signing key is damaged")]
pub struct DamagedKey;

enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ed25519(Box<Ed25519KeyPair>),
}

/// A key that signs.
pub struct SigningKey {
    pair: Pair,
    /// Its public half.
    pub public: PublicKey,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({})", self.public.id)
    }
}

/// A key that checks.
#[derive(Clone)]
pub struct PublicKey {
    /// Its thumbprint (RFC 7638).
    pub id: String,
    /// How it is used.
    pub algorithm: SigningAlgorithm,
    /// As clients get it.
    pub jwk: Value,
    decoding: DecodingKey,
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({})", self.id)
    }
}

impl SigningKey {
    /// Makes a key, as PKCS #8 in base64. An RSA key takes a while.
    ///
    /// # Errors
    /// When the cryptographic library fails.
    pub fn generate(algorithm: SigningAlgorithm) -> Result<Zeroizing<String>, DamagedKey> {
        let der = match algorithm {
            SigningAlgorithm::Rs256 => {
                let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(|_| DamagedKey)?;
                Zeroizing::new(pair.as_der().map_err(|_| DamagedKey)?.as_ref().to_vec())
            }
            SigningAlgorithm::EdDsa => {
                let pair = Ed25519KeyPair::generate().map_err(|_| DamagedKey)?;
                Zeroizing::new(pair.to_pkcs8v1().map_err(|_| DamagedKey)?.as_ref().to_vec())
            }
        };
        Ok(Zeroizing::new(BASE64URL.encode(der.as_slice())))
    }

    /// Reads a key that was made before.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(algorithm: SigningAlgorithm, private: &str) -> Result<Self, DamagedKey> {
        let der = Zeroizing::new(BASE64URL.decode(private).map_err(|_| DamagedKey)?);
        let (pair, jwk) = match algorithm {
            SigningAlgorithm::Rs256 => {
                let pair = RsaKeyPair::from_pkcs8(&der).map_err(|_| DamagedKey)?;
                let public = pair.public_key();
                let (n, e) = (public.modulus(), public.exponent());
                let (n, e) = (n.big_endian_without_leading_zero(), e.big_endian_without_leading_zero());
                let jwk = json!({ "kty": "RSA", "n": BASE64URL.encode(n), "e": BASE64URL.encode(e) });
                (Pair::Rsa(Box::new(pair)), jwk)
            }
            SigningAlgorithm::EdDsa => {
                let pair = Ed25519KeyPair::from_pkcs8(&der).map_err(|_| DamagedKey)?;
                let x = BASE64URL.encode(pair.public_key().as_ref());
                (Pair::Ed25519(Box::new(pair)), json!({ "kty": "OKP", "crv": "Ed25519", "x": x }))
            }
        };
        Ok(Self { pair, public: PublicKey::new(algorithm, jwk)? })
    }

    /// Signs claims as a JWT.
    ///
    /// # Errors
    /// When the cryptographic library fails.
    pub fn sign(&self, claims: &impl Serialize) -> Result<String, DamagedKey> {
        let header = json!({ "alg": self.public.algorithm.as_str(), "typ": "JWT", "kid": self.public.id });
        let claims = serde_json::to_vec(claims).map_err(|_| DamagedKey)?;
        let text = format!("{}.{}", BASE64URL.encode(header.to_string()), BASE64URL.encode(claims));
        let signature = match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
                    .map_err(|_| DamagedKey)?;
                signature
            }
            Pair::Ed25519(pair) => pair.sign(text.as_bytes()).as_ref().to_vec(),
        };
        Ok(format!("{text}.{}", BASE64URL.encode(signature)))
    }
}

impl PublicKey {
    /// Reads what [`PublicKey::jwk`] was.
    ///
    /// # Errors
    /// When it is no key of this kind.
    pub fn new(algorithm: SigningAlgorithm, mut jwk: Value) -> Result<Self, DamagedKey> {
        let text = |name: &str| jwk[name].as_str().ok_or(DamagedKey);
        // The members that the standard names, in its order.
        let id = sha256(&match algorithm {
            SigningAlgorithm::Rs256 => {
                format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, text("e")?, text("n")?)
            }
            SigningAlgorithm::EdDsa => {
                format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, text("x")?)
            }
        });
        jwk["use"] = "sig".into();
        jwk["alg"] = algorithm.as_str().into();
        jwk["kid"] = id.clone().into();
        let parsed: Jwk = serde_json::from_value(jwk.clone()).map_err(|_| DamagedKey)?;
        let decoding = DecodingKey::from_jwk(&parsed).map_err(|_| DamagedKey)?;
        Ok(Self { id, algorithm, jwk, decoding })
    }

    pub(crate) fn decoding(&self) -> (&DecodingKey, Algorithm) {
        (&self.decoding, self.algorithm.jwt())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn key(algorithm: SigningAlgorithm) -> SigningKey {
        SigningKey::read(algorithm, &SigningKey::generate(algorithm).expect("a key")).expect("the key")
    }

    #[test]
    fn a_key_is_read_as_it_was_made() {
        for algorithm in [SigningAlgorithm::Rs256, SigningAlgorithm::EdDsa] {
            let made = SigningKey::generate(algorithm).expect("a key");
            let (first, second) = (SigningKey::read(algorithm, &made), SigningKey::read(algorithm, &made));
            let (first, second) = (first.expect("a key"), second.expect("a key"));
            assert_eq!(first.public.jwk, second.public.jwk);
            let again = PublicKey::new(algorithm, first.public.jwk.clone()).expect("a key");
            assert_eq!(again.id, first.public.id);
            assert!(first.public.jwk.get("d").is_none(), "nothing private");
        }
        assert!(SigningKey::read(SigningAlgorithm::EdDsa, "AAAA").is_err());
    }

    #[test]
    fn a_key_is_named_by_its_thumbprint() {
        // The key and thumbprint of RFC 7638, 3.1.
        let jwk = json!({
            "kty": "RSA", "e": "AQAB",
            "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
        });
        let key = PublicKey::new(SigningAlgorithm::Rs256, jwk).expect("a key");
        assert_eq!(key.id, "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    }
}
