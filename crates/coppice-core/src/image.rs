//! PostgreSQL images by name: `postgres:17.6`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A PostgreSQL release, `major.minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PostgresVersion {
    /// For example 17.
    pub major: u32,
    /// For example 6.
    pub minor: u32,
}

impl fmt::Display for PostgresVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl PostgresVersion {
    /// Reads `17.6`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: parse_number(major)?, minor: parse_number(minor)? })
    }
}

/// Whether a number is written with zeros that say nothing.
pub(crate) fn has_leading_zero(digits: &str) -> bool {
    digits.len() > 1 && digits.starts_with('0')
}

fn parse_number(text: &str) -> Option<u32> {
    let digits_only = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits_only && !has_leading_zero(text) { text.parse().ok() } else { None }
}

/// What a caller asked for: an exact release or the newest of a major version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRequest {
    /// `postgres:17.6`
    Exact(PostgresVersion),
    /// `postgres:17`
    NewestOf(u32),
}

impl ImageRequest {
    /// Reads `postgres:17.6`, `postgres:17`, or the same with `postgresql:`.
    pub fn parse(text: &str) -> Option<Self> {
        let (offering, version) = text.split_once(':')?;
        if offering != "postgres" && offering != "postgresql" {
            return None;
        }
        match PostgresVersion::parse(version) {
            Some(exact) => Some(Self::Exact(exact)),
            None => parse_number(version).map(Self::NewestOf),
        }
    }

    /// The newest of `offered` that satisfies the request.
    pub fn choose(self, offered: &[PostgresVersion]) -> Option<PostgresVersion> {
        offered
            .iter()
            .copied()
            .filter(|version| match self {
                Self::Exact(exact) => *version == exact,
                Self::NewestOf(major) => version.major == major,
            })
            .max()
    }
}

/// The public name of an image, `postgres:<version>`.
pub fn image_name(version: PostgresVersion) -> String {
    format!("postgres:{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(text: &str) -> PostgresVersion {
        PostgresVersion::parse(text).expect("a version")
    }

    #[test]
    fn a_major_version_means_its_newest_release() {
        let offered = [v("16.2"), v("17.3"), v("17.10"), v("18.1")];
        let request = ImageRequest::parse("postgresql:17").expect("well formed");
        assert_eq!(request.choose(&offered), Some(v("17.10")));
    }

    #[test]
    fn an_exact_version_means_that_one_only() {
        let request = ImageRequest::parse("postgres:17.4").expect("well formed");
        assert_eq!(request.choose(&[v("17.3")]), None);
    }

    #[test]
    fn other_offerings_and_odd_numbers_are_refused() {
        for text in [
            "mysql:8.0",
            "postgres",
            "postgres:",
            "postgres:+17",
            "postgres:017",
            "postgres:17.06",
            "postgres:17.x",
            "postgres:17.6.1",
        ] {
            assert_eq!(ImageRequest::parse(text), None, "{text}");
        }
    }
}
