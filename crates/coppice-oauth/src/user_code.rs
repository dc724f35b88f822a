//! The code that a person types to connect a device (RFC 8628, 6.1).

use aws_lc_rs::rand;

/// No vowels, so that no words appear, and nothing that looks like something else.
const ALPHABET: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const LENGTH: usize = 8;

/// Makes a new code, without a dash.
pub fn generate() -> String {
    let mut code = String::with_capacity(LENGTH);
    while code.len() < LENGTH {
        let mut byte = [0];
        rand::fill(&mut byte).expect("the system random source works");
        // Values from 240 on would make the first letters likelier.
        if byte[0] < 240 {
            code.push(ALPHABET[usize::from(byte[0] % 20)] as char);
        }
    }
    code
}

/// Reads a code as people write it: with dashes and blanks, in small letters.
pub fn parse(text: &str) -> Option<String> {
    let letters = text.chars().filter(|letter| !matches!(letter, '-' | ' ' | '_' | '.'));
    let code: String = letters.take(LENGTH + 1).map(|letter| letter.to_ascii_uppercase()).collect();
    (code.len() == LENGTH && code.bytes().all(|byte| ALPHABET.contains(&byte))).then_some(code)
}

/// As people read it best.
pub fn display(code: &str) -> String {
    match code.split_at_checked(LENGTH / 2) {
        Some((first, second)) => format!("{first}-{second}"),
        None => code.to_owned(),
    }
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
