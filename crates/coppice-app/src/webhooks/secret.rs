//! What deliveries are signed with, as Standard Webhooks says.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_core::{Error, Result, random};
use zeroize::Zeroizing;

/// Begins every secret.
const PREFIX: &str = "whsec_";
const LENGTH: usize = 32;

/// A new secret.
pub(super) fn generate() -> Zeroizing<String> {
    let mut bytes = Zeroizing::new([0; LENGTH]);
    random::fill(bytes.as_mut());
    Zeroizing::new(format!("{PREFIX}{}", BASE64_STANDARD.encode(bytes.as_ref())))
}

/// The value of `webhook-signature`: one for each secret.
///
/// # Errors
/// `internal_error` for a text that is no secret.
pub(super) fn sign(secrets: &[Zeroizing<String>], id: &str, timestamp: i64, body: &str) -> Result<String> {
    let signed = format!("{id}.{timestamp}.{body}");
    let sign = |secret: &Zeroizing<String>| {
        let bytes = secret.strip_prefix(PREFIX).and_then(|text| BASE64_STANDARD.decode(text).ok());
        let bytes = Zeroizing::new(bytes.ok_or_else(|| Error::internal("a secret of a webhook is none"))?);
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &bytes), signed.as_bytes());
        Ok(format!("v1,{}", BASE64_STANDARD.encode(tag)))
    };
    Ok(secrets.iter().map(sign).collect::<Result<Vec<_>>>()?.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_signed_as_the_standard_shows() {
        // The example of the specification of Standard Webhooks.
        let secret = Zeroizing::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let body = r#"{"test": 2432232314}"#;
        let signed = sign(std::slice::from_ref(&secret), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed.expect("signed"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let both = sign(&[generate(), secret], "id", 1, "").expect("signed");
        assert_eq!(both.split(' ').filter(|one| one.starts_with("v1,")).count(), 2);
        assert!(sign(&[Zeroizing::new("secret".to_owned())], "id", 1, "").is_err());
    }

    #[test]
    fn secrets_differ_and_have_32_bytes() {
        let (one, other) = (generate(), generate());
        assert_ne!(*one, *other);
        let bytes = BASE64_STANDARD.decode(one.strip_prefix("whsec_").expect("the prefix"));
        assert_eq!(bytes.expect("base64").len(), 32);
    }
}
