//! Names that people are shown, of whatever has one.

/// Whether a character shows nothing, or changes how the text around it is
/// shown: control characters, and what Unicode calls `Bidi_Control` and
/// `Default_Ignorable_Code_Point`. A name with one can look like another name.
/// The two variation selectors that emoji are typed with are let through.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Why a text is no name, for who typed or pasted it; none when it is one.
pub fn problem(text: &str) -> Option<String> {
    let unseen = u32::from(text.chars().find(|c| is_unseen(*c))?);
    Some(format!(
        "must not have the character U+{unseen:04X}, which can't be seen or turns the text around it: type it without"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_nothing_that_is_not_seen() {
        for name in
            ["Ada Lovelace", "Caf\u{e9}", "\u{7b46}\u{8a18}", "\u{5d0}\u{5d1}", "We \u{2764}\u{fe0f} SQL", ""]
        {
            assert_eq!(problem(name), None, "{name:?}");
        }
        for (name, told) in [
            ("a\nb", "U+000A"),
            ("\u{202e}adA", "U+202E"),
            ("Ada\u{200b}", "U+200B"),
            ("A\u{2066}da", "U+2066"),
            ("\u{61c}", "U+061C"),
            ("A\u{ad}da", "U+00AD"),
            ("\u{3164}", "U+3164"),
            ("Ada\u{e0041}", "U+E0041"),
            ("A\u{2028}da", "U+2028"),
        ] {
            let why = problem(name).unwrap_or_default();
            assert!(why.contains(told), "{name:?}: {why}");
        }
    }
}
