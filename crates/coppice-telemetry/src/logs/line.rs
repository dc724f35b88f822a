//! One line of a `jsonlog` file.
//!
//! PostgreSQL writes an entry as one line, a flat object whose texts escape
//! quotes, backslashes and control characters and nothing else. So a quote
//! after a comma or a brace is never inside a text, which finds the beginning
//! of an entry also behind one that was torn by a crash. Texts are in the
//! encoding of their database, and the end of a line may be missing.

use std::sync::LazyLock;

use chrono::NaiveDate;
use memchr::memmem::FinderRev;
use memchr::{memchr, memchr2};

use super::entry::{LogEntry, LogLevel, cut};
use super::mask::Masker;

/// Begins every entry.
const BEGIN: &[u8] = b"{\"timestamp\":\"";
static LAST_BEGIN: LazyLock<FinderRev<'_>> = LazyLock::new(|| FinderRev::new(BEGIN));
/// Length of `2026-01-02 03:04:05.678`.
const TIME_LENGTH: usize = 23;

/// What else PostgreSQL says about a message: the field, and what it is
/// called in the composed text.
pub(super) const ADDITIONS: [(&[u8], &str); 5] = [
    (b"detail", "\nDETAIL: "),
    (b"hint", "\nHINT: "),
    (b"internal_query", "\nQUERY: "),
    (b"context", "\nCONTEXT: "),
    (b"statement", "\nSTATEMENT: "),
];

/// An entry that was found in a line and is not taken apart yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawEntry<'a> {
    bytes: &'a [u8],
    /// When it was written, in milliseconds since the Unix epoch.
    pub(super) timestamp_ms: i64,
}

impl<'a> RawEntry<'a> {
    /// The entry of a line; none when there is none in it.
    pub(super) fn find(line: &'a [u8]) -> Option<Self> {
        let begin = match line.strip_prefix(BEGIN) {
            // What follows a torn entry is on its line.
            Some(rest) => LAST_BEGIN.rfind(rest).map_or(0, |at| at + BEGIN.len()),
            None => LAST_BEGIN.rfind(line)?,
        };
        let bytes = &line[begin..];
        let timestamp_ms = time(&bytes[BEGIN.len()..])?;
        Some(Self { bytes, timestamp_ms })
    }

    /// Takes the entry apart.
    pub(super) fn parts(&self) -> Parts<'a> {
        let mut parts = Parts::default();
        let mut rest = &self.bytes[1..];
        while let Some((name, value, after)) = next_field(rest) {
            rest = after;
            match name {
                b"error_severity" => parts.severity = value,
                b"message" => parts.message = value,
                b"backend_type" => parts.process = value,
                _ => {
                    let known = ADDITIONS.iter().position(|(field, _)| *field == name);
                    if let Some(index) = known {
                        parts.additions[index] = value;
                    }
                }
            }
        }
        parts
    }
}

/// The texts of an entry as they are in the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts<'a> {
    severity: &'a [u8],
    message: &'a [u8],
    additions: [&'a [u8]; ADDITIONS.len()],
    process: &'a [u8],
}

impl Parts<'_> {
    pub(super) fn level(&self) -> LogLevel {
        LogLevel::of_severity(self.severity)
    }

    pub(super) fn process(&self) -> String {
        decoded(self.process)
    }

    /// Everything it says, without passwords.
    pub(super) fn text(&self) -> String {
        let mut texts = vec![("", decoded(self.message))];
        let additions = ADDITIONS.iter().zip(self.additions).filter(|(_, raw)| !raw.is_empty());
        texts.extend(additions.map(|((_, label), raw)| (*label, decoded(raw))));
        let mut masker = Masker::default();
        for (_, text) in &mut texts {
            masker.mask(text);
        }
        let mut whole = String::new();
        for (label, mut text) in texts {
            masker.mask_repetitions(&mut text);
            whole.push_str(label);
            whole.push_str(&text);
        }
        cut(whole)
    }

    pub(super) fn entry(&self, timestamp_ms: i64, instance: &str, message: String) -> LogEntry {
        LogEntry {
            timestamp_ms,
            instance: instance.to_owned(),
            level: self.level(),
            process: self.process(),
            message,
        }
    }
}

/// The next field: its name, its raw value without quotes, and what follows.
fn next_field(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let open = memchr(b'"', text)?;
    let (name, rest) = string(&text[open + 1..]);
    let rest = rest.strip_prefix(b":")?;
    match rest.strip_prefix(b"\"") {
        Some(rest) => {
            let (value, rest) = string(rest);
            Some((name, value, rest))
        }
        None => {
            let end = memchr2(b',', b'}', rest).unwrap_or(rest.len());
            Some((name, &rest[..end], &rest[end..]))
        }
    }
}

/// A raw text up to its closing quote, and what follows that. One that was
/// torn goes to the end.
fn string(text: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    while let Some(found) = memchr2(b'"', b'\\', &text[at..]) {
        at += found;
        if text[at] == b'"' {
            return (&text[..at], &text[at + 1..]);
        }
        at = (at + 2).min(text.len());
    }
    (text, &[])
}

/// A raw text as it was meant. What is no UTF-8 becomes U+FFFD.
fn decoded(raw: &[u8]) -> String {
    let Some(first) = memchr(b'\\', raw) else { return String::from_utf8_lossy(raw).into_owned() };
    let mut bytes = Vec::with_capacity(raw.len());
    bytes.extend_from_slice(&raw[..first]);
    let mut rest = &raw[first..];
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some((&escaped, after)) = rest.split_first() else { break };
        rest = after;
        match escaped {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'b' => bytes.push(8),
            b'f' => bytes.push(12),
            b'u' => {
                let digits = rest.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
                let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                rest = &rest[rest.len().min(4)..];
                let found = code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
                bytes.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `2026-01-02 03:04:05.678 UTC` in milliseconds since the Unix epoch.
fn time(text: &[u8]) -> Option<i64> {
    let digits = text.get(..TIME_LENGTH).filter(|_| text[TIME_LENGTH..].starts_with(b" UTC\""))?;
    let number = |from: usize, to: usize| {
        digits[from..to]
            .iter()
            .try_fold(0u32, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u32::from(byte - b'0')))
    };
    let separators = [(4, b'-'), (7, b'-'), (10, b' '), (13, b':'), (16, b':'), (19, b'.')];
    if separators.iter().any(|(at, byte)| digits[*at] != *byte) {
        return None;
    }
    let date = NaiveDate::from_ymd_opt(i32::try_from(number(0, 4)?).ok()?, number(5, 7)?, number(8, 10)?)?;
    let time = date.and_hms_milli_opt(number(11, 13)?, number(14, 16)?, number(17, 19)?, number(20, 23)?)?;
    Some(time.and_utc().timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::entry::MESSAGE_BYTES_MAX;

    const ERROR: &str = r#"{"timestamp":"2026-01-02 03:04:05.678 UTC","user":"app","pid":1,"session_start":"2026-01-02 03:04:00 UTC","vxid":"3/4","txid":0,"error_severity":"ERROR","state_code":"42601","message":"syntax error at or near \"x\"","detail":"one\ntwo","hint":"try","statement":"SELECT\t1","cursor_position":1,"backend_type":"client backend","query_id":0}"#;

    fn said(line: &[u8]) -> Option<(LogLevel, String, String)> {
        let parts = RawEntry::find(line)?.parts();
        Some((parts.level(), parts.process(), parts.text()))
    }

    #[test]
    fn detail_hint_and_statement_stay_with_their_message() {
        let raw = RawEntry::find(ERROR.as_bytes()).expect("an entry");
        assert_eq!(raw.timestamp_ms, 1_767_323_045_678);
        let text = "syntax error at or near \"x\"\nDETAIL: one\ntwo\nHINT: try\nSTATEMENT: SELECT\t1";
        assert_eq!(
            said(ERROR.as_bytes()),
            Some((LogLevel::Error, "client backend".to_owned(), text.to_owned()))
        );
    }

    #[test]
    fn an_entry_behind_a_torn_one_is_found() {
        for torn in ["", "{\"timest", &ERROR[..200], "\"]}garbage"] {
            let line = format!("{torn}{ERROR}");
            let (level, process, _) = said(line.as_bytes()).expect("an entry");
            assert_eq!((level, process.as_str()), (LogLevel::Error, "client backend"), "{torn}");
        }
    }

    #[test]
    fn whatever_is_cut_off_does_no_harm() {
        for length in 0..ERROR.len() {
            let _ = said(&ERROR.as_bytes()[..length]);
        }
        let torn =
            said(&ERROR.as_bytes()[..ERROR.find("r at or near").expect("its message")]).expect("an entry");
        assert_eq!((torn.0, torn.2.as_str()), (LogLevel::Error, "syntax erro"));
        for line in
            ["", "{", "null", "{\"timestamp\":\"never\"}", "{\"timestamp\":\"2026-99-02 03:04:05.678 UTC\"}"]
        {
            assert!(said(line.as_bytes()).is_none(), "{line}");
        }
    }

    #[test]
    fn what_is_no_utf_8_is_replaced() {
        let mut line = ERROR.replace("syntax", "caf!").into_bytes();
        let at = memchr(b'!', &line).expect("a mark");
        line[at] = 0xe9;
        let (_, _, text) = said(&line).expect("an entry");
        assert!(text.starts_with("caf\u{fffd} error"), "{text}");
    }

    #[test]
    fn a_long_message_is_cut_with_a_mark() {
        for letter in ["x", "é", "語"] {
            let line = ERROR.replace("syntax", &letter.repeat(20_000));
            let (_, _, text) = said(line.as_bytes()).expect("an entry");
            assert!(text.ends_with(&format!("{letter}… [cut]")), "{}", &text[text.len() - 20..]);
            assert!(text.len() <= MESSAGE_BYTES_MAX && text.len() > MESSAGE_BYTES_MAX - 4);
        }
    }

    #[test]
    fn severities_have_the_documented_levels() {
        for (severity, level) in [
            ("DEBUG1", LogLevel::Debug),
            ("DEBUG5", LogLevel::Debug),
            ("INFO", LogLevel::Info),
            ("NOTICE", LogLevel::Info),
            ("LOG", LogLevel::Info),
            ("WARNING", LogLevel::Warning),
            ("ERROR", LogLevel::Error),
            ("FATAL", LogLevel::Error),
            ("PANIC", LogLevel::Error),
        ] {
            assert_eq!(LogLevel::of_severity(severity.as_bytes()), level, "{severity}");
        }
    }
}
