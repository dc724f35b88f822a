//! Parameters of a query or a form.

use url::form_urlencoded;

use crate::OAuthError;

/// Most parameters. Each takes some 60 bytes, however short, and is compared
/// with every other one.
const COUNT_MAX: usize = 200;

/// Parameters in the order they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Reads `application/x-www-form-urlencoded` text.
    ///
    /// # Errors
    /// `invalid_request` when there are more than 200, or when a name or a value
    /// has a zero byte: nothing that a parameter may be has one, and PostgreSQL
    /// keeps no text with it.
    pub fn parse(text: &[u8]) -> Result<Self, OAuthError> {
        let mut all = form_urlencoded::parse(text).into_owned();
        let pairs: Vec<(String, String)> = all.by_ref().take(COUNT_MAX).collect();
        if all.next().is_some() {
            return Err(OAuthError::invalid_request("there are more than 200 parameters"));
        }
        if pairs.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
            return Err(OAuthError::invalid_request("a parameter has a zero byte"));
        }
        Ok(Self(pairs))
    }

    /// A parameter; one without a value counts as absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The words of a parameter that is a list.
    pub fn words(&self, name: &str) -> impl Iterator<Item = &str> {
        self.get(name).unwrap_or_default().split_ascii_whitespace()
    }

    /// Whether one of `names` is there more than once.
    pub fn repeats(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.0.iter().filter(|(found, _)| found == name).count() > 1)
    }

    /// Whether any parameter is there more than once.
    pub fn repeats_any(&self) -> bool {
        self.0.iter().enumerate().any(|(at, (name, _))| self.0[..at].iter().any(|(found, _)| found == name))
    }

    /// All of them but `names`.
    pub fn without(&self, names: &[&str]) -> Self {
        let kept = self.0.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        Self(kept.cloned().collect())
    }

    /// With one more.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// As the text of a query.
    pub fn encode(&self) -> String {
        let pairs = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
    }
}

/// Pairs as the text of a query or a fragment.
pub(crate) fn encode(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OAuthErrorCode;

    fn parsed(text: &[u8]) -> Params {
        Params::parse(text).expect("parameters")
    }

    #[test]
    fn a_zero_byte_is_refused_wherever_it_is() {
        for text in ["email=ada%00", "client_id=%00", "%00=1", "a=1&nonce=a%00b", "a=\0"] {
            let refused = Params::parse(text.as_bytes()).expect_err(text);
            assert_eq!(refused.code, OAuthErrorCode::InvalidRequest, "{text}");
        }
        assert_eq!(parsed(b"a=%2500").get("a"), Some("%00"));
    }

    #[test]
    fn no_more_parameters_are_read_than_anybody_needs() {
        let of = |count: usize| vec!["a"; count].join("&");
        assert!(Params::parse(of(200).as_bytes()).is_ok());
        let refused = Params::parse(of(201).as_bytes()).expect_err("too many");
        assert_eq!(refused.code, OAuthErrorCode::InvalidRequest);
    }

    #[test]
    fn a_parameter_without_a_value_is_absent() {
        let params = parsed(b"a=1&b=&c");
        assert_eq!((params.get("a"), params.get("b"), params.get("c")), (Some("1"), None, None));
    }

    #[test]
    fn repetitions_are_noticed() {
        let params = parsed(b"a=1&b=2&a=1");
        assert!(params.repeats(&["a"]) && params.repeats_any() && !params.repeats(&["b"]));
        assert!(!parsed(b"a=1&b=1").repeats_any());
    }

    #[test]
    fn what_is_left_is_encoded_again() {
        let params = parsed(b"state=a%26b&prompt=login&x=%C3%A9");
        assert_eq!(params.without(&["prompt"]).encode(), "state=a%26b&x=%C3%A9");
    }
}
