//! What a server wrote before it ended.
//!
//! A server that did not start says why in the output of its start, or, once
//! its collector runs, in a log file. What earlier servers of the instance
//! wrote there says nothing about this one.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::log_files::newest;
use super::log_pipe::LogPipe;
use super::untrusted::{UntrustedDir, UntrustedPath};

/// Most bytes read of a log.
const LENGTH_MAX: u64 = 1 << 20;

/// The newest log file and its length.
#[derive(Clone, Debug)]
pub(super) struct LogEnd {
    name: CString,
    length: u64,
}

/// Where the log ends now; none when there is no log. Blocks.
pub(super) fn end(directory: &UntrustedPath) -> Option<LogEnd> {
    end_in(&directory.open().ok()??)
}

fn end_in(directory: &UntrustedDir) -> Option<LogEnd> {
    let name = newest(directory).ok()??;
    let length = u64::try_from(directory.stat(&name).ok()?.st_size).ok()?;
    Some(LogEnd { name, length })
}

/// The newest log file, without what was in it before. Blocks.
pub(super) fn written_since(directory: &UntrustedPath, before: Option<&LogEnd>) -> String {
    let read = || {
        let directory = directory.open().ok()??;
        let newest = end_in(&directory)?;
        let skip = before.filter(|before| before.name == newest.name).map_or(0, |before| before.length);
        let (file, _) = directory.file(&newest.name).ok()??;
        read_from(file, skip.max(newest.length.saturating_sub(LENGTH_MAX))).ok()
    };
    read().unwrap_or_default()
}

/// Puts what its logger left in the pipe of a server that has ended into its
/// newest log file. Blocks.
pub(super) fn complete(directory: &UntrustedPath, pipe: LogPipe) {
    let lines = pipe.lines().concat();
    if lines.is_empty() {
        return;
    }
    let append = || -> std::io::Result<()> {
        let Some(directory) = directory.open()? else { return Ok(()) };
        let Some(name) = newest(&directory)? else { return Ok(()) };
        directory.append(&name, &lines)
    };
    if let Err(error) = append() {
        tracing::debug!(?directory, "the last lines of a server could not be added to its log: {error}");
    }
}

/// The end of a file that this account made, and a server wrote to. Blocks.
pub(super) fn tail(path: &Path) -> String {
    let read = || {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        read_from(file, length.saturating_sub(LENGTH_MAX))
    };
    read().unwrap_or_default()
}

fn read_from(mut file: File, start: u64) -> std::io::Result<String> {
    let mut bytes = vec![];
    file.seek(SeekFrom::Start(start))?;
    file.take(LENGTH_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
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
    use std::fs;
    use std::time::Duration;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn the_words_of_an_earlier_server_are_not_this_ones() {
        let home = tempfile::tempdir().unwrap();
        let directory = UntrustedPath::new(home.path(), "log");
        assert!(end(&directory).is_none());
        fs::create_dir(directory.host_path()).unwrap();
        assert!(end(&directory).is_none());
        let log = directory.host_path().join("postgresql-20260101-000000.json");
        fs::write(&log, "FATAL: of before\n").unwrap();
        // What the collector itself says before it logs elsewhere.
        fs::write(log.with_extension("log"), "LOG: ending log output to stderr\n").unwrap();
        let before = end(&directory);
        assert_eq!(written_since(&directory, before.as_ref()), "");
        fs::write(&log, "FATAL: of before\nFATAL: of now\n").unwrap();
        assert_eq!(written_since(&directory, before.as_ref()), "FATAL: of now\n");
        fs::write(directory.host_path().join("postgresql-20260101-000001.json"), "PANIC: later\n").unwrap();
        assert_eq!(written_since(&directory, before.as_ref()), "PANIC: later\n");
    }

    #[test]
    fn a_pipe_in_the_place_of_the_log_holds_up_nobody() {
        let home = tempfile::tempdir().unwrap();
        let directory = UntrustedPath::new(home.path(), "log");
        fs::create_dir(directory.host_path()).unwrap();
        let pipe = directory.host_path().join("postgresql-20260101-000000.json");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send((end(&directory), written_since(&directory, None))));
        let (end, words) = ended.recv_timeout(Duration::from_secs(60)).expect("an end");
        assert_eq!((end.map(|end| end.length), words), (Some(0), String::new()));
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
