//! Words of commands as they have to be typed.

use coppice_core::name::is_unseen;
pub(crate) use coppice_core::shell::quoted;

/// Words that a shell takes for so many, whatever is in them.
pub(super) fn all_quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// A text as a terminal may show it: whoever wrote a log or a name must neither command
/// the terminal that it is read on, nor have it show another text.
pub(crate) fn harmless(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        c if is_unseen(c) => char::REPLACEMENT_CHARACTER,
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
    }
    #[test]
    fn a_text_is_shown_in_the_order_in_which_it_is() {
        assert_eq!(harmless("a\tb\n\u{e9} \u{2764}\u{fe0f}"), "a\tb\n\u{e9} \u{2764}\u{fe0f}");
        for unseen in
            ['\u{1b}', '\u{200b}', '\u{200f}', '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{feff}']
        {
            assert_eq!(harmless(&format!("a{unseen}b")), "a\u{fffd}b", "{}", unseen.escape_unicode());
        }
    }
}
