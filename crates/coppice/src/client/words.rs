//! Words of commands as they have to be typed.

use std::borrow::Cow;

/// A word that a shell takes for one, whatever is in it.
pub(crate) fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

/// Words that a shell takes for so many, whatever is in them.
pub(super) fn all_quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// A text as a terminal may show it: whoever wrote a log or a name must not command
/// the terminal that it is read on.
pub(super) fn harmless(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(shown).collect()
}

/// One or several of something: `1 session`, `2 sessions`.
pub(super) fn count(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
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
        assert_eq!(all_quoted(["a", "b;c"].into_iter()), "a 'b;c'");
    }
}
