//! What services sign that they send.

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

/// Whether one of `tags`, in hexadecimal, is that of `signed` by HMAC-SHA-256 with one of the secrets.
pub(crate) fn is_signed_by<'a>(
    secrets: &[Zeroizing<String>],
    signed: &[u8],
    tags: impl Iterator<Item = &'a str>,
) -> bool {
    let mut tags = tags.filter_map(|tag| hex::decode(tag).ok());
    tags.any(|tag| {
        // Compared in constant time.
        secrets.iter().any(|secret| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
            hmac::verify(&key, signed, &tag).is_ok()
        })
    })
}
