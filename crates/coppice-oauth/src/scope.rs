//! What a token may be used for.

use coppice_core::access::Scope;

/// Everything.
pub const EVERYTHING: &str = "*";
/// An ID token is wanted.
pub const OPENID: &str = "openid";
/// The session goes on without the browser.
pub const OFFLINE_ACCESS: &str = "offline_access";
/// Scopes that are no rights in the API.
const OF_PEOPLE: [&str; 4] = [OPENID, "profile", "email", OFFLINE_ACCESS];

/// A set of scopes that we know, in the order they were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scopes(Vec<String>);

fn is_of_api(word: &str) -> bool {
    word == EVERYTHING || Scope::ALL.iter().any(|scope| scope.as_str() == word)
}

impl Scopes {
    /// What is granted to who asks for `asked`: what we know of it. Who names
    /// no right in the API gets every right.
    pub fn granted<'a>(asked: impl Iterator<Item = &'a str>) -> Self {
        Self::granted_or(asked, &[EVERYTHING])
    }

    /// The same for a client that nobody vouches for: it gets no more than
    /// agents are told to ask for, unless it names it.
    pub fn granted_to_stranger<'a>(asked: impl Iterator<Item = &'a str>) -> Self {
        Self::granted_or(asked, &Scope::OF_AGENTS.map(Scope::as_str))
    }

    fn granted_or<'a>(asked: impl Iterator<Item = &'a str>, otherwise: &[&str]) -> Self {
        let mut granted: Vec<String> = Vec::new();
        for word in asked {
            let is_known = is_of_api(word) || OF_PEOPLE.contains(&word);
            if is_known && !granted.iter().any(|found| found == word) {
                granted.push(word.to_owned());
            }
        }
        if !granted.iter().any(|word| is_of_api(word)) {
            granted.extend(otherwise.iter().map(|word| (*word).to_owned()));
        }
        Self(granted)
    }

    /// Scopes that were granted before.
    pub fn from_trusted(words: Vec<String>) -> Self {
        Self(words)
    }

    /// What a refreshed token gets: `asked`, when that is no more than these.
    /// None when it is more.
    pub fn narrowed_to<'a>(&self, asked: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut narrowed: Vec<String> = Vec::new();
        for word in asked {
            if !(self.has(word) || is_of_api(word) && self.has(EVERYTHING)) {
                return None;
            }
            if !narrowed.iter().any(|found| found == word) {
                narrowed.push(word.to_owned());
            }
        }
        match narrowed.is_empty() {
            true => Some(self.clone()),
            // Naming none of the rights does not mean giving them up.
            false if !narrowed.iter().any(|word| is_of_api(word)) => {
                narrowed.extend(self.of_api());
                Some(Self(narrowed))
            }
            false => Some(Self(narrowed)),
        }
    }

    /// Whether a scope is among them.
    pub fn has(&self, scope: &str) -> bool {
        self.0.iter().any(|word| word == scope)
    }

    /// Whether everything that `other` has is among them.
    pub fn covers(&self, other: &Scopes) -> bool {
        other.0.iter().all(|word| self.has(word) || (is_of_api(word) && self.has(EVERYTHING)))
    }

    /// The scopes that are rights in the API.
    pub fn of_api(&self) -> Vec<String> {
        self.0.iter().filter(|word| is_of_api(word)).cloned().collect()
    }

    /// As words.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

impl std::fmt::Display for Scopes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// Every scope that may be asked for.
pub fn supported() -> Vec<&'static str> {
    OF_PEOPLE.into_iter().chain(Scope::ALL.iter().map(|scope| scope.as_str())).chain([EVERYTHING]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(asked: &str) -> String {
        Scopes::granted(asked.split(' ')).to_string()
    }

    #[test]
    fn who_names_a_right_gets_no_other() {
        assert_eq!(granted("branch:read org:read branch:read"), "branch:read org:read");
        assert_eq!(granted("openid branch:read"), "openid branch:read");
    }

    #[test]
    fn who_names_no_right_gets_all() {
        for asked in ["", "openid", "unknown"] {
            assert!(granted(asked).ends_with('*'), "{asked}");
        }
        assert_eq!(granted("openid offline_access"), "openid offline_access *");
    }

    #[test]
    fn a_stranger_who_names_no_right_may_look_at_what_is_no_secret() {
        let granted = |asked: &str| Scopes::granted_to_stranger(asked.split(' ')).to_string();
        let looking = "org:read project:read branch:read metrics:read logs:read";
        assert_eq!(granted("offline_access"), format!("offline_access {looking}"));
        assert_eq!((granted(""), granted("branch:write")), (looking.to_owned(), "branch:write".to_owned()));
        assert_eq!(granted("*"), "*");
    }

    #[test]
    fn unknown_scopes_are_dropped() {
        assert_eq!(granted("org:read unknown Org:Read"), "org:read");
    }

    #[test]
    fn a_refresh_asks_for_the_same_or_less() {
        let all = Scopes::granted("openid offline_access".split(' '));
        let narrowed = |asked: &str| all.narrowed_to(asked.split_whitespace()).map(|found| found.to_string());
        assert_eq!(narrowed("").as_deref(), Some("openid offline_access *"));
        assert_eq!(narrowed("org:read").as_deref(), Some("org:read"));
        assert_eq!(narrowed("openid").as_deref(), Some("openid *"));
        assert_eq!(narrowed("email"), None);
        let few = Scopes::granted("org:read branch:read".split(' '));
        assert_eq!(few.narrowed_to(["branch:write"].into_iter()), None);
        assert_eq!(few.narrowed_to(["*"].into_iter()), None);
    }

    #[test]
    fn everything_covers_each_right_and_no_more() {
        let all = Scopes::granted(["*"].into_iter());
        assert!(all.covers(&Scopes::granted(["org:read"].into_iter())));
        assert!(!all.covers(&Scopes::granted(["offline_access"].into_iter())));
        assert!(!Scopes::granted(["org:read"].into_iter()).covers(&all));
    }
}
