//! Lines of text in the fonts of a sheet: how wide they are, and how they are broken.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use coppice_core::{Error, Result, name};
use krilla::text::{Font, GlyphId, KrillaGlyph};
use rustybuzz::{Direction, Face, UnicodeBuffer};
use unicode_bidi::{BidiInfo, Level};
use unicode_script::{Script, UnicodeScript as _};
use unicode_segmentation::UnicodeSegmentation as _;

/// Texts that are remembered, and their most bytes: most cells of a table say what
/// others say.
const REMEMBERED_MAX: usize = 5000;
const REMEMBERED_BYTES_MAX: usize = 64;
/// Most signs of a text that are looked at: more than any cell has room for.
const SIGNS_MAX: usize = 500;
/// Most signs that stand at one place: a letter with its marks.
const STACK_MAX: usize = 5;

/// A line with its glyphs.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) glyphs: Vec<KrillaGlyph>,
    /// In parts of the font's size.
    width: f32,
}

/// A font, and the lines that were set in it.
pub(super) struct Typeface {
    pub(super) font: Font,
    face: Face<'static>,
    known: HashMap<String, Rc<Line>>,
}

impl Typeface {
    /// # Errors
    /// When the data is no font.
    pub(super) fn new(data: &'static [u8]) -> Result<Self> {
        let broken = || Error::internal("a font of invoices is broken");
        let font = Font::new(data.into(), 0).ok_or_else(broken)?;
        let face = Face::from_slice(data, 0).ok_or_else(broken)?;
        Ok(Self { font, face, known: HashMap::new() })
    }

    /// Sets a text in one line. What the font has no sign for becomes an empty
    /// box; the text below it, which is searched and copied, stays.
    pub(super) fn set(&mut self, text: &str) -> Rc<Line> {
        if let Some(line) = self.known.get(text) {
            return line.clone();
        }
        let line = Rc::new(self.shape(text));
        if text.len() <= REMEMBERED_BYTES_MAX && self.known.len() < REMEMBERED_MAX {
            self.known.insert(text.to_owned(), line.clone());
        }
        line
    }

    fn shape(&self, text: &str) -> Line {
        let mut glyphs = vec![];
        for (run, level) in runs(text) {
            self.shape_run(text, run, level, &mut glyphs);
        }
        let width = glyphs.iter().map(|glyph: &KrillaGlyph| glyph.x_advance).sum();
        Line { text: text.to_owned(), glyphs, width }
    }

    /// Adds the glyphs of a part of a text that is of one script and one direction.
    fn shape_run(&self, text: &str, run: Range<usize>, level: Level, glyphs: &mut Vec<KrillaGlyph>) {
        let mut buffer = UnicodeBuffer::new();
        buffer.push_str(text.get(run.clone()).unwrap_or_default());
        buffer.guess_segment_properties();
        buffer.set_direction(if level.is_rtl() { Direction::RightToLeft } else { Direction::LeftToRight });
        let shaped = rustybuzz::shape(&self.face, &[], buffer);
        let mut starts: Vec<_> = shaped.glyph_infos().iter().map(|info| info.cluster as usize).collect();
        starts.sort_unstable();
        let end = |start: usize| {
            let after = starts.partition_point(|other| *other <= start);
            starts.get(after).copied().unwrap_or(run.len())
        };
        let em = self.font.units_per_em();
        let part = |units: i32| units as f32 / em;
        glyphs.extend(shaped.glyph_infos().iter().zip(shaped.glyph_positions()).map(|(info, position)| {
            let start = info.cluster as usize;
            KrillaGlyph::new(
                GlyphId::new(info.glyph_id),
                part(position.x_advance),
                part(position.x_offset),
                part(position.y_offset),
                part(position.y_advance),
                run.start + start..run.start + end(start),
                None,
            )
        }));
    }

    /// How wide a text is in a size.
    pub(super) fn width(&mut self, text: &str, size: f32) -> f32 {
        self.set(text).width * size
    }

    /// Breaks a text into at most so many lines that fit; what does not fit is
    /// left out, and the last line says so. An empty text has one empty line.
    pub(super) fn wrap(&mut self, text: &str, size: f32, room: f32, lines_max: usize) -> Vec<String> {
        let (text, is_cut) = legible(text);
        if !is_cut && self.width(&text, size) <= room {
            return vec![text];
        }
        let mut lines = vec![];
        let mut line = String::new();
        for word in text.split_whitespace() {
            let joined = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
            if self.width(&joined, size) <= room {
                line = joined;
                continue;
            }
            if !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            let mut rest = word;
            while lines.len() <= lines_max && self.shape(rest).width * size > room {
                let (head, tail) = rest.split_at(self.fitting(rest, size, room));
                lines.push(head.to_owned());
                rest = tail;
            }
            rest.clone_into(&mut line);
            if lines.len() > lines_max {
                break;
            }
        }
        if !line.is_empty() {
            lines.push(line);
        }
        if is_cut || lines.len() > lines_max {
            lines.truncate(lines_max);
            let last = lines.pop().unwrap_or_default();
            let room = room - self.width("…", size);
            let fits = self.fitting(&last, size, room);
            lines.push(format!("{}…", last.split_at(fits).0));
        }
        lines
    }

    /// How many bytes of a text fit, at least its first letter.
    fn fitting(&self, text: &str, size: f32, room: f32) -> usize {
        let letters = text.grapheme_indices(true).map(|(at, letter)| at + letter.len());
        let ends: Vec<_> = letters.collect();
        let fit =
            ends.partition_point(|end| self.shape(text.get(..*end).unwrap_or_default()).width * size <= room);
        ends.get(fit.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// A text whose parts are all seen, on one line and in their own direction; and
/// whether it had to be cut.
fn legible(text: &str) -> (String, bool) {
    let mut signs = text.chars();
    let seen = signs.by_ref().take(SIGNS_MAX).map(|sign| if name::is_unseen(sign) { ' ' } else { sign });
    let seen: String = seen.collect();
    let is_cut = signs.next().is_some();
    let letters = seen.graphemes(true).flat_map(|letter| letter.chars().take(STACK_MAX));
    (letters.collect(), is_cut)
}

/// The parts of a line from left to right, each of one script and one direction.
fn runs(text: &str) -> Vec<(Range<usize>, Level)> {
    let bidi = BidiInfo::new(text, None);
    let Some(paragraph) = bidi.paragraphs.first() else { return vec![] };
    let (levels, ordered) = bidi.visual_runs(paragraph, paragraph.range.clone());
    let mut runs = vec![];
    for run in ordered {
        let level = levels.get(run.start).copied().unwrap_or(Level::ltr());
        let mut parts = of_one_script(text, run);
        if level.is_rtl() {
            parts.reverse();
        }
        runs.extend(parts.into_iter().map(|part| (part, level)));
    }
    runs
}

/// Splits a part of a text where the script changes.
fn of_one_script(text: &str, run: Range<usize>) -> Vec<Range<usize>> {
    let mut parts = vec![];
    let (mut begin, mut script) = (run.start, Script::Common);
    for (at, sign) in text.get(run.clone()).unwrap_or_default().char_indices() {
        let own = sign.script();
        if matches!(own, Script::Common | Script::Inherited) || own == script {
            continue;
        }
        if script != Script::Common {
            parts.push(begin..run.start + at);
            begin = run.start + at;
        }
        script = own;
    }
    parts.push(begin..run.end);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: f32 = 100.0;

    fn typeface() -> Typeface {
        Typeface::new(dejavu::sans_condensed::regular()).expect("a font")
    }

    fn wrapped(text: &str) -> Vec<String> {
        let mut typeface = typeface();
        let lines = typeface.wrap(text, 9.0, ROOM, 3);
        for line in &lines {
            assert!(typeface.width(line, 9.0) <= ROOM, "{line:?} fits");
        }
        assert!((1..=3).contains(&lines.len()), "{lines:?}");
        lines
    }

    #[test]
    fn a_text_that_fits_is_one_line_as_it_is() {
        assert_eq!(wrapped(""), [""]);
        assert_eq!(wrapped("Trees & Sons"), ["Trees & Sons"]);
        assert_eq!(wrapped(") Tj ET (evil"), [") Tj ET (evil"]);
    }

    #[test]
    fn words_go_to_the_next_line_and_long_ones_are_broken() {
        let lines = wrapped("Instances of a type with a long name");
        assert!(lines.len() > 1, "{lines:?}");
        assert_eq!(lines.join(" "), "Instances of a type with a long name");
        let long = "abcdefghijklmnopqrstuvwxyzabcdefghijkl";
        assert_eq!(wrapped(long).concat(), long);
        let lines = wrapped(&format!("of {long}"));
        assert_eq!(lines.first().map(String::as_str), Some("of"), "a word begins on a line of its own");
        assert_eq!(lines.concat(), format!("of{long}"));
    }

    #[test]
    fn what_has_no_room_ends_in_an_ellipsis() {
        for text in ["name ".repeat(2000), "x".repeat(10_000), "i".repeat(10_000), "\u{5d0}".repeat(10_000)] {
            let lines = wrapped(&text);
            assert_eq!(lines.len(), 3, "{lines:?}");
            assert!(lines.last().is_some_and(|line| line.ends_with('…')), "{lines:?}");
        }
        let high = format!("Z{}", "\u{301}".repeat(10_000));
        assert_eq!(
            wrapped(&high),
            [format!("Z{}…", "\u{301}".repeat(STACK_MAX - 1))],
            "marks do not pile up"
        );
    }

    #[test]
    fn what_turns_or_breaks_a_text_is_left_out() {
        assert_eq!(wrapped("a\u{202e}b\nc\u{0}d"), ["a b c d"]);
        assert_eq!(wrapped("\n\u{2028}"), ["  "]);
    }

    #[test]
    fn each_script_goes_in_its_own_direction() {
        let order = |text: &str| {
            let mut signs = vec![];
            for glyph in &typeface().set(text).glyphs {
                signs.push(text.get(glyph.text_range.clone()).expect("a part").to_owned());
            }
            signs.concat()
        };
        assert_eq!(order("Acme 12"), "Acme 12");
        assert_eq!(order("A \u{5d0}\u{5d1}"), "A \u{5d1}\u{5d0}");
        assert_eq!(order("\u{5d0}\u{5d1} A 12"), "A 12 \u{5d1}\u{5d0}", "numbers are read from the left");
    }
}
