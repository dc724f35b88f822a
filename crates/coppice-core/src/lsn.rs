//! Places in a write-ahead log.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A place in the write-ahead log of a server: bytes since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    /// As PostgreSQL writes it, `16/B374D848`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 as u32)
    }
}

/// A text that is no place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a place in the log as PostgreSQL does, like 0/3000060")]
pub struct NoLsn;

impl FromStr for Lsn {
    type Err = NoLsn;

    fn from_str(text: &str) -> Result<Self, NoLsn> {
        let (high, low) = text.split_once('/').ok_or(NoLsn)?;
        let half = |digits: &str| {
            let is_hex = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            u32::from_str_radix(digits, 16).ok().filter(|_| is_hex).ok_or(NoLsn)
        };
        Ok(Self(u64::from(half(high)?) << 32 | u64::from(half(low)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_and_read_as_postgresql_does() {
        let place = Lsn(0x16_B374_D848);
        assert_eq!(place.to_string(), "16/B374D848");
        assert_eq!("16/B374D848".parse(), Ok(place));
        assert_eq!("0/3000060".parse(), Ok(Lsn(0x300_0060)));
        for text in ["", "/", "16", "16/", "/16", "+1/1", "1/100000000", "x/1", "1/1/1", "1 /2"] {
            assert_eq!(text.parse::<Lsn>(), Err(NoLsn), "{text}");
        }
    }
}
