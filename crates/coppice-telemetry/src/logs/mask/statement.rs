//! Statements that make or change roles, users, groups, user mappings,
//! subscriptions and servers: every literal of theirs can be a password.

use std::ops::Range;

use super::{Hidden, end_of_word, is_word_byte};

/// What a statement about roles or servers begins with, together with one of
/// the words after it.
const VERBS: [&str; 2] = ["create", "alter"];
const NOUNS: [&str; 5] = ["role", "user", "group", "subscription", "server"];
/// How far apart the two may be, in bytes of blanks and comments.
const BEGINNING_BYTES_MAX: usize = 256;
impl Hidden<'_> {
    pub(super) fn hide_in_comment(&mut self, comment: Range<usize>, is_in_statement: bool) {
        if let Some(word) = end_of_word(&self.lower[..comment.end], comment.start) {
            self.hide(word..comment.end);
        } else if is_in_statement && self.text[comment.clone()].contains(['\'', '$']) {
            self.hide(comment);
        }
    }

    /// Passes a literal or a quoted name of a statement about roles or servers,
    /// if one begins here, and hides the literal.
    pub(super) fn pass_in_statement(&mut self, at: usize) -> Option<usize> {
        let is_quote = self.byte(at) == Some(b'\'');
        if self.byte(at) == Some(b'"') {
            // A quote that does not end is none.
            return self.find("\"", at + 1).map(|end| end + 1);
        }
        if !is_quote && self.is_after_word_byte(at) {
            return None;
        }
        if is_quote && self.lower[..at].trim_end().ends_with(" until") {
            return Some((self.literal(at).end + 1).min(self.text.len()));
        }
        self.hide_literal(at)
    }

    fn is_after_word_byte(&self, at: usize) -> bool {
        at.checked_sub(1).and_then(|before| self.byte(before)).is_some_and(is_word_byte)
    }

    /// Where a statement about roles or servers that begins here has named what
    /// it is about.
    pub(super) fn end_of_beginning(&self, at: usize) -> Option<usize> {
        let rest = self.lower.as_bytes().get(at..)?;
        let verb = VERBS.into_iter().find(|verb| rest.starts_with(verb.as_bytes()))?;
        if self.is_after_word_byte(at) {
            return None;
        }
        let after = at + verb.len();
        let mut end = (after + BEGINNING_BYTES_MAX).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        let near = Hidden { text: &self.text[..end], lower: &self.lower[..end], ranges: vec![], ..*self };
        let noun = near.skip_between(after);
        let rest = self.lower.as_bytes().get(noun..).filter(|_| noun > after)?;
        let word = NOUNS.into_iter().find(|word| rest.starts_with(word.as_bytes()))?;
        rest.get(word.len()).is_none_or(|byte| !is_word_byte(*byte)).then_some(noun + word.len())
    }

    /// The same of the first one within a part of the text.
    pub(super) fn statement_in(&self, part: Range<usize>) -> Option<usize> {
        part.clone().find_map(|at| self.end_of_beginning(at).filter(|end| *end <= part.end))
    }
}
