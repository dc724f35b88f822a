//! Codes that people type.

use coppice_core::random;

/// No vowels, so that no words appear, and nothing that looks like something else.
const ALPHABET: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// Makes a new code of this many letters, of 4.3 bits each.
pub(crate) fn generate(length: usize) -> String {
    let mut code = String::with_capacity(length);
    while code.len() < length {
        let mut byte = [0];
        random::fill(&mut byte);
        // Values from 240 on would make the first letters likelier.
        if byte[0] < 240 {
            code.push(ALPHABET[usize::from(byte[0] % 20)] as char);
        }
    }
    code
}

/// Reads a code as people write it: with dashes and blanks, in small letters.
pub(crate) fn parse(text: &str, length: usize) -> Option<String> {
    let letters = text.chars().filter(|letter| !matches!(letter, '-' | ' ' | '_' | '.'));
    let code: String = letters.take(length + 1).map(|letter| letter.to_ascii_uppercase()).collect();
    (code.len() == length && code.bytes().all(|byte| ALPHABET.contains(&byte))).then_some(code)
}

/// As people read it best: in groups of four.
pub(crate) fn display(code: &str) -> String {
    let letters: Vec<char> = code.chars().collect();
    letters.chunks(4).map(String::from_iter).collect::<Vec<_>>().join("-")
}
