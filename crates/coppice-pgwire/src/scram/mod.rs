//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677), as PostgreSQL
//! speaks it: the user name inside is ignored, there is no authorization
//! identity, and the only channel binding is `tls-server-end-point`.
//!
//! The server side learns the client's key while it checks the proof. With
//! that key, and without the password, the client side signs in to another
//! server that holds the same verifier.

mod client;
mod server;
mod verifier;

use std::num::NonZeroU32;

use aws_lc_rs::{digest, hmac, pbkdf2, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use zeroize::{Zeroize, ZeroizeOnDrop};

pub use client::{Keys, ScramClient, ServerProof};
pub use server::{Accepted, ScramChallenge, ScramServer};
pub use verifier::Verifier;

/// The mechanism without channel binding.
pub const SCRAM_SHA_256: &str = "SCRAM-SHA-256";
/// The mechanism with channel binding.
pub const SCRAM_SHA_256_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// A message that is not SCRAM, or asks for what is not supported.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// The client sees another channel than we do.
    #[error("SCRAM channel binding check failed")]
    ChannelBinding,
    /// The other side does not know the secret.
    #[error("SCRAM proof does not match")]
    WrongProof,
}

/// The client's secret: with it one can sign in, and compute nothing else.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct ClientKey([u8; 32]);

impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientKey")
    }
}

fn hmac_sha256(key: &[u8], text: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    tag.as_ref().try_into().expect("an HMAC-SHA-256 has 32 bytes")
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("a SHA-256 has 32 bytes")
}

/// What signs in, and what a server keeps, of a password. One that is no
/// SASLprep string (RFC 4013) counts as it is, as in PostgreSQL.
fn keys(password: &str, salt: &[u8], iterations: NonZeroU32) -> (ClientKey, Verifier) {
    let prepared = stringprep::saslprep(password).unwrap_or(password.into());
    let mut salted = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, prepared.as_bytes(), &mut salted);
    let client_key = hmac_sha256(&salted, b"Client Key");
    let verifier = Verifier {
        iterations,
        salt: salt.to_vec(),
        stored_key: sha256(&client_key),
        server_key: hmac_sha256(&salted, b"Server Key"),
    };
    salted.zeroize();
    (ClientKey(client_key), verifier)
}

fn xor(mut left: [u8; 32], right: &[u8; 32]) -> [u8; 32] {
    left.iter_mut().zip(right).for_each(|(left, right)| *left ^= right);
    left
}

fn base64_32(text: &str) -> Option<[u8; 32]> {
    BASE64.decode(text).ok()?.try_into().ok()
}

fn new_nonce() -> String {
    let mut bytes = [0; 18];
    rand::fill(&mut bytes).expect("the system random source works");
    BASE64.encode(bytes)
}

/// Reads an attribute `<name>=<value>`.
fn attribute<'a>(text: Option<&'a str>, name: &str) -> Option<&'a str> {
    text?.strip_prefix(name)?.strip_prefix('=')
}

fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}
