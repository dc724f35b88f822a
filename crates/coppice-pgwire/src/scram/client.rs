//! The side that signs in, with a key or with the password that it is made of.

use std::num::NonZeroU32;

use aws_lc_rs::constant_time;
use base64::Engine as _;

use super::{
    BASE64, ClientKey, ScramError, Verifier, attribute, base64_32, hmac_sha256, is_nonce, keys, new_nonce,
    sha256, xor,
};

/// Waits for the server's challenge.
#[derive(Debug)]
pub struct ScramClient {
    first_bare: String,
    nonce: String,
}

/// What the server has to answer.
#[derive(Debug)]
pub struct ServerProof([u8; 32]);

impl Default for ScramClient {
    fn default() -> Self {
        let nonce = new_nonce();
        Self { first_bare: format!("n=,r={nonce}"), nonce }
    }
}

impl ScramClient {
    /// The first message, for the mechanism without channel binding.
    pub fn first(&self) -> String {
        format!("n,,{}", self.first_bare)
    }

    /// Takes the server's challenge; gives the answer to send. `verifier` is
    /// the one that the key was checked against.
    ///
    /// # Errors
    /// When the challenge is malformed or answers another first message.
    pub fn respond(
        self,
        server_first: &[u8],
        key: &ClientKey,
        verifier: &Verifier,
    ) -> Result<(String, ServerProof), ScramError> {
        let challenge = std::str::from_utf8(server_first).map_err(|_| ScramError::Malformed("not UTF-8"))?;
        let nonce = attribute(challenge.split(',').next(), "r")
            .filter(|nonce| is_nonce(nonce) && nonce.starts_with(&self.nonce))
            .ok_or(ScramError::Malformed("another nonce"))?;
        let without_proof = format!("c=biws,r={nonce}");
        let auth_message = format!("{},{challenge},{without_proof}", self.first_bare);
        let signature = hmac_sha256(&sha256(&key.0), auth_message.as_bytes());
        let proof = BASE64.encode(xor(key.0, &signature));
        let expected = hmac_sha256(&verifier.server_key, auth_message.as_bytes());
        Ok((format!("{without_proof},p={proof}"), ServerProof(expected)))
    }
}

/// What signs in for who knows the password.
#[derive(Debug)]
pub struct Keys {
    key: ClientKey,
    verifier: Verifier,
}

impl Keys {
    /// Makes them as a server's challenge wants it, which takes about a
    /// millisecond for PostgreSQL's default number of iterations.
    ///
    /// # Errors
    /// When the challenge is malformed.
    pub fn derive(server_first: &[u8], password: &str) -> Result<Self, ScramError> {
        let (salt, iterations) = work(server_first)?;
        let (key, verifier) = keys(password, &salt, iterations);
        Ok(Self { key, verifier })
    }

    /// How often a challenge wants the password hashed: what [`Keys::derive`]
    /// takes grows with it, and it is for the owner of the role to choose.
    ///
    /// # Errors
    /// When the challenge is malformed.
    pub fn iterations(server_first: &[u8]) -> Result<NonZeroU32, ScramError> {
        work(server_first).map(|(_, iterations)| iterations)
    }

    /// As [`ScramClient::respond`].
    ///
    /// # Errors
    /// The same.
    pub fn respond(
        &self,
        client: ScramClient,
        server_first: &[u8],
    ) -> Result<(String, ServerProof), ScramError> {
        client.respond(server_first, &self.key, &self.verifier)
    }
}

/// Salt and iterations of a server's challenge.
fn work(server_first: &[u8]) -> Result<(Vec<u8>, NonZeroU32), ScramError> {
    let malformed = || ScramError::Malformed("no salt and iterations");
    let challenge = std::str::from_utf8(server_first).map_err(|_| malformed())?;
    let mut attributes = challenge.split(',').skip(1);
    let salt = attribute(attributes.next(), "s").and_then(|salt| BASE64.decode(salt).ok());
    let iterations = attribute(attributes.next(), "i").and_then(|count| count.parse().ok());
    Ok((salt.ok_or_else(malformed)?, iterations.ok_or_else(malformed)?))
}

impl ServerProof {
    /// Checks the server's last message.
    ///
    /// # Errors
    /// [`ScramError::WrongProof`] when the server does not hold the verifier.
    pub fn verify(&self, server_final: &[u8]) -> Result<(), ScramError> {
        let text = std::str::from_utf8(server_final).ok();
        let signature = text.and_then(|text| base64_32(attribute(text.split(',').next(), "v")?));
        let signature = signature.ok_or(ScramError::Malformed("no server signature"))?;
        constant_time::verify_slices_are_equal(&signature, &self.0).map_err(|_| ScramError::WrongProof)
    }
}

#[cfg(test)]
mod tests {
    use super::super::server::tests::keys;
    use super::{Keys, *};
    use crate::scram::{SCRAM_SHA_256, ScramServer};

    #[test]
    fn a_key_signs_in_where_its_verifier_is_held_and_nowhere_else() {
        let (key, verifier) = keys("pencil", b"salt", 1);
        let (_, other) = keys("crayon", b"salt", 1);
        for (held, accepted) in [(&verifier, true), (&other, false)] {
            let client = ScramClient::default();
            let server = ScramServer::new(held.clone(), None);
            let (challenge, server) = server.challenge(SCRAM_SHA_256, client.first().as_bytes()).unwrap();
            let (answer, proof) = client.respond(challenge.as_bytes(), &key, &verifier).unwrap();
            match server.verify(answer.as_bytes()) {
                Ok(done) => {
                    assert!(accepted);
                    assert_eq!(proof.verify(done.server_final.as_bytes()), Ok(()));
                }
                Err(error) => {
                    assert!(!accepted);
                    assert_eq!(error, ScramError::WrongProof);
                }
            }
        }
    }

    #[test]
    fn a_password_signs_in_however_its_letters_are_composed() {
        // What the server keeps is made of the composed form (RFC 4013).
        let (_, verifier) = keys("caf\u{e9} IX", b"salt", 1);
        for (password, accepted) in
            [("caf\u{e9} IX", true), ("cafe\u{301}\u{a0}\u{2168}", true), ("cafe IX", false)]
        {
            let client = ScramClient::default();
            let server = ScramServer::new(verifier.clone(), None);
            let (challenge, server) = server.challenge(SCRAM_SHA_256, client.first().as_bytes()).unwrap();
            let made = Keys::derive(challenge.as_bytes(), password).unwrap();
            let (answer, _) = made.respond(client, challenge.as_bytes()).unwrap();
            assert_eq!(server.verify(answer.as_bytes()).is_ok(), accepted, "{password}");
        }
    }

    #[test]
    fn a_challenge_says_how_much_work_it_is_or_is_none() {
        for challenge in ["r=x", "r=x,s=c2FsdA==", "r=x,s=c2FsdA==,i=0", "r=x,i=1,s=c2FsdA=="] {
            assert!(matches!(Keys::derive(challenge.as_bytes(), "pencil"), Err(ScramError::Malformed(_))));
        }
        assert_eq!(Keys::iterations(b"r=x,s=c2FsdA==,i=1000001").map(NonZeroU32::get), Ok(1_000_001));
    }

    #[test]
    fn a_server_that_only_pretends_is_found_out() {
        let (key, verifier) = keys("pencil", b"salt", 1);
        let client = ScramClient::default();
        let challenge = format!("r={}x,s=c2FsdA==,i=1", client.nonce);
        let (_, proof) = client.respond(challenge.as_bytes(), &key, &verifier).unwrap();
        let forged = format!("v={}", BASE64.encode([7; 32]));
        assert_eq!(proof.verify(forged.as_bytes()), Err(ScramError::WrongProof));
        let rejected = proof.verify(b"e=other-error");
        assert_eq!(rejected, Err(ScramError::Malformed("no server signature")));
    }

    #[test]
    fn a_challenge_for_someone_else_is_refused() {
        let (key, verifier) = keys("pencil", b"salt", 1);
        let error = ScramClient::default().respond(b"r=abc,s=c2FsdA==,i=1", &key, &verifier).err();
        assert_eq!(error, Some(ScramError::Malformed("another nonce")));
    }
}
