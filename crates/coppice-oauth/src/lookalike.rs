//! Names that a person could take for another one.

use unicode_normalization::UnicodeNormalization;
use unicode_security::skeleton;

/// What is left of a name when everything goes that people overlook: case,
/// blanks and signs, forms of one letter (NFKC), letters that look like others
/// (Unicode TR 39, section 4, "skeleton"), and the digits that stand for some.
pub fn looks_like(name: &str) -> String {
    let composed: String = name.nfkc().flat_map(char::to_lowercase).collect();
    let shapes: String = skeleton(&composed).collect();
    // Letters of other scripts become capitals of ours in places.
    let shapes: String = shapes.chars().flat_map(char::to_lowercase).collect();
    shapes.chars().filter(|letter| letter.is_alphanumeric()).map(one_of_its_kind).collect()
}

/// Which of the letters and digits that differ by a stroke stands for all.
fn one_of_its_kind(letter: char) -> char {
    match letter {
        'i' | 'l' | '1' | '\u{131}' | 'j' => 'l',
        '0' => 'o',
        '3' => 'e',
        '5' => 's',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_read_as_the_same_name_is_the_same() {
        for name in [
            "coppice",
            "COPPICE",
            "C o p p i c e",
            "Cop-pice.",
            "C0PP1CE",
            "Copplce",
            // Cyrillic, Greek and fullwidth letters; a letter with a dot less.
            "\u{421}\u{43e}\u{440}\u{440}i\u{441}e",
            "C\u{3bf}ppice",
            "\u{ff23}\u{ff4f}\u{ff50}\u{ff50}\u{ff49}\u{ff43}\u{ff45}",
            "Copp\u{131}ce",
            "\u{1d402}\u{1d428}\u{1d429}\u{1d429}\u{1d422}\u{1d41c}\u{1d41e}",
            "C\u{2134}ppice",
        ] {
            assert_eq!(looks_like(name), looks_like("Coppice"), "{name}");
        }
        for name in ["Copper", "Notes", "\u{7b46}\u{8a18}"] {
            assert_ne!(looks_like(name), looks_like("Coppice"), "{name}");
            assert!(!looks_like(name).is_empty());
        }
    }
}
