//! An authenticator app.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;

use crate::http::Http;
use crate::oauth::metastore;

/// An authenticator app, by the letter of RFC 4226 and 6238.
pub(super) struct Phone {
    secret: Vec<u8>,
    email: String,
}

impl Phone {
    /// One that was given this secret as base32.
    pub(super) fn with(secret: &str, email: &str) -> Self {
        let (mut bits, mut held, mut bytes) = (0_u32, 0, vec![]);
        for letter in secret.bytes() {
            let value = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".iter().position(|known| *known == letter);
            bits = bits << 5 | u32::try_from(value.expect("base32")).expect("five bits");
            held += 5;
            if held >= 8 {
                held -= 8;
                bytes.push((bits >> held) as u8);
                bits &= (1 << held) - 1;
            }
        }
        Self { secret: bytes, email: email.to_owned() }
    }

    /// What it shows now.
    pub(super) fn shows(&self) -> String {
        let step = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs() / 30;
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.secret);
        let hash = hmac::sign(&key, &step.to_be_bytes());
        let hash = hash.as_ref();
        let at = usize::from(hash[19] & 15);
        let number = u32::from_be_bytes(hash[at..at + 4].try_into().expect("four bytes")) & 0x7fff_ffff;
        format!("{:06}", number % 1_000_000)
    }

    /// A code that was not used, as if half a minute had gone by.
    pub(super) fn shows_anew(&self, http: &Http) -> String {
        metastore(http, &format!("update users set totp_step = 0 where email = '{}'", self.email));
        self.shows()
    }
}
