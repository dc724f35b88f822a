//! Words of commands that people are told to run.

use std::borrow::Cow;

/// A word that a shell takes for one, whatever is in it.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        let words = [
            ("main", "main"),
            ("kid/2", "kid/2"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("x$(touch y)", "'x$(touch y)'"),
            ("", "''"),
        ];
        for (word, expected) in words {
            assert_eq!(quoted(word), expected);
        }
    }
}
