//! How somebody showed who they are.

/// What came with the right password.
const PASSWORD: &str = "pwd";
/// A code that is good once.
const ONE_TIME: &str = "otp";
/// A key that only they have.
const KEY: &str = "pop";

/// The ways in which somebody showed who they are, in the words of RFC 8176;
/// none where an outside provider vouches for them and does not say how it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Methods(Vec<String>);

impl Methods {
    /// The word that is among them when a second factor was.
    pub const SECOND_FACTOR: &str = "mfa";

    /// With their password here.
    pub fn password() -> Self {
        Self(vec![PASSWORD.to_owned()])
    }

    /// With a link that is good once.
    pub fn link() -> Self {
        Self(vec![ONE_TIME.to_owned()])
    }

    /// An outside provider vouches for them, and says whether it asked for a
    /// second factor.
    pub fn outside(with_second_factor: bool) -> Self {
        Self(if with_second_factor { vec![Self::SECOND_FACTOR.to_owned()] } else { vec![] })
    }

    /// The same, and then with a code that is good once.
    #[must_use]
    pub fn and_code(mut self) -> Self {
        self.0.extend([ONE_TIME, Self::SECOND_FACTOR].map(str::to_owned));
        self
    }

    /// The same, and then with a passkey.
    #[must_use]
    pub fn and_key(mut self) -> Self {
        self.0.extend([KEY, Self::SECOND_FACTOR].map(str::to_owned));
        self
    }

    /// Whether a second factor was among them.
    pub fn has_second_factor(&self) -> bool {
        self.0.iter().any(|word| word == Self::SECOND_FACTOR)
    }

    /// How many factors they showed, as the authentication context class that
    /// tokens name (OpenID Connect Core, section 2).
    pub fn context_class(&self) -> &'static str {
        if self.has_second_factor() { "2" } else { "1" }
    }

    /// The words.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

impl From<Vec<String>> for Methods {
    fn from(words: Vec<String>) -> Self {
        Self(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_showed_a_second_factor_has_one() {
        for (methods, words, class) in [
            (Methods::password(), vec!["pwd"], "1"),
            (Methods::password().and_code(), vec!["pwd", "otp", "mfa"], "2"),
            (Methods::password().and_key(), vec!["pwd", "pop", "mfa"], "2"),
            (Methods::link(), vec!["otp"], "1"),
            (Methods::outside(false), vec![], "1"),
            (Methods::outside(true), vec!["mfa"], "2"),
            (Methods::outside(false).and_code(), vec!["otp", "mfa"], "2"),
        ] {
            assert_eq!(methods.words(), words);
            assert_eq!(methods.context_class(), class, "{words:?}");
            assert_eq!(Methods::from(methods.words().to_vec()), methods);
        }
    }
}
