//! Typed identifiers.
//!
//! Each id is text made of a prefix and a suffix of 26 lower-case base32hex
//! characters (RFC 4648 section 7) over 16 bytes. Ids of records that are
//! listed begin with the creation time, so that they sort by age. Branch ids
//! are fully random and begin with a letter, because they serve as DNS labels.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::random;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Encodes 16 bytes as 26 base32hex characters; the last one carries 3 bits.
fn base32hex(bytes: [u8; 16]) -> String {
    let value = u128::from_be_bytes(bytes);
    let mut text = String::with_capacity(26);
    for index in 0..25 {
        let shift = 128 - 5 * (index + 1);
        text.push(ALPHABET[(value >> shift) as usize & 31] as char);
    }
    text.push(ALPHABET[((value << 2) & 31) as usize] as char);
    text
}

fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    random::fill(&mut bytes);
    bytes
}

/// 26 characters that nobody guesses and that are never the same twice, for
/// what needs a name of its own and is no record with an id.
pub fn random_text() -> String {
    base32hex(random_bytes())
}

/// A suffix whose first 48 bits are milliseconds since the Unix epoch.
fn suffix_by_age(now: chrono::DateTime<chrono::Utc>) -> String {
    let mut bytes = random_bytes();
    let millis = now.timestamp_millis().max(0) as u64;
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    base32hex(bytes)
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes text that came from a trusted place (the metastore, a
            /// label we wrote) or that was checked by the caller.
            pub fn from_trusted(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        id!($(#[$doc])* $name);

        impl $name {
            /// Makes a new id; `now` decides its place among its siblings.
            pub fn generate(now: chrono::DateTime<chrono::Utc>) -> Self {
                Self(format!(concat!($prefix, "{}"), suffix_by_age(now)))
            }
        }
    };
}

id!(/** An organization, the tenant. */ OrganizationId, "org_");
id!(/** A person with an account. */ UserId, "usr_");
id!(/** A project of an organization. */ ProjectId, "prj_");
id!(/** The record of an API key, not the secret. */ ApiKeyId, "key_");
id!(/** What a person's sign-in to a client began; its tokens name it. */ SessionId, "ses_");
id!(/** An invitation to an organization, not the secret in its link. */ InvitationId, "inv_");
id!(/** A line of the audit log. */ AuditId, "aud_");
id!(/** What is asked of an organization for a month. */ InvoiceId, "bil_");
id!(/** Something that happened in an organization. */ EventId, "evt_");
id!(/** Where events are sent to. */ WebhookId, "whk_");
id!(/** An event on its way to a webhook. */ DeliveryId, "dlv_");
id!(/** An installation of the GitHub App that an organization has linked. */ GithubInstallationId, "ghi_");
id!(/** A repository on GitHub that a project is mapped to. */ GithubRepositoryId, "ghr_");
id!(/** An installation of our integration, as Vercel knows it. */ VercelInstallationId);
id!(/** A name by which a database signs in that somebody has by Vercel. */ VercelLoginId, "vercel_");
id!(/** One copy-on-write directory that holds an instance's data. */ VolumeId, "vol_");
id!(/** One machine that runs instances. */ HostId, "hst_");
id!(/** One installation: a data directory together with its metastore. */ InstallationId, "ins_");
id!(/** A named place with one engine, chosen by the operator. */ RegionId);
id!(
    /// A branch. Also a DNS label and the suffix of user names, so it is 26
    /// characters of base32hex and begins with a letter.
    BranchId
);
id!(/** One PostgreSQL server of a branch: `<branch>-<ordinal>`. */ InstanceId);

impl BranchId {
    /// Makes a new random id.
    pub fn generate() -> Self {
        let mut text = base32hex(random_bytes());
        if text.as_bytes()[0].is_ascii_digit() {
            // 0-9 become k-t; every first character stays a letter of the alphabet.
            let letter = (text.as_bytes()[0] - b'0' + b'k') as char;
            text.replace_range(..1, &letter.to_string());
        }
        Self(text)
    }

    /// Reads an id as a client wrote it; `None` when it can't be a branch id.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let well_formed = bytes.len() == 26
            && bytes.iter().all(|byte| ALPHABET.contains(byte))
            && bytes[0].is_ascii_alphabetic();
        well_formed.then(|| Self(text.to_owned()))
    }
}

/// Whether a text is made as ids with this prefix are.
fn is_well_formed(text: &str, prefix: &str) -> bool {
    let suffix = text.strip_prefix(prefix);
    suffix.is_some_and(|suffix| suffix.len() == 26 && suffix.bytes().all(|byte| ALPHABET.contains(&byte)))
}

impl ApiKeyId {
    /// Reads an id as somebody wrote it; `None` when no key can have it.
    pub fn parse(text: &str) -> Option<Self> {
        is_well_formed(text, "key_").then(|| Self(text.to_owned()))
    }
}

impl VercelLoginId {
    /// Reads an id as somebody wrote it; `None` when no such login can have it.
    pub fn parse(text: &str) -> Option<Self> {
        is_well_formed(text, "vercel_").then(|| Self(text.to_owned()))
    }
}

impl AuditId {
    /// The first id that a line can have that begins at `time`, to the
    /// millisecond.
    pub fn first_at(time: chrono::DateTime<chrono::Utc>) -> Self {
        let mut bytes = [0; 16];
        let millis = time.timestamp_millis().max(0) as u64;
        bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
        Self(format!("aud_{}", base32hex(bytes)))
    }
}

impl InstanceId {
    /// The instance of `branch` with this ordinal, counted from 1.
    pub fn new(branch: &BranchId, ordinal: u32) -> Self {
        Self(format!("{branch}-{ordinal}"))
    }

    /// The instance of `branch` that takes writes.
    pub fn primary(branch: &BranchId) -> Self {
        Self::new(branch, 1)
    }

    /// Whether it takes writes.
    pub fn is_primary(&self) -> bool {
        self.ordinal() == Some(1)
    }

    /// Its number among those of its branch; none for one that is of no branch.
    pub fn ordinal(&self) -> Option<u32> {
        self.0.rsplit_once('-')?.1.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_age() {
        let early = chrono::DateTime::from_timestamp_millis(1_700_000_000_000).expect("valid");
        let late = early + chrono::Duration::milliseconds(1);
        assert!(ProjectId::generate(early) < ProjectId::generate(late));
    }

    #[test]
    fn ids_have_prefix_and_26_characters() {
        let id = OrganizationId::generate(chrono::DateTime::UNIX_EPOCH);
        assert_eq!(id.as_str().len(), 4 + 26);
        assert!(id.as_str().starts_with("org_"));
    }

    #[test]
    fn a_branch_id_is_a_dns_label_that_begins_with_a_letter() {
        for _ in 0..1000 {
            let id = BranchId::generate();
            assert_eq!(BranchId::parse(id.as_str()), Some(id));
        }
    }

    #[test]
    fn text_that_is_no_branch_id_is_refused() {
        for text in [
            "",
            "app",
            "1aaaaaaaaaaaaaaaaaaaaaaaaa",
            "zaaaaaaaaaaaaaaaaaaaaaaaaa",
            "Aaaaaaaaaaaaaaaaaaaaaaaaaa",
        ] {
            assert_eq!(BranchId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn base32hex_agrees_with_the_rfc_test_vector_shape() {
        assert_eq!(base32hex([0; 16]), "0".repeat(26));
        assert_eq!(base32hex([255; 16]), format!("{}s", "v".repeat(25)));
    }
}
