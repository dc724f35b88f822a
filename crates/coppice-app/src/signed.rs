//! What services sign that they send.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

/// Tags that are looked at: a service sends one for each of the secrets that it has, which
/// are two while one is replaced.
const TAGS_MAX: usize = 10;

/// Whether one of the first `tags`, in hexadecimal, is that of `signed` by HMAC-SHA-256 with
/// one of the secrets.
pub(crate) fn is_signed_by<'a>(
    secrets: &[Zeroizing<String>],
    signed: &[u8],
    tags: impl Iterator<Item = &'a str>,
) -> bool {
    let tags: Vec<_> = tags.take(TAGS_MAX).filter_map(|tag| hex::decode(tag).ok()).collect();
    secrets.iter().any(|secret| {
        let own = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed);
        tags.iter().any(|tag| verify_slices_are_equal(own.as_ref(), tag).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_tags_the_first_are_looked_at() {
        let secrets = ["old", "new"].map(|secret| Zeroizing::new(secret.to_owned()));
        let own = hex::encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"new"), b"said"));
        let after = |others: usize| vec![""; others].into_iter().chain([own.as_str()]);
        assert!(is_signed_by(&secrets, b"said", after(TAGS_MAX - 1)));
        assert!(!is_signed_by(&secrets, b"said", after(TAGS_MAX)));
        assert!(!is_signed_by(&secrets, b"else", after(0)));
        assert!(!is_signed_by(&secrets[..1], b"said", after(0)) && !is_signed_by(&[], b"said", after(0)));
    }
}
