//! Secrets that nobody can guess, and comparing them.

use aws_lc_rs::{constant_time, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Characters of a secret.
pub const SECRET_LENGTH: usize = 43;

/// A new secret of 256 bits, as [`SECRET_LENGTH`] characters that need no
/// escaping anywhere.
pub fn secret() -> String {
    let mut bytes = [0; 32];
    coppice_core::random::fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// SHA-256 as base64url.
pub(crate) fn sha256(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, text.as_bytes()))
}

/// Whether two texts are equal, in a time that tells nothing about where they differ.
pub fn equal(a: &str, b: &str) -> bool {
    constant_time::verify_slices_are_equal(a.as_bytes(), b.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_and_never_the_same() {
        let (a, b) = (secret(), secret());
        assert_eq!(a.len(), SECRET_LENGTH);
        assert!(!equal(&a, &b) && equal(&a, &a.clone()));
    }
}
