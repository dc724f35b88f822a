//! What a server wrote before it ended.
//!
//! A server that did not start says why in the output of its start, or, once
//! its collector runs, in a log file. What earlier servers of the instance
//! wrote there says nothing about this one.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most bytes read of a log.
const LENGTH_MAX: u64 = 1 << 20;

/// The newest log file and its length.
#[derive(Debug)]
pub(super) struct LogEnd {
    path: PathBuf,
    length: u64,
}

/// Where the log ends now; none when there is no log.
pub(super) fn end(directory: &Path) -> Option<LogEnd> {
    let entries = fs::read_dir(directory).ok()?;
    // The names tell the time.
    let path = entries.filter_map(Result::ok).map(|entry| entry.path()).max()?;
    let length = path.symlink_metadata().ok()?.len();
    Some(LogEnd { path, length })
}

/// The newest log file, without what was in it before. The directory belongs
/// to the server, so nothing in it is followed or trusted.
pub(super) fn written_since(directory: &Path, before: Option<&LogEnd>) -> String {
    let Some(newest) = end(directory) else { return String::new() };
    let skip = before.filter(|before| before.path == newest.path).map_or(0, |before| before.length);
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let Ok(mut file) = OpenOptions::new().read(true).custom_flags(no_follow).open(newest.path) else {
        return String::new();
    };
    let start = skip.max(newest.length.saturating_sub(LENGTH_MAX));
    let mut bytes = vec![];
    if file.seek(SeekFrom::Start(start)).is_ok() {
        let _ = file.take(LENGTH_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The line that says best why a server ended.
pub(super) fn most_telling(text: &str) -> String {
    let find = |words: &[&str]| text.lines().rev().find(|line| words.iter().any(|word| line.contains(word)));
    // Before its log is set up, PostgreSQL only says what it could not do.
    let line = find(&["FATAL", "PANIC", "launcher:"]).or_else(|| find(&["could not"]));
    let Some(line) = line.or_else(|| text.lines().last()) else {
        return "the server ended without a word".to_owned();
    };
    let parsed: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let message = parsed.as_ref().and_then(|entry| entry.get("message")).and_then(|message| message.as_str());
    message.unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_an_earlier_server_are_not_this_ones() {
        let directory = tempfile::tempdir().unwrap();
        assert!(end(directory.path()).is_none());
        let log = directory.path().join("postgresql-20260101-000000.log");
        fs::write(&log, "FATAL: of before\n").unwrap();
        let before = end(directory.path());
        assert_eq!(written_since(directory.path(), before.as_ref()), "");
        fs::write(&log, "FATAL: of before\nFATAL: of now\n").unwrap();
        assert_eq!(written_since(directory.path(), before.as_ref()), "FATAL: of now\n");
        fs::write(directory.path().join("postgresql-20260101-000001.log"), "PANIC: later\n").unwrap();
        assert_eq!(written_since(directory.path(), before.as_ref()), "PANIC: later\n");
    }

    #[test]
    fn the_reason_is_found_among_other_lines() {
        let json = r#"{"error_severity":"FATAL","message":"no such file"}"#;
        for (text, reason) in [
            ("", "the server ended without a word"),
            ("LOG: a\nFATAL: b\nHINT: c\n", "FATAL: b"),
            (json, "no such file"),
            ("postgres: not found\nbut could not open \"x\"\nhint\n", "but could not open \"x\""),
        ] {
            assert_eq!(most_telling(text), reason);
        }
    }
}
