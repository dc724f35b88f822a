//! What a request shows of who sent it: a bearer credential, or at the door of
//! the console the cookie of a browser session, and nothing else there.

use axum::http::header::AUTHORIZATION;
use axum::http::{Extensions, HeaderMap};
use coppice_app::Presented;
use zeroize::Zeroizing;

/// Stands for a credential that is no UTF-8; none of ours is like it.
const UNREADABLE: &str = "\u{fffd}";

/// Marks a request that came by the console's door, with the cookie that it has.
#[derive(Clone)]
pub(crate) struct ByDoor(pub(crate) Option<Zeroizing<String>>);

/// Marks a request that an agent makes by a tool.
#[derive(Clone, Copy, Debug)]
pub struct ByAgent;

/// See the module.
#[derive(Clone)]
pub(crate) enum Proof {
    /// The value after `Bearer `.
    Bearer(String),
    /// The same, of an agent.
    Agent(String),
    /// What the cookie says.
    Browser(Zeroizing<String>),
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.presented().fmt(f)
    }
}

impl Proof {
    /// What a request shows, if it shows anything.
    pub(crate) fn of(headers: &HeaderMap, extensions: &Extensions) -> Option<Self> {
        match extensions.get::<ByDoor>() {
            Some(ByDoor(cookie)) => cookie.clone().map(Self::Browser),
            None => bearer_of(headers).map(|bearer| match extensions.get::<ByAgent>() {
                Some(ByAgent) => Self::Agent(bearer.to_owned()),
                None => Self::Bearer(bearer.to_owned()),
            }),
        }
    }

    /// What is shown, to tell it from others.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Bearer(text) | Self::Agent(text) => text,
            Self::Browser(secret) => secret,
        }
    }

    /// As the app takes it.
    pub(crate) fn presented(&self) -> Presented<'_> {
        match self {
            Self::Bearer(text) => Presented::Bearer(text),
            Self::Agent(text) => Presented::Agent(text),
            Self::Browser(secret) => Presented::Browser(secret),
        }
    }
}

/// The bearer credential among the headers. One that can't be read is one all
/// the same, and none of ours.
pub(crate) fn bearer_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()))
}

/// The value of a bearer credential; the scheme's case does not matter.
fn bearer(header: &[u8]) -> Option<&str> {
    let (scheme, value) = header.split_at(header.iter().position(|byte| *byte == b' ')?);
    let value = value.trim_ascii();
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer") && !value.is_empty();
    is_bearer.then(|| std::str::from_utf8(value).unwrap_or(UNREADABLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_matched_without_regard_to_case() {
        assert_eq!(bearer(b"bEaReR abc"), Some("abc"));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"Bearer "), None);
        assert_eq!(bearer(b"abc"), None);
    }

    #[test]
    fn a_credential_that_can_not_be_read_is_one_all_the_same() {
        assert_eq!(bearer("Bearer pkü_1".as_bytes()), Some("pkü_1"));
        assert_eq!(bearer(b"Bearer pk\xfc_1"), Some(UNREADABLE));
    }
}
