//! Passwords never leave a log.
//!
//! PostgreSQL writes statements as they came, also those that set passwords.
//! What is said here is hidden wherever it is in doubt: a hidden word too many
//! costs a reader a moment, one too few costs a password.
//!
//! - the literal after the word `password`, however it is quoted, and a bare
//!   word there in a statement about roles;
//! - in a literal that has the word in it (a connection string, a statement
//!   that is put together), all that follows it; if the text is about roles or
//!   servers too, everything that follows it, and every literal before it;
//! - every literal of a statement that makes or changes a role, user, group,
//!   user mapping, subscription or server, whatever stands before it: the word
//!   may be misspelled, or missing. Only a time after `until` stays. What such
//!   a statement begins with has to be spelled right where the word is not;
//! - the password in a URL, and what follows the name of a verifier (RFC 5803);
//! - the same words where another part of the entry repeats them.

mod statement;

use std::ops::Range;
use std::sync::LazyLock;

use memchr::{memchr_iter, memchr2, memchr2_iter};
use regex_automata::meta::Regex;

use super::entry::MESSAGE_BYTES_MAX;

/// Stands for what is hidden.
pub(super) const MASK: &str = "********";

const WORD: &str = "password";
/// What a verifier begins with that PostgreSQL keeps.
const VERIFIER: &str = "scram-sha-256$";
/// Finds texts in which such a statement or a verifier can be.
static TRACES: LazyLock<Regex> = LazyLock::new(|| {
    let traces = r"(?i-u:\b(?:create|alter)(?:[\t-\r ]|/\*|--)|scram-sha-256\$)";
    Regex::new(traces).expect("the expression is valid")
});
/// Words of texts in which a password may be put together from literals.
const PLACES: [&str; 7] = ["role", "user", "group", "subscription", "server", "dblink", "connect"];
/// Shorter secrets are not looked for elsewhere: that would hide letters.
const REPETITION_MIN: usize = 4;
/// Most secrets of one entry that are looked for elsewhere.
const REPETITIONS_MAX: usize = 32;

/// Hides the passwords of one entry.
#[derive(Debug, Default)]
pub(super) struct Masker {
    secrets: Vec<String>,
}

impl Masker {
    /// Hides the passwords of a text and remembers them.
    pub(super) fn mask(&mut self, text: &mut String) {
        if !may_have_secrets(text.as_bytes()) {
            return;
        }
        let lower = text.to_ascii_lowercase();
        let mut hidden = Hidden {
            text,
            lower: &lower,
            roles_from: roles_from(&lower),
            words_end: text.bytes().rposition(is_word_byte).map_or(0, |last| last + 1),
            ranges: vec![],
        };
        hidden.hide_literals();
        hidden.hide_verifiers();
        if lower.contains("://") {
            hidden.hide_urls();
        }
        let mut ranges = hidden.ranges;
        if ranges.is_empty() {
            return;
        }
        ranges.sort_by_key(|range| (range.start, range.end));
        let mut at = 0;
        for range in &ranges {
            if range.end > at {
                self.remember(text[range.start.max(at)..range.end].trim());
                at = range.end;
            }
        }
        *text = with_masks(text, &ranges);
    }

    /// What hides nothing is not sought, and nothing is sought twice.
    fn remember(&mut self, secret: &str) {
        let is_sought = (REPETITION_MIN..=MESSAGE_BYTES_MAX).contains(&secret.len())
            && self.secrets.len() < REPETITIONS_MAX
            && !MASK.contains(secret)
            && !self.secrets.iter().any(|known| known == secret);
        if is_sought {
            self.secrets.push(secret.to_owned());
        }
    }

    /// Hides what was hidden in another text of the same entry. All of it is
    /// found in the text as it came, and none in what stands for the rest: a
    /// secret can look like that, too.
    pub(super) fn mask_repetitions(&self, text: &mut String) {
        let mut ranges: Vec<Range<usize>> = vec![];
        for secret in &self.secrets {
            ranges.extend(text.match_indices(secret.as_str()).map(|(at, found)| at..at + found.len()));
            ranges.sort_by_key(|range| range.start);
            ranges.dedup_by(|next, kept| {
                let is_part = next.start < kept.end;
                kept.end = if is_part { kept.end.max(next.end) } else { kept.end };
                is_part
            });
        }
        if !ranges.is_empty() {
            *text = with_masks(text, &ranges);
        }
    }
}

/// A text with masks for ranges of it, which are in order.
fn with_masks(text: &str, ranges: &[Range<usize>]) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut at = 0;
    for range in ranges {
        if range.start >= at {
            masked.push_str(&text[at..range.start]);
            masked.push_str(MASK);
        }
        at = at.max(range.end);
    }
    masked.push_str(&text[at..]);
    masked
}

/// Tells almost every text in no time that it has none: `w` is rare, and a
/// colon before two slashes is rarer; few statements create or alter anything.
fn may_have_secrets(text: &[u8]) -> bool {
    let is_word = |at: usize| {
        let word = at.checked_sub(4).and_then(|begin| text.get(begin..begin + WORD.len()));
        word.is_some_and(|word| word.eq_ignore_ascii_case(WORD.as_bytes()))
    };
    memchr2_iter(b'w', b'W', text).any(is_word)
        || memchr_iter(b':', text).any(|at| text[at..].starts_with(b"://"))
        || TRACES.is_match(text)
}

struct Hidden<'a> {
    text: &'a str,
    lower: &'a str,
    /// From where on the text is known to make or change a role.
    roles_from: Option<usize>,
    /// Where the last word of the text ends.
    words_end: usize,
    ranges: Vec<Range<usize>>,
}

fn roles_from(lower: &str) -> Option<usize> {
    let first = |words: &[&str]| words.iter().filter_map(|word| lower.find(word)).min();
    Some(first(&["alter", "create"])?.max(first(&["role", "user", "group"])?))
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Where the word ends in a text, if it is there as a whole word at its end.
fn end_of_word(lower: &str, from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(found) = lower.get(at..)?.find(WORD) {
        let end = at + found + WORD.len();
        if !lower.as_bytes().get(end).is_some_and(|byte| is_word_byte(*byte)) {
            return Some(end);
        }
        at = end;
    }
    None
}

impl Hidden<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn find(&self, what: &str, from: usize) -> Option<usize> {
        self.lower.get(from..)?.find(what).map(|found| from + found)
    }

    fn hide(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.ranges.push(range);
        }
    }

    /// Goes through a text as SQL: literals are skipped as a whole, so that a
    /// word in one is told from a word of the statement. Bodies in dollar
    /// quotes are statements themselves.
    fn hide_literals(&mut self) {
        let has_place = PLACES.iter().any(|place| self.lower.contains(place));
        let (mut literals, mut at) = (vec![], 0);
        // Whether what follows belongs to a statement about roles or servers.
        let mut is_in_statement = false;
        while let Some(byte) = self.byte(at) {
            if let Some(end) = self.end_of_comment(at) {
                self.hide_in_comment(at..end, is_in_statement);
                at = end;
            } else if is_in_statement && let Some(end) = self.pass_in_statement(at) {
                at = end;
            } else if byte == b'\'' {
                let content = self.literal(at);
                at = content.end + 1;
                let statement = self.statement_in(content.clone());
                match end_of_word(&self.lower[..content.end], content.start).or(statement) {
                    Some(from) if has_place => {
                        // A statement that is put together, or a quote that is none.
                        self.hide(from..self.text.len());
                        literals.drain(..).for_each(|literal| self.hide(literal));
                        return;
                    }
                    Some(word) => self.hide(word..content.end),
                    None => literals.push(content),
                }
            } else if self.is_word_at(at) {
                at = self.hide_after_word(at + WORD.len());
            } else if let Some(end) = self.end_of_beginning(at) {
                is_in_statement = true;
                at = end;
            } else {
                is_in_statement &= byte != b';';
                at += 1;
            }
        }
    }

    /// Hides what follows the names of verifiers.
    fn hide_verifiers(&mut self) {
        let mut from = 0;
        while let Some(found) = self.find(VERIFIER, from) {
            let begin = found + VERIFIER.len();
            let rest = &self.text[begin..];
            let ends = |c: char| c.is_whitespace() || "'\",;)".contains(c);
            from = begin + rest.find(ends).unwrap_or(rest.len());
            self.hide(begin..from);
        }
    }

    fn is_word_at(&self, at: usize) -> bool {
        let rest = &self.lower.as_bytes()[at..];
        rest.starts_with(WORD.as_bytes()) && !rest.get(WORD.len()).is_some_and(|byte| is_word_byte(*byte))
    }

    /// Hides what the word `password` that ends at `at` announces; returns
    /// where to go on.
    fn hide_after_word(&mut self, at: usize) -> usize {
        let is_assigned = self.byte(at) == Some(b'=');
        let mut next = self.skip_between(at);
        let Some(mut end) = self.hide_literal(next) else {
            let is_bare = is_assigned && next == at + 1 || self.roles_from.is_some_and(|from| from < at);
            if !is_bare {
                return next.max(at);
            }
            let ends = |c: char| c.is_whitespace() || "'\";&,)".contains(c);
            let rest = &self.text[next..];
            let end = next + rest.find(ends).unwrap_or(rest.len());
            if !self.lower[next..end].eq("null") {
                self.hide(next..end);
            }
            return end;
        };
        // Literals that follow each other are one.
        loop {
            next = self.skip_between(end);
            match self.hide_literal(next).filter(|_| self.byte(next) == Some(b'\'')) {
                Some(further) => end = further,
                None => return end,
            }
        }
    }

    /// Blanks, comments and what stands between a name and its value.
    fn skip_between(&self, mut at: usize) -> usize {
        loop {
            if let Some(end) = self.end_of_comment(at) {
                at = end;
                continue;
            }
            match self.byte(at) {
                Some(b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c | b'=' | b':' | b'"' | b'(') => at += 1,
                _ => return at,
            }
        }
    }

    /// Hides the content of a literal that begins here; returns where it ends.
    fn hide_literal(&mut self, at: usize) -> Option<usize> {
        if self.byte(at) == Some(b'$') {
            let rest = &self.text[at + 1..];
            let tag = rest.find('$').filter(|end| rest[..*end].bytes().all(is_word_byte))?;
            let delimiter = self.text[at..=at + 1 + tag].to_owned();
            let begin = at + delimiter.len();
            let content = self.text[begin..].find(&delimiter);
            let end = content.map_or(self.text.len(), |end| begin + end);
            self.hide(begin..end);
            return Some((end + delimiter.len()).min(self.text.len()));
        }
        let rest = &self.lower[at..];
        let prefix =
            ["u&'", "e'", "n'", "b'", "x'", "'"].into_iter().find(|prefix| rest.starts_with(prefix))?;
        let open = at + prefix.len() - 1;
        let run = self.text[open..].bytes().take_while(|byte| *byte == b'\'').count();
        let mut content = self.literal(open);
        let has_escapes = prefix == "e'";
        let is_doubtful = run.is_multiple_of(2)
            || !has_escapes && self.text[content.clone()].contains("\\'")
            || !has_escapes && content.end > 0 && self.byte(content.end - 1) == Some(b'\\');
        if is_doubtful {
            // Quotes in quotes, or escapes that only the server's settings
            // explain: who knows where it ends.
            content = open + run..self.text.len();
            if self.words_end <= content.start {
                return Some(open + run);
            }
        }
        let end = content.end;
        self.hide(content);
        Some((end + 1).min(self.text.len()))
    }

    /// The content of the literal whose quote is at `open`. One that does not
    /// end goes to the end of the text.
    fn literal(&self, open: usize) -> Range<usize> {
        let bytes = self.text.as_bytes();
        let before = |back: usize| open.checked_sub(back).map(|at| bytes[at]);
        let has_escapes = matches!(before(1), Some(b'e' | b'E')) && !before(2).is_some_and(is_word_byte);
        let mut at = open + 1;
        while at < bytes.len() {
            match bytes[at] {
                b'\\' if has_escapes => at += 2,
                b'\'' if bytes.get(at + 1) == Some(&b'\'') => at += 2,
                b'\'' => return open + 1..at,
                _ => at += 1,
            }
        }
        open + 1..bytes.len().max(open + 1)
    }

    /// Where the comment ends that begins here, if one does.
    fn end_of_comment(&self, at: usize) -> Option<usize> {
        let bytes = self.text.as_bytes();
        match bytes.get(at..at + 2)? {
            b"--" => Some(self.find("\n", at).map_or(bytes.len(), |end| end + 1)),
            b"/*" => {
                let (mut depth, mut at) = (1_usize, at + 2);
                while depth > 0 {
                    // Each byte is looked at once, however many comments are in each other.
                    let Some(found) = memchr2(b'/', b'*', bytes.get(at..)?) else { return Some(bytes.len()) };
                    at += found;
                    (depth, at) = match bytes.get(at..at + 2) {
                        Some(b"/*") => (depth + 1, at + 2),
                        Some(b"*/") => (depth - 1, at + 2),
                        _ => (depth, at + 1),
                    };
                }
                Some(at)
            }
            _ => None,
        }
    }

    /// Hides the password of `scheme://user:password@host`.
    fn hide_urls(&mut self) {
        let mut from = 0;
        while let Some(found) = self.find("://", from) {
            let begin = found + 3;
            let rest = &self.text[begin..];
            let ends = |c: char| c.is_whitespace() || "'\"<>`".contains(c);
            let authority = &rest[..rest.find(ends).unwrap_or(rest.len())];
            from = begin + authority.len();
            let Some(host) = authority.rfind('@') else { continue };
            if let Some(colon) = authority[..host].find(':') {
                self.hide(begin + colon + 1..begin + host);
            }
        }
    }
}
