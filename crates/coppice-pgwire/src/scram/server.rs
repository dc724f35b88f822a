//! The side that checks.

use aws_lc_rs::constant_time;
use base64::Engine as _;

use super::{
    BASE64, ClientKey, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramError, Verifier, attribute, base64_32,
    hmac_sha256, is_nonce, new_nonce, sha256, xor,
};

const PLUS_HEADER: &str = "p=tls-server-end-point,,";

/// Waits for the client's first message.
#[derive(Debug)]
pub struct ScramServer {
    verifier: Verifier,
    certificate_digest: Option<Vec<u8>>,
    nonce: String,
}

/// Waits for the client's proof.
#[derive(Debug)]
pub struct ScramChallenge {
    verifier: Verifier,
    client_first_bare: String,
    server_first: String,
    nonce: String,
    channel_binding: String,
}

/// The client knows the password.
#[derive(Debug)]
pub struct Accepted {
    /// The key it proved to have.
    pub client_key: ClientKey,
    /// Proves to the client that we hold the verifier.
    pub server_final: String,
}

impl ScramServer {
    /// Begins an exchange. With the digest of the certificate that the client
    /// was shown, channel binding is offered.
    pub fn new(verifier: Verifier, certificate_digest: Option<Vec<u8>>) -> Self {
        Self { verifier, certificate_digest, nonce: new_nonce() }
    }

    /// The mechanisms to offer, best first; channel binding needs the digest of
    /// a certificate.
    pub fn mechanisms(has_digest: bool) -> &'static [&'static str] {
        if has_digest { &[SCRAM_SHA_256_PLUS, SCRAM_SHA_256] } else { &[SCRAM_SHA_256] }
    }

    /// Takes the client's first message; gives the answer to send.
    ///
    /// # Errors
    /// When the message is malformed, or the client believes that we offered
    /// other mechanisms than we did.
    pub fn challenge(
        self,
        mechanism: &str,
        client_first: &[u8],
    ) -> Result<(String, ScramChallenge), ScramError> {
        let message = std::str::from_utf8(client_first).map_err(|_| ScramError::Malformed("not UTF-8"))?;
        let (header, bare) = split_header(message)?;
        let bound = match (mechanism, &self.certificate_digest) {
            (SCRAM_SHA_256_PLUS, Some(digest)) if header == PLUS_HEADER => digest.as_slice(),
            (SCRAM_SHA_256_PLUS, Some(_)) => return Err(ScramError::ChannelBinding),
            (SCRAM_SHA_256, _) if header == "n,," => &[],
            (SCRAM_SHA_256, None) if header == "y,," => &[],
            // The client supports channel binding and was not offered it, or
            // someone between us took the offer away.
            (SCRAM_SHA_256, _) => return Err(ScramError::ChannelBinding),
            _ => return Err(ScramError::Malformed("mechanism was not offered")),
        };
        let mut attributes = bare.split(',');
        attribute(attributes.next(), "n").ok_or(ScramError::Malformed("no user name"))?;
        let client_nonce = attribute(attributes.next(), "r")
            .filter(|nonce| is_nonce(nonce))
            .ok_or(ScramError::Malformed("no nonce"))?;

        let nonce = format!("{client_nonce}{}", self.nonce);
        let Verifier { iterations, salt, .. } = &self.verifier;
        let server_first = format!("r={nonce},s={},i={iterations}", BASE64.encode(salt));
        let challenge = ScramChallenge {
            client_first_bare: bare.to_owned(),
            server_first: server_first.clone(),
            nonce,
            channel_binding: BASE64.encode([header.as_bytes(), bound].concat()),
            verifier: self.verifier,
        };
        Ok((server_first, challenge))
    }
}

/// Cuts a client's first message after its second comma.
fn split_header(message: &str) -> Result<(&str, &str), ScramError> {
    let mut commas = message.match_indices(',').map(|(index, _)| index);
    let end = commas.nth(1).ok_or(ScramError::Malformed("no header"))?;
    Ok(message.split_at(end + 1))
}

impl ScramChallenge {
    /// Takes the client's last message.
    ///
    /// # Errors
    /// [`ScramError::WrongProof`] for another password; others when the
    /// message does not fit the exchange.
    pub fn verify(self, client_final: &[u8]) -> Result<Accepted, ScramError> {
        let message = std::str::from_utf8(client_final).map_err(|_| ScramError::Malformed("not UTF-8"))?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or(ScramError::Malformed("no proof"))?;
        let proof = base64_32(proof).ok_or(ScramError::Malformed("invalid proof"))?;
        let mut attributes = without_proof.split(',');
        if attribute(attributes.next(), "c") != Some(&self.channel_binding) {
            return Err(ScramError::ChannelBinding);
        }
        if attribute(attributes.next(), "r") != Some(&self.nonce) {
            return Err(ScramError::Malformed("another nonce"));
        }

        let auth_message = format!("{},{},{without_proof}", self.client_first_bare, self.server_first);
        let signature = hmac_sha256(&self.verifier.stored_key, auth_message.as_bytes());
        let client_key = ClientKey(xor(proof, &signature));
        constant_time::verify_slices_are_equal(&sha256(&client_key.0), &self.verifier.stored_key)
            .map_err(|_| ScramError::WrongProof)?;
        let server_signature = hmac_sha256(&self.verifier.server_key, auth_message.as_bytes());
        Ok(Accepted { client_key, server_final: format!("v={}", BASE64.encode(server_signature)) })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    /// Derives what both sides keep of a password.
    pub(crate) fn keys(password: &str, salt: &[u8], iterations: u32) -> (ClientKey, Verifier) {
        super::super::keys(password, salt, NonZeroU32::new(iterations).expect("not zero"))
    }

    // The exchange in RFC 7677 section 3.
    const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn server(digest: Option<&[u8]>) -> ScramServer {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let (_, verifier) = keys("pencil", &salt, 4096);
        ScramServer {
            nonce: SERVER_NONCE.to_owned(),
            ..ScramServer::new(verifier, digest.map(<[u8]>::to_vec))
        }
    }

    #[test]
    fn the_exchange_of_rfc_7677_succeeds_and_yields_the_clients_key() {
        let (server_first, challenge) =
            server(None).challenge(SCRAM_SHA_256, CLIENT_FIRST.as_bytes()).expect("is accepted");
        assert_eq!(server_first, SERVER_FIRST);
        let accepted = challenge.verify(CLIENT_FINAL.as_bytes()).expect("is accepted");
        assert_eq!(accepted.server_final, SERVER_FINAL);
        let (client_key, _) = keys("pencil", &BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap(), 4096);
        assert_eq!(accepted.client_key.0, client_key.0);
    }

    #[test]
    fn another_proof_or_nonce_or_binding_is_refused() {
        let cases = [
            (CLIENT_FINAL.replace("p=dHz", "p=eHz"), ScramError::WrongProof),
            (CLIENT_FINAL.replace("$k0", "$k1"), ScramError::Malformed("another nonce")),
            (CLIENT_FINAL.replace("c=biws", "c=eSws"), ScramError::ChannelBinding),
            (CLIENT_FINAL.replace("dVQ=", "dVQ"), ScramError::Malformed("invalid proof")),
            (CLIENT_FINAL.replace(",p=", ",q="), ScramError::Malformed("no proof")),
        ];
        for (message, error) in cases {
            let (_, challenge) = server(None).challenge(SCRAM_SHA_256, CLIENT_FIRST.as_bytes()).unwrap();
            assert_eq!(challenge.verify(message.as_bytes()).err(), Some(error), "{message}");
        }
    }

    #[test]
    fn a_client_that_was_robbed_of_channel_binding_is_refused() {
        let begin = |digest, mechanism, header: &str| {
            let message = CLIENT_FIRST.replace("n,,", header);
            server(digest).challenge(mechanism, message.as_bytes()).err()
        };
        let digest = Some(&b"digest"[..]);
        assert_eq!(begin(None, SCRAM_SHA_256, "y,,"), None);
        assert_eq!(begin(digest, SCRAM_SHA_256, "n,,"), None);
        assert_eq!(begin(digest, SCRAM_SHA_256_PLUS, PLUS_HEADER), None);
        assert_eq!(begin(digest, SCRAM_SHA_256, "y,,"), Some(ScramError::ChannelBinding));
        assert_eq!(begin(digest, SCRAM_SHA_256_PLUS, "n,,"), Some(ScramError::ChannelBinding));
        assert_eq!(begin(digest, SCRAM_SHA_256_PLUS, "p=tls-unique,,"), Some(ScramError::ChannelBinding));
        assert_eq!(begin(None, SCRAM_SHA_256, "n,a=bob,"), Some(ScramError::ChannelBinding));
        let not_offered = Some(ScramError::Malformed("mechanism was not offered"));
        assert_eq!(begin(None, SCRAM_SHA_256_PLUS, PLUS_HEADER), not_offered);
    }

    #[test]
    fn mandatory_extensions_are_not_supported() {
        let message = CLIENT_FIRST.replace("n=user", "m=x,n=user");
        let error = server(None).challenge(SCRAM_SHA_256, message.as_bytes()).err();
        assert_eq!(error, Some(ScramError::Malformed("no user name")));
    }

    proptest! {
        #[test]
        fn no_message_makes_the_server_panic(first in ".{0,40}", last in ".{0,40}") {
            let _ = server(None).challenge(SCRAM_SHA_256, first.as_bytes());
            let (_, challenge) = server(None).challenge(SCRAM_SHA_256, CLIENT_FIRST.as_bytes()).unwrap();
            prop_assert!(challenge.verify(last.as_bytes()).is_err());
        }
    }
}
