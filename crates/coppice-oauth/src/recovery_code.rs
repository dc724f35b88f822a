//! What gets a person in who has lost their second factor, once.

use crate::letters;

/// How many a person gets.
pub const COUNT: usize = 10;
/// 69 bits: nobody guesses one, however often they try.
const LENGTH: usize = 16;

/// Makes a new code, without dashes.
pub fn generate() -> String {
    letters::generate(LENGTH)
}

/// Reads a code as people write it: with dashes and blanks, in small letters.
pub fn parse(text: &str) -> Option<String> {
    letters::parse(text, LENGTH)
}

/// As people read it best.
pub fn display(code: &str) -> String {
    letters::display(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_typed_and_is_no_code_of_an_app() {
        let code = generate();
        assert_eq!(display(&code).len(), LENGTH + 3);
        assert_eq!(parse(&display(&code).to_lowercase()), Some(code));
        for text in ["", "123456", "BCDF-GHJK", "BCDF-GHJK-LMNP-QRSTV"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
