//! Proof that whoever redeems a code is who asked for it (RFC 7636). Only
//! `S256`: with `plain`, who can read the request can redeem the code.

use crate::OAuthError;
use crate::random::{equal, sha256};

/// What a client commits to when it asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge(String);

fn is_unreserved(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

impl Challenge {
    /// Reads the parameters of an authorization request.
    ///
    /// # Errors
    /// `invalid_request` when the method is not `S256`, or the challenge is no hash.
    pub fn read(challenge: Option<&str>, method: Option<&str>) -> Result<Option<Self>, OAuthError> {
        let Some(challenge) = challenge else {
            return match method {
                Some(_) => Err(OAuthError::invalid_request("code_challenge is missing")),
                None => Ok(None),
            };
        };
        if method != Some("S256") {
            return Err(OAuthError::invalid_request("code_challenge_method must be S256"));
        }
        if challenge.len() != 43 || !is_unreserved(challenge) {
            return Err(OAuthError::invalid_request("code_challenge must be a SHA-256 in base64url"));
        }
        Ok(Some(Self(challenge.to_owned())))
    }

    /// A challenge that was read before.
    pub fn from_trusted(text: String) -> Self {
        Self(text)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `verifier` is what the challenge was made from.
    pub fn is_met_by(&self, verifier: &str) -> bool {
        (43..=128).contains(&verifier.len()) && is_unreserved(verifier) && equal(&sha256(verifier), &self.0)
    }
}

/// Whether the verifier of a token request fits the challenge of the
/// authorization request. A verifier without a challenge is refused as well:
/// somebody may have removed the challenge on the way.
pub fn is_proven(challenge: Option<&Challenge>, verifier: Option<&str>) -> bool {
    match (challenge, verifier) {
        (Some(challenge), Some(verifier)) => challenge.is_met_by(verifier),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The pair of RFC 7636, appendix B.
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    #[test]
    fn the_pair_of_the_standard_fits() {
        let challenge = Challenge::read(Some(CHALLENGE), Some("S256")).expect("a challenge");
        assert!(is_proven(challenge.as_ref(), Some(VERIFIER)));
        assert!(!is_proven(challenge.as_ref(), Some(CHALLENGE)));
        assert!(!is_proven(challenge.as_ref(), None));
    }

    #[test]
    fn plain_is_refused_also_when_it_is_not_said() {
        for method in [Some("plain"), Some("s256"), None] {
            assert!(Challenge::read(Some(CHALLENGE), method).is_err(), "{method:?}");
        }
        assert!(Challenge::read(None, Some("S256")).is_err());
        assert_eq!(Challenge::read(None, None), Ok(None));
    }

    #[test]
    fn a_verifier_without_a_challenge_is_refused() {
        assert!(!is_proven(None, Some(VERIFIER)));
        assert!(is_proven(None, None));
    }

    #[test]
    fn a_challenge_is_a_hash() {
        let long = "a".repeat(44);
        for text in ["", "abc", long.as_str(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw+cM"] {
            assert!(Challenge::read(Some(text), Some("S256")).is_err(), "{text}");
        }
    }
}
