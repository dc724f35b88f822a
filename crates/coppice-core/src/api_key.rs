//! API keys: a prefix, then 33 base62 characters over 20 random bytes and
//! their CRC-32 (little endian), so that a mistyped key is refused without a
//! look at the metastore.

use std::fmt;

use chrono::{DateTime, Utc};

use crate::access::{Grant, Scope};
use crate::organization::Role;
use crate::{ApiKeyId, UserId};

const ALPHABET: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const ENCODED_LENGTH: usize = 33;
const PREFIX_LENGTH: usize = 4;

/// Who a key acts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiKeyKind {
    /// Acts as the user who owns it.
    User,
    /// Acts as the organization.
    Organization,
}

impl ApiKeyKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::User => "pku_",
            Self::Organization => "pko_",
        }
    }
}

/// A whole API key. Printing it with `{:?}` shows the preview only.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKeySecret(String);

impl ApiKeySecret {
    /// Makes a new random key.
    pub fn generate(kind: ApiKeyKind) -> Self {
        let mut bytes = [0; 24];
        crate::random::fill(&mut bytes[..20]);
        let checksum = crc32(&bytes[..20]).to_le_bytes();
        bytes[20..].copy_from_slice(&checksum);
        Self(format!("{}{}", kind.prefix(), base62(&bytes)))
    }

    /// Checks length, prefix, alphabet and checksum; `None` for text that
    /// can't be a key of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let encoded = text.strip_prefix("pku_").or_else(|| text.strip_prefix("pko_"))?;
        let bytes = base62_decode(encoded)?;
        let expected = crc32(&bytes[..20]).to_le_bytes();
        (bytes[20..] == expected).then(|| Self(text.to_owned()))
    }

    /// Who the key acts as.
    pub fn kind(&self) -> ApiKeyKind {
        if self.0.starts_with("pku_") { ApiKeyKind::User } else { ApiKeyKind::Organization }
    }

    /// The key itself, for its owner only.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Enough to recognise a key by, and no more: `pku_...x7Qa`.
    pub fn preview(&self) -> String {
        format!("{}...{}", &self.0[..PREFIX_LENGTH], &self.0[self.0.len() - 4..])
    }
}

impl fmt::Debug for ApiKeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.preview())
    }
}

/// The record of an API key; the key itself is not in it.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiKey {
    /// Of the record.
    pub id: ApiKeyId,
    /// Not unique.
    pub name: String,
    /// See [`ApiKeySecret::preview`].
    pub preview: String,
    /// What it allows.
    pub grant: Grant,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it ends, if it does.
    pub expiry: Option<DateTime<Utc>>,
    /// When it was last used, to the minute.
    pub last_used: Option<DateTime<Utc>>,
    /// The user who made it, if a user did.
    pub created_by: Option<UserId>,
    /// The key that made it, if a key did.
    pub created_by_key: Option<ApiKeyId>,
    /// Why to look at it again, if there is a reason.
    pub review: Option<Review>,
}

/// A key of an organization that its maker could not make today. It goes on
/// working, because whatever uses it is the organization's, until somebody
/// who runs the organization decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// Why.
    pub reason: ReviewReason,
    /// The person who made it, or made the first of the keys that led to it.
    pub maker: UserId,
}

/// Why to look at a key again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewReason {
    /// Its maker is no member any more.
    MadeByFormerMember,
    /// Its maker's account is disabled.
    MadeByDisabledUser,
    /// It allows what its maker's role no longer does.
    ExceedsMaker,
}

/// What the maker of an organization's key is to the organization now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MakerStanding {
    /// The role; none for who is no member.
    pub role: Option<Role>,
    /// Whether the account may not be used.
    pub is_disabled: bool,
}

impl ReviewReason {
    /// Why to look again at a key with this grant, if there is a reason.
    pub fn of(grant: &Grant, maker: MakerStanding) -> Option<Self> {
        let Some(role) = maker.role else { return Some(Self::MadeByFormerMember) };
        if maker.is_disabled {
            return Some(Self::MadeByDisabledUser);
        }
        let exceeds = Scope::ALL.into_iter().any(|scope| grant.has_scope(scope) && !role.carries(scope));
        exceeds.then_some(Self::ExceedsMaker)
    }
}

/// The CRC-32 of IEEE 802.3, reflected.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    })
}

fn base62(bytes: &[u8; 24]) -> String {
    let mut number = *bytes;
    let mut digits = [b'0'; ENCODED_LENGTH];
    for digit in digits.iter_mut().rev() {
        let mut remainder = 0u32;
        for byte in &mut number {
            let value = (remainder << 8) | u32::from(*byte);
            *byte = (value / 62) as u8;
            remainder = value % 62;
        }
        *digit = ALPHABET[remainder as usize];
    }
    digits.iter().map(|digit| *digit as char).collect()
}

fn base62_decode(text: &str) -> Option<[u8; 24]> {
    if text.len() != ENCODED_LENGTH {
        return None;
    }
    let mut number = [0u8; 24];
    for character in text.bytes() {
        let mut carry = ALPHABET.iter().position(|known| *known == character)? as u32;
        for byte in number.iter_mut().rev() {
            let value = u32::from(*byte) * 62 + carry;
            *byte = value as u8;
            carry = value >> 8;
        }
        if carry != 0 {
            return None;
        }
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_well_formed() {
        for kind in [ApiKeyKind::User, ApiKeyKind::Organization] {
            let key = ApiKeySecret::generate(kind);
            assert_eq!(key.expose().len(), PREFIX_LENGTH + ENCODED_LENGTH);
            assert_eq!(ApiKeySecret::parse(key.expose()).map(|key| key.kind()), Some(kind));
        }
    }

    #[test]
    fn one_wrong_character_is_noticed() {
        let key = ApiKeySecret::generate(ApiKeyKind::User);
        for position in PREFIX_LENGTH..key.expose().len() {
            let mut text = key.expose().as_bytes().to_vec();
            text[position] = if text[position] == b'a' { b'b' } else { b'a' };
            let text = String::from_utf8(text).expect("ASCII");
            assert_eq!(ApiKeySecret::parse(&text), None, "{position}");
        }
    }

    #[test]
    fn the_checksum_is_the_standard_crc_32() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn a_key_is_looked_at_again_when_its_maker_could_not_make_it_now() {
        let grant = |scopes: &[&str]| Grant {
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            ..Grant::everything()
        };
        let reason =
            |scopes, role, is_disabled| ReviewReason::of(&grant(scopes), MakerStanding { role, is_disabled });
        assert_eq!(reason(&["*"], Some(Role::Admin), false), None);
        assert_eq!(reason(&["*"], Some(Role::Editor), false), Some(ReviewReason::ExceedsMaker));
        assert_eq!(reason(&["branch:read"], Some(Role::Viewer), false), None);
        assert_eq!(
            reason(&["credentials:read"], Some(Role::Viewer), false),
            Some(ReviewReason::ExceedsMaker)
        );
        assert_eq!(reason(&["*"], Some(Role::Owner), true), Some(ReviewReason::MadeByDisabledUser));
        assert_eq!(reason(&["branch:read"], None, true), Some(ReviewReason::MadeByFormerMember));
    }

    #[test]
    fn debug_output_does_not_show_the_key() {
        let key = ApiKeySecret::generate(ApiKeyKind::User);
        assert_eq!(format!("{key:?}"), key.preview());
    }
}
