//! The code that a person types to connect a device (RFC 8628, 6.1).

use crate::letters;

/// 35 bits, which guessing would have to find within ten minutes.
const LENGTH: usize = 8;

/// Makes a new code, without a dash.
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
    fn what_is_shown_can_be_typed() {
        for _ in 0..100 {
            let code = generate();
            assert_eq!(parse(&display(&code)).as_deref(), Some(code.as_str()));
            assert_eq!(parse(&code.to_lowercase()).as_deref(), Some(code.as_str()));
        }
    }

    #[test]
    fn what_is_no_code_is_not_looked_up() {
        for text in ["", "BCDF", "BCDF-GHJKL", "AEIO-UAEI", "BCDF-GHJ1", "BCDF-GHJÄ"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
