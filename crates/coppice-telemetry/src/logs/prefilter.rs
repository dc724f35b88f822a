//! What a line must have in it, as raw bytes, to match.
//!
//! Most lines of a log don't match; searching their bytes is many times faster
//! than taking them apart. What is searched for are pieces that are the same
//! in the file and in the message: without characters that the file escapes,
//! that replace what can't be shown, or that the message has and the file has
//! not (labels, masks, the mark of a cut).

use regex_automata::meta::Regex;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

use super::automaton::automaton;
use super::entry::{CUT, LogLevel};
use super::line::ADDITIONS;
use super::mask::MASK;

/// Shorter pieces are in too many lines.
const PIECE_MIN: usize = 2;
/// More pieces than this are slower to search for than lines to take apart.
const PIECES_MAX: usize = 128;
/// More of a piece keeps back hardly any more lines.
const PIECE_MAX: usize = 64;
/// Largest compiled form of all pieces, in bytes.
const SIZE_MAX: usize = 4 << 20;

/// Pieces of which every matching line has at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Required {
    pieces: Vec<String>,
    is_in_any_case: bool,
}

impl Required {
    /// Longer pieces are in fewer lines.
    fn worth(&self) -> usize {
        self.pieces.iter().map(String::len).min().unwrap_or_default()
    }

    /// The one that keeps back more.
    pub(super) fn better(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if other.worth() > one.worth() { other } else { one }),
            (one, other) => one.or(other),
        }
    }

    /// The severity of a line tells its level. Ordinary lines are most of a
    /// log, so searching for them gains nothing.
    pub(super) fn of_levels(levels: &[String]) -> Option<Self> {
        let wanted =
            LogLevel::ALL.into_iter().filter(|level| levels.iter().any(|name| name == level.as_str()));
        let wanted: Vec<_> = wanted.collect();
        if wanted.is_empty() || wanted.contains(&LogLevel::Info) {
            return None;
        }
        let severities = wanted.into_iter().flat_map(LogLevel::severities);
        let pieces = severities.map(|name| format!("\"error_severity\":\"{name}\"")).collect();
        Some(Self { pieces, is_in_any_case: false })
    }

    /// Searches for them.
    pub(super) fn searcher(&self) -> Option<Regex> {
        let pieces = self.pieces.iter().map(|piece| {
            let mut parser = ParserBuilder::new().case_insensitive(self.is_in_any_case).build();
            parser.parse(&regex_syntax::escape(piece)).ok()
        });
        automaton(&pieces.collect::<Option<Vec<_>>>()?, SIZE_MAX)
    }
}

/// What is required if one of several expressions has to match.
pub(super) fn required_by_all(
    expressions: impl Iterator<Item = Option<Hir>>,
    is_in_any_case: bool,
) -> Option<Required> {
    let pieces = expressions.map(|hir| required(&hir?)).collect::<Option<Vec<_>>>()?.concat();
    (pieces.len() <= PIECES_MAX).then_some(Required { pieces, is_in_any_case })
}

/// Pieces of which one is in everything that an expression matches.
fn required(hir: &Hir) -> Option<Vec<String>> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(vec![piece(std::str::from_utf8(&literal.0).ok()?)?]),
        HirKind::Capture(capture) => required(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub),
        HirKind::Concat(parts) => parts.iter().filter_map(required).max_by_key(|pieces| {
            let shortest = pieces.iter().map(String::len).min().unwrap_or_default();
            (shortest, std::cmp::Reverse(pieces.len()))
        }),
        HirKind::Alternation(choices) => {
            let pieces = choices.iter().map(required).collect::<Option<Vec<_>>>()?.concat();
            (pieces.len() <= PIECES_MAX).then_some(pieces)
        }
        HirKind::Repetition(_) | HirKind::Class(_) | HirKind::Look(_) | HirKind::Empty => None,
    }
}

/// The longest part of a text that is in the file as it is in the message.
fn piece(text: &str) -> Option<String> {
    let splits = |c: char| {
        c.is_control() || c == '"' || c == '\\' || c == char::REPLACEMENT_CHARACTER
            // Of labels, masks and the mark of a cut.
            || ":*…[]".contains(c)
    };
    let pieces = text.split(splits).map(|piece| piece.trim_start_matches(' '));
    let usable = pieces.filter(|piece| piece.len() >= PIECE_MIN && !is_ours(piece));
    let longest = usable.max_by_key(|piece| piece.len())?;
    Some(longest[..longest.floor_char_boundary(PIECE_MAX)].to_owned())
}

/// Whether the message may have this from us alone.
fn is_ours(piece: &str) -> bool {
    let piece = piece.to_lowercase();
    let labels = ADDITIONS.iter().map(|(_, label)| *label);
    labels.chain([MASK, CUT]).any(|own| own.to_lowercase().contains(&piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(expression: &str) -> Option<Vec<String>> {
        required(&ParserBuilder::new().build().parse(expression).expect("an expression"))
    }

    #[test]
    fn the_longest_piece_that_is_in_the_file_too_is_searched_for() {
        for (expression, expected) in [
            ("deadlock detected", Some(vec!["deadlock detected"])),
            (r#"a "relation" b"#, Some(vec!["relation"])),
            ("DETAIL: Process", Some(vec!["Process"])),
            ("DETAIL", None),
            ("tail: x", None),
            (r"\d+", None),
            ("x*", None),
            (r"user=\w+ (abc|defg)+", Some(vec!["user="])),
            ("(abc|defg)h", Some(vec!["abc", "defg"])),
            ("abc|x", None),
            (r"line\none", Some(vec!["line"])),
        ] {
            let expected = expected.map(|list| list.into_iter().map(str::to_owned).collect());
            assert_eq!(pieces(expression), expected, "{expression}");
        }
    }
}
