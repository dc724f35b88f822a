//! Words of commands as they have to be typed.

pub(crate) use coppice_core::shell::quoted;

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
    fn several_words_are_quoted_one_by_one() {
        assert_eq!(all_quoted(["a", "b;c"].into_iter()), "a 'b;c'");
    }}
