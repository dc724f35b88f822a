//! Names that a person could take for another one.
//!
//! A name is read as people do who expect another: forms of one letter are that
//! letter (NFKC), letters of other scripts are those of ours that they look like
//! (Unicode TR 39, section 4, "skeleton"), accents and case are nothing, a digit
//! or a sign may stand for a letter, some figures for any, and what is no letter
//! may stand for nothing. A letter of another script in a word that has ours is
//! such a figure, too (section 5.1, "mixed-script detection"), for which ones people
//! read as ours is in no list.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_script::{Script, UnicodeScript as _};
use unicode_security::skeleton;

/// A name, as it may be read.
#[derive(Clone, Debug)]
pub struct Reading(Vec<Glyph>);

/// A character of a name.
#[derive(Clone, Copy, Debug)]
struct Glyph {
    /// The letter that it is, or may be taken for; one stands for all that
    /// differ by a stroke.
    letter: Option<char>,
    /// The one that it is taken for as it stands, where its small letter looks like another.
    capital: Option<char>,
    /// Whether it may be overlooked.
    is_extra: bool,
    /// Whether it may be taken for any letter.
    is_any: bool,
}

impl Reading {
    /// Reads a name.
    pub fn of(name: &str) -> Self {
        let plain: String = name.chars().map(plain_letter).nfkc().collect();
        let plain = plain.replace("()", "o").replace("[]", "o").replace("<>", "o");
        let is_blank = |c: Option<char>| c.is_some_and(char::is_whitespace);
        let (mut all, mut before) = (vec![], None);
        for word in plain.split_inclusive(char::is_whitespace) {
            let has_ours = word.chars().any(|c| c.script() == Script::Latin);
            let mut rest = word.chars().peekable();
            while let Some(c) = rest.next() {
                let is_within_word = !is_blank(before) && !is_blank(rest.peek().copied());
                let is_any = (is_within_word && is_figure(c)) || (has_ours && is_of_others(c));
                all.extend(glyphs(c, is_any, before == Some(c)));
                before = Some(c);
            }
        }
        Self(all)
    }

    /// The letters that it has, each run of one as one.
    fn letters(&self) -> Vec<char> {
        let mut letters: Vec<_> =
            self.0.iter().filter(|glyph| !glyph.is_extra).filter_map(|glyph| glyph.letter).collect();
        letters.dedup();
        letters
    }

    /// Whether it can be read as `other`, or as more than that.
    pub fn contains(&self, other: &Self) -> bool {
        let letters = other.letters();
        (0..self.0.len()).any(|from| read(&self.0[from..], &letters, |_| true))
    }

    /// Whether it can be read as `other`, and nothing more.
    pub fn is(&self, other: &Self) -> bool {
        let has_no_letter = |rest: &[Glyph]| rest.iter().all(|glyph| glyph.is_extra);
        read(&self.0, &other.letters(), has_no_letter)
    }
}

/// What a character may be taken for: also for any letter, if `is_any`, and then for the one that the same
/// character before it is taken for, if `is_again`.
fn glyphs(c: char, is_any: bool, is_again: bool) -> Vec<Glyph> {
    let looks = match shape(c)[..] {
        [one] => Some(one),
        _ => None,
    };
    let letter = sign(c).or_else(|| looks.and_then(sign));
    let small = c.to_lowercase().flat_map(|small| shape(letter.unwrap_or(small)));
    let capital = looks.filter(|looks| looks.is_alphanumeric()).map(one_of_its_kind);
    let is_any = is_any && letter.is_none();
    // It stands for one letter, of however many its shape is.
    let glyph = |(at, c): (usize, char)| Glyph {
        letter: c.is_alphanumeric().then(|| one_of_its_kind(c)),
        capital,
        is_extra: letter.is_some() || !c.is_alphanumeric() || (is_any && (is_again || at > 0)),
        is_any: is_any && at == 0,
    };
    small.enumerate().map(glyph).collect()
}

/// Whether a character that is no letter is drawn by itself or around one, and is no dash.
fn is_figure(c: char) -> bool {
    let is_drawn = !is_combining_mark(c) || matches!(c, '\u{20dd}'..='\u{20e0}');
    let is_between = c.is_ascii() || c.is_whitespace() || matches!(c, '\u{2010}'..='\u{2015}');
    is_drawn && !is_between && !c.is_alphanumeric()
}

/// Whether a character is a letter or a digit of another script than ours.
fn is_of_others(c: char) -> bool {
    !c.is_ascii() && c.is_alphanumeric() && !matches!(c.script(), Script::Latin | Script::Inherited)
}

/// What a character looks like. Letters of other scripts become capitals of ours in places.
fn shape(c: char) -> Vec<char> {
    skeleton(&c.to_string()).flat_map(char::to_lowercase).map(|c| plain_letter(nearest(c))).collect()
}

/// Which of our letters one looks like that is like none by its skeleton, also in a word that has none of ours.
fn nearest(c: char) -> char {
    match c {
        '\u{188}' | '\u{254}' | '\u{255}' | '\u{3c2}' | '\u{96e}' | '\u{a794}' | '\u{1df1d}' => 'c',
        '\u{481}' | '\u{5338}' => 'c',
        '\u{258}' | '\u{25a}' | '\u{25c}' | '\u{25d}' | '\u{1971}' | '\u{1d92}'..='\u{1d94}' => 'e',
        '\u{2c78}' | '\u{2c7b}' | '\u{a793}' | '\u{ab33}' | '\u{ab34}' => 'e',
        '\u{1557}' | '\u{15f4}' | '\u{4e47}' | '\u{5de8}' | '\u{5f50}' => 'e',
        '\u{1d09}' | '\u{1d96}' | '\u{1df1a}' | '\u{4e28}' | '\u{4e85}' | '\u{5de5}' | '\u{738b}' => 'i',
        '\u{278}' | '\u{47b}' | '\u{2c7a}' | '\u{a74d}' | '\u{1df1b}' => 'o',
        '\u{15dd}' | '\u{53e3}' => 'o',
        '\u{1d71}' | '\u{1d88}' | '\u{a751}' | '\u{a753}' | '\u{a755}' => 'p',
        '\u{48f}' | '\u{5369}' | '\u{5c38}' | '\u{a7fc}' => 'p',
        _ => c,
    }
}

/// Whether `glyphs` begin with `letters`, and what follows is an end. A letter
/// may be there several times, and some of what is no letter before it. A third
/// of the letters may be figures.
fn read(glyphs: &[Glyph], letters: &[char], is_end: impl Fn(&[Glyph]) -> bool) -> bool {
    if letters.is_empty() {
        return false;
    }
    // How many letters may have been read so far, and by how few figures.
    let mut reached: Vec<Option<usize>> = vec![None; letters.len() + 1];
    reached[0] = Some(0);
    for (at, glyph) in glyphs.iter().enumerate() {
        if reached[letters.len()].is_some() && is_end(&glyphs[at..]) {
            return true;
        }
        let mut next: Vec<Option<usize>> = vec![None; reached.len()];
        let mut reach = |count: usize, figures: usize| {
            let fewest = next[count].map_or(figures, |fewest| fewest.min(figures));
            next[count] = Some(fewest);
        };
        for (count, figures) in reached.iter().enumerate() {
            let Some(figures) = *figures else { continue };
            if glyph.is_extra {
                reach(count, figures);
            }
            for letter in [glyph.letter, glyph.capital].into_iter().flatten() {
                if count > 0 && letters[count - 1] == letter {
                    reach(count, figures);
                }
                if letters.get(count) == Some(&letter) {
                    reach(count + 1, figures);
                }
            }
            if glyph.is_any && count < letters.len() && figures < letters.len() / 3 {
                reach(count + 1, figures + 1);
            }
        }
        reached = next;
    }
    reached[letters.len()].is_some() && is_end(&[])
}

/// Small capitals of A to Z, of which neither makes letters; there is none of X.
const SMALL_CAPITALS: [char; 26] = [
    '\u{1d00}', '\u{299}', '\u{1d04}', '\u{1d05}', '\u{1d07}', '\u{a730}', '\u{262}', '\u{29c}', '\u{26a}',
    '\u{1d0a}', '\u{1d0b}', '\u{29f}', '\u{1d0d}', '\u{274}', '\u{1d0f}', '\u{1d18}', '\u{a7af}', '\u{280}',
    '\u{a731}', '\u{1d1b}', '\u{1d1c}', '\u{1d20}', '\u{1d21}', 'x', '\u{28f}', '\u{1d22}',
];

/// A letter without the circle or square around it, where NFKC keeps that; that of a small capital; and
/// the Greek letter that looks like ours, of which NFKC makes one that does not.
fn plain_letter(c: char) -> char {
    let from = |first: u32| char::from_u32(u32::from(c) - first + u32::from('a')).unwrap_or(c);
    match c {
        '\u{1f150}'..='\u{1f169}' => from(0x1f150),
        '\u{1f170}'..='\u{1f189}' => from(0x1f170),
        '\u{1f1e6}'..='\u{1f1ff}' => from(0x1f1e6),
        '\u{3f2}' | '\u{3f9}' | '\u{1455}' | '\u{531a}' => 'c',
        '\u{13c6}' | '\u{ab96}' => 'i',
        '\u{2c88}' | '\u{2c89}' | '\u{18e}' | '\u{1dd}' => 'e',
        _ => SMALL_CAPITALS
            .iter()
            .position(|capital| *capital == c)
            .map_or(c, |at| char::from(b'a' + at as u8)),
    }
}

/// The letter that a sign is typed for; of a letter that is like two of ours, the one that its shape is not.
fn sign(c: char) -> Option<char> {
    Some(match c {
        '(' | '[' | '{' | '<' | '\u{a9}' | '\u{a2}' | '\u{20ac}' | '\u{20a1}' | '\u{20b5}' | '\u{2282}' => {
            'c'
        }
        '@' => 'a',
        '$' => 's',
        '+' | '\u{2020}' => 't',
        '!' | '|' | '\u{a1}' | '\u{a6}' => 'i',
        '*' | '\u{b0}' | '\u{2022}' | '\u{b7}' | '\u{25cf}' | '\u{25cb}' | '\u{25ef}' | '\u{2b55}' => 'o',
        '\u{a792}' | '\u{a793}' => 'c',
        '\u{e4f}'
        | '\u{2299}'
        | '\u{26aa}'
        | '\u{26ab}'
        | '\u{1f534}'
        | '\u{1f535}'
        | '\u{1f7e0}'..='\u{1f7e4}' => 'o',
        '\u{a7}' => 's',
        '\u{20b1}' | '\u{2117}' => 'p',
        _ => return None,
    })
}

/// Which of the letters and digits that differ by a stroke stands for all.
fn one_of_its_kind(letter: char) -> char {
    match letter {
        'i' | 'l' | '1' | '\u{131}' | 'j' => 'l',
        '0' => 'o',
        '3' => 'e',
        '4' => 'a',
        '5' => 's',
        '7' => 't',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That a name is read as the product's, also where it stands between others.
    fn assert_is_ours(name: &str) {
        let ours = Reading::of("Coppice");
        assert!(Reading::of(name).is(&ours), "{name}");
        assert!(Reading::of(&format!("{name} console (official)")).contains(&ours), "{name}");
        assert!(Reading::of(&format!("my{name}2")).contains(&ours), "{name}");
    }

    #[test]
    fn what_people_read_as_the_same_name_is_the_same() {
        for name in [
            "coppice",
            "COPPICE",
            "C o p p i c e",
            "C.o_p-p/i\u{b7}c\u{2003}e",
            "Cop-pice.",
            "C0PP1CE",
            "C0pp!c3",
            "C|oppice",
            "Copp|ce",
            "C()ppice",
            "(oppice)",
            "C*pp|<e",
            "\u{a9}oppi\u{a2}e",
            "\u{20ac}oppice",
            "Copplce",
            "Copppice",
            "Coopice",
            // Cyrillic, Greek, Coptic, Armenian, Cherokee, Lisu; a letter with a dot less.
            "\u{421}\u{43e}\u{440}\u{440}i\u{441}e",
            "\u{421}\u{43e}\u{440}\u{440}\u{456}\u{441}\u{435}",
            "C\u{3bf}\u{3c1}\u{3c1}\u{3b9}\u{3f2}e",
            "\u{2ca4}\u{2c9f}\u{2ca3}\u{2ca3}\u{2c93}\u{2ca5}e",
            "C\u{585}ppice",
            "\u{13df}oppice",
            "\u{a4da}OPPI\u{a4da}E",
            "Copp\u{131}ce",
            "COPPIC\u{395}",
            "\u{3f9}\u{39f}\u{3a1}\u{3a1}\u{399}\u{3f9}\u{395}",
            "\u{13df}O\u{13e2}\u{13e2}\u{13c6}\u{13df}\u{13ac}",
            "\u{2ca4}\u{2c9f}\u{2ca3}\u{2ca3}\u{2c93}\u{2ca5}\u{2c89}",
            "C\u{26aa}ppice",
            "\u{2282}oppice",
            // Small capitals, fullwidth, mathematical, script, circled, in squares, as flags.
            "\u{1d04}\u{1d0f}pp\u{26a}\u{1d04}e",
            "\u{1d04}\u{1d0f}\u{1d18}\u{1d18}\u{26a}\u{1d04}\u{1d07}",
            "\u{ff23}\u{ff4f}\u{ff50}\u{ff50}\u{ff49}\u{ff43}\u{ff45}",
            "\u{1d402}\u{1d428}\u{1d429}\u{1d429}\u{1d422}\u{1d41c}\u{1d41e}",
            "C\u{2134}ppice",
            "\u{24b8}\u{24de}\u{24df}\u{24df}\u{24d8}\u{24d2}\u{24d4}",
            "\u{1f152}\u{1f15e}\u{1f15f}\u{1f15f}\u{1f158}\u{1f152}\u{1f154}",
            "\u{1f172}\u{1f17e}\u{1f17f}\u{1f17f}\u{1f178}\u{1f172}\u{1f174}",
            "\u{1f1e8}\u{1f1f4}\u{1f1f5}\u{1f1f5}\u{1f1ee}\u{1f1e8}\u{1f1ea}",
            // Accents, of one character or of two, and marks that nobody sees.
            "C\u{f6}pp\u{ed}\u{e7}\u{e9}",
            "Co\u{308}p\u{327}pi\u{301}ce\u{20dd}",
            "C\u{f8}ppice",
            "Cop\u{200b}pi\u{202e}ce\u{2060}",
            "Coppi\u{2063}c\u{ad}e",
        ] {
            assert_is_ours(name);
        }
    }

    #[test]
    fn what_is_like_a_letter_by_eye_alone_is_read_as_that() {
        for name in [
            "Coppic\u{454}",
            "Coppic\u{25b}",
            "COPPIC\u{404}",
            "Coppic\u{3b5}",
            "Coppic\u{258}",
            "Coppic\u{1971}",
            "Coppic\u{4bd}",
            "Coppi\u{3c2}e",
            "\u{aee}oppice",
            "Coppi\u{a793}\u{a793}",
            "Co\u{1d29}\u{1d29}ice",
            "Co\u{a751}\u{a751}ice",
            "Co\u{20bd}\u{20bd}ice",
            "C\u{47b}ppice",
            "Coppic\u{20ac}",
            // Circles, bars, arcs and whatever else is drawn.
            "C\u{2218}ppice",
            "C\u{25e6}ppice",
            "C\u{2b58}ppice",
            "C\u{25ce}ppice",
            "C\u{2609}ppice",
            "C\u{e4f}ppice",
            "C\u{20dd}ppice",
            "Copp\u{23d0}ce",
            "Copp\u{23ae}ce",
            "Copp\u{2758}ce",
            "Coppi\u{2201}e",
            "Coppi\u{2e26}e",
            "C\u{1f311}pp\u{258f}ce",
        ] {
            assert_is_ours(name);
        }
    }

    #[test]
    fn a_letter_of_another_script_in_a_word_may_be_any() {
        for name in [
            // Han, kana, Hangul, Bopomofo.
            "Copp\u{4e28}ce",
            "Copp\u{4e85}ce",
            "C\u{ac00}ppice",
            "C\u{30ed}ppice",
            "C\u{53e3}ppice",
            "COPPIC\u{314c}",
            "COPPIC\u{5de8}",
            "COPP\u{5de5}CE",
            "CO\u{5c38}\u{5c38}ICE",
            "\u{531a}\u{53e3}\u{5c38}\u{5c38}\u{5de5}\u{531a}\u{5de8}",
            "COPPI\u{3137}E",
            "Coppi\u{3108}E",
            "\u{3108}oppice",
            // Canadian syllabics, Cyrillic, Tifinagh, Armenian, Deseret, Gujarati, and one of Latin.
            "C\u{15dd}\u{146d}\u{146d}I\u{1455}E",
            "\u{1455}O\u{146d}\u{146d}I\u{1455}\u{15f4}",
            "\u{1455}\u{15dd}\u{146d}\u{146d}I\u{1455}\u{15f4}",
            "Co\u{48f}\u{48f}ice",
            "Coppi\u{481}e",
            "C\u{2d55}ppice",
            "Co\u{580}\u{580}ice",
            "Co\u{584}\u{584}ice",
            "Co\u{10425}pice",
            "Coppic\u{aa0}",
            "Co\u{a7fc}\u{a7fc}ice",
        ] {
            assert_is_ours(name);
        }
    }

    #[test]
    fn an_honest_name_may_be_in_any_script() {
        let ours = Reading::of("Coppice");
        for name in [
            "\u{5bb6}\u{8a08}\u{7c3f} Notes",
            "\u{30b3}\u{30d4}\u{30fc} office",
            "Co-op \u{65e5}\u{672c}\u{8a9e} ice",
            "Copilot\u{65e5}\u{672c}\u{8a9e}",
            "Co \u{5de5}\u{5177} ice",
            "\u{41e}\u{442}\u{447}\u{451}\u{442}\u{44b} CLI",
            "\u{3a3}\u{3b7}\u{3bc}\u{3b5}\u{3b9}\u{3ce}\u{3c3}\u{3b5}\u{3b9}\u{3c2}",
            "\u{b5}Torrent",
            "\u{ba54}\u{baa8} copy",
            "\u{1403}\u{14c4}\u{1483}\u{144e}\u{1450}\u{1466}",
        ] {
            assert!(!Reading::of(name).contains(&ours), "{name}");
            assert!(!Reading::of(name).is(&ours), "{name}");
        }
    }

    #[test]
    fn a_letter_of_any_script_that_looks_like_ours_is_read_as_ours() {
        let ours = Reading::of("Coppice");
        let mut seen = 0;
        for c in ('\u{80}'..'\u{20000}').filter(|c| c.is_alphabetic()) {
            let looks: String = skeleton(&c.to_string()).flat_map(char::to_lowercase).collect();
            if ["c", "o", "p", "i", "e"].contains(&looks.as_str()) {
                seen += 1;
                let name = "coppice".replacen(&looks, &c.to_string(), 1);
                assert!(Reading::of(&name).is(&ours), "{name} {c:?}");
            }
        }
        assert!(seen > 100, "{seen}");
    }

    #[test]
    fn another_name_is_another() {
        let ours = Reading::of("Coppice");
        for name in [
            "",
            "Copper",
            "Notes",
            "\u{7b46}\u{8a18}",
            "Copy space",
            "Cop piece",
            "Office",
            "C*",
            "((((",
            "Taco \u{2192} Ice",
            "Co\u{2013}\u{2013}ice",
            "\u{2605}\u{2605}\u{2605}ice",
            "L\u{2019}office",
        ] {
            assert!(!Reading::of(name).contains(&ours), "{name}");
            assert!(!Reading::of(name).is(&ours), "{name}");
        }
        let ledger = Reading::of("Ledger");
        assert!(Reading::of("LED GER!").is(&ledger) && !Reading::of("Ledger reader").is(&ledger));
        let han = Reading::of("\u{7b46}\u{8a18}");
        assert!(han.is(&han) && !ledger.is(&han));
        // Nothing is read as a name that has no letters.
        assert!(!ours.is(&Reading::of("!!!")));
    }
}
