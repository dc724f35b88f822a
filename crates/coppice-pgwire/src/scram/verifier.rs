//! What a server keeps of a password.

use std::num::NonZeroU32;

use super::{BASE64, base64_32, hmac_sha256};
use base64::Engine as _;

/// PostgreSQL's default number of iterations.
const ITERATIONS_DEFAULT: NonZeroU32 = NonZeroU32::new(4096).expect("not zero");

/// Bounds of what a tenant chose: a client computes as often as the server
/// says, and gets the salt in every exchange. PostgreSQL makes salts of 16 bytes.
const ITERATIONS_MAX: u32 = 1_000_000;
const SALT_LENGTH_MAX: usize = 64;

/// A parsed `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub(super) iterations: NonZeroU32,
    pub(super) salt: Vec<u8>,
    pub(super) stored_key: [u8; 32],
    pub(super) server_key: [u8; 32],
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifier")
    }
}

impl Verifier {
    /// Reads the text of `pg_authid.rolpassword`; none when it is no verifier,
    /// or one with a salt of more than 64 bytes or more than a million iterations.
    pub fn parse(text: &str) -> Option<Self> {
        let (parameters, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        Some(Self {
            iterations: iterations.parse().ok().filter(|count: &NonZeroU32| count.get() <= ITERATIONS_MAX)?,
            salt: BASE64.decode(salt).ok().filter(|salt| (1..=SALT_LENGTH_MAX).contains(&salt.len()))?,
            stored_key: base64_32(stored_key)?,
            server_key: base64_32(server_key)?,
        })
    }

    /// The verifier of a password, with PostgreSQL's default number of iterations.
    pub fn of(password: &str, salt: &[u8]) -> Self {
        super::keys(password, salt, ITERATIONS_DEFAULT).1
    }

    /// The text that [`Verifier::parse`] reads (RFC 5803).
    pub fn to_text(&self) -> String {
        format!(
            "SCRAM-SHA-256${}:{}${}:{}",
            self.iterations,
            BASE64.encode(&self.salt),
            BASE64.encode(self.stored_key),
            BASE64.encode(self.server_key)
        )
    }

    /// A verifier that no password fits, for a role that has none. The same
    /// name always gets the same salt, as a real role would.
    pub fn fake(secret: &[u8; 32], name: &str) -> Self {
        let derive =
            |purpose: &str| hmac_sha256(secret, &[purpose.as_bytes(), b"\0", name.as_bytes()].concat());
        Self {
            iterations: ITERATIONS_DEFAULT,
            salt: derive("salt")[..16].to_vec(),
            stored_key: derive("stored key"),
            server_key: derive("server key"),
        }
    }

    /// True for one made-up verifier in `many`; nothing that a client is shown tells for which.
    pub fn draws_one_in(&self, many: u8) -> bool {
        self.stored_key[0].is_multiple_of(many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "SCRAM-SHA-256$4096:c2FsdHNhbHRzYWx0c2FsdA==$\
        AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    #[test]
    fn the_text_of_pg_authid_is_read() {
        let verifier = Verifier::parse(TEXT).expect("is a verifier");
        assert_eq!(verifier.iterations.get(), 4096);
        assert_eq!(verifier.salt, b"saltsaltsaltsalt");
        assert_eq!((verifier.stored_key, verifier.server_key), ([0; 32], [1; 32]));
        assert_eq!(verifier.to_text(), TEXT);
    }

    #[test]
    fn a_password_has_the_keys_with_which_the_exchange_of_rfc_7677_is_made() {
        let text = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
            WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        let salt = Verifier::parse(text).expect("is a verifier").salt;
        assert_eq!(Verifier::of("pencil", &salt).to_text(), text);
    }

    #[test]
    fn other_texts_are_no_verifiers() {
        let broken = [
            TEXT.replace("4096", "0"),
            TEXT.replace("4096", "x"),
            TEXT.replace("4096", "1000001"),
            TEXT.replace("c2FsdHNhbHRzYWx0c2FsdA==", &BASE64.encode([7; 65])),
            TEXT.replace("SHA-256", "SHA-1"),
            TEXT.replace("AAA=", "AAA"),
            TEXT.replace("c2FsdHNhbHRzYWx0c2FsdA==", ""),
            "md5d41d8cd98f00b204e9800998ecf8427e".to_owned(),
            String::new(),
        ];
        for text in broken {
            assert_eq!(Verifier::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn a_made_up_salt_depends_on_the_secret_and_the_name_alone() {
        let salt = |secret, name| Verifier::fake(&[secret; 32], name).salt;
        assert_eq!(salt(1, "app"), salt(1, "app"));
        assert_ne!(salt(1, "app"), salt(1, "bob"));
        assert_ne!(salt(1, "app"), salt(2, "app"));
    }
}
