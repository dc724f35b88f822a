//! Pages against a simple model: all entries, sorted.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use chrono::DateTime;
use proptest::prelude::*;

use super::*;
use crate::logs::search::DISORDER_MS;

const EPOCH_MS: i64 = 1_767_323_000_000;

/// The files of an instance in a directory.
struct Directory {
    instance: String,
    root: tempfile::TempDir,
}

impl Directory {
    fn new(instance: &str) -> Self {
        Self { instance: instance.to_owned(), root: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, began: i64) -> PathBuf {
        self.root.path().join(began.to_string())
    }

    fn append(&self, began: i64, bytes: &[u8]) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.path(began)).expect("a file");
        file.write_all(bytes).expect("written");
    }
}

impl Directory {
    fn logs(&self) -> InstanceLogs<'_> {
        InstanceLogs { instance: &self.instance, files: self }
    }
}

struct Content(File);

impl ReadAt for Content {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.0, buffer, offset)
    }
}

impl LogFiles for Directory {
    fn list(&self) -> io::Result<Vec<i64>> {
        let names = std::fs::read_dir(self.root.path())?.map(|entry| entry.map(|entry| entry.file_name()));
        Ok(names.filter_map(|name| name.ok()?.to_str()?.parse().ok()).collect())
    }

    fn open(&self, began: i64) -> io::Result<Option<LogFile>> {
        match File::open(self.path(began)) {
            Ok(file) => {
                let length = file.metadata()?.len();
                Ok(Some(LogFile { content: Box::new(Content(file)), length, modified_ms: i64::MAX }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn line(time_ms: i64, message: &str) -> String {
    let time = DateTime::from_timestamp_millis(time_ms).expect("a time").format("%Y-%m-%d %H:%M:%S%.3f");
    format!(
        r#"{{"timestamp":"{time} UTC","pid":1,"error_severity":"LOG","message":"{message}","backend_type":"client backend","query_id":0}}"#
    ) + "\n"
}

fn query(filters: &[LogFilter], limit: usize) -> LogQuery {
    let filters = LogFilters::new(filters).expect("good filters");
    LogQuery { start_ms: i64::MIN, end_ms: i64::MAX, filters, limit }
}

fn page(query: &LogQuery, logs: &[InstanceLogs<'_>], cursor: Option<&LogCursor>) -> LogPage {
    search(query, logs, cursor, &|| false).expect("a page")
}

fn messages(entries: &[LogEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.message.as_str()).collect()
}

/// A line to be: which instance and file, when, whether it is a rare one, and
/// how much else is in it.
#[derive(Clone, Debug)]
struct Planned {
    instance: usize,
    file: i64,
    time_ms: i64,
    is_rare: bool,
    padding: usize,
}

fn planned(disorder_ms: i64) -> impl Strategy<Value = Vec<Planned>> {
    let one = (0..2usize, 0..10u8, 0..400i64, 0..disorder_ms.max(1), any::<bool>(), 0..600usize);
    prop::collection::vec(one, 0..120).prop_map(move |lines| {
        let (mut now, mut file) = (EPOCH_MS, 0);
        let plan = lines.into_iter().map(|(instance, rotate, step, late, is_rare, padding)| {
            now += step;
            file += i64::from(rotate == 0);
            Planned { instance, file, time_ms: now - late, is_rare, padding: padding % 599 }
        });
        plan.collect()
    })
}

/// What happens between pages.
#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    Arrivals,
    Rotation,
    Removal,
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        Just(Between::Nothing),
        Just(Between::Arrivals),
        Just(Between::Rotation),
        Just(Between::Removal)
    ]
}

/// Writes what is planned; returns for each line its place in the order, its
/// file and its message.
fn write(plan: &[Planned], logs: &[Directory]) -> Vec<((i64, usize, usize), i64, String)> {
    let mut known = vec![];
    for (index, planned) in plan.iter().enumerate() {
        let kind = if planned.is_rare { "needle" } else { "straw" };
        let message = format!("{kind} {index} {}", "x".repeat(planned.padding));
        let file = EPOCH_MS / 1000 + planned.file;
        logs[planned.instance].append(file, line(planned.time_ms, &message).as_bytes());
        known.push(((-planned.time_ms, planned.instance, usize::MAX - index), file, message));
    }
    known.sort();
    known
}

fn disturb(between: Between, logs: &[Directory], gone: &mut Vec<i64>) {
    let newest = logs.iter().flat_map(|logs| logs.list().expect("files")).max().unwrap_or(0);
    let oldest = logs.iter().flat_map(|logs| logs.list().expect("files")).min().unwrap_or(0);
    let late = line(EPOCH_MS, "needle late");
    match between {
        Between::Nothing => {}
        Between::Arrivals => logs.iter().for_each(|logs| logs.append(newest, late.as_bytes())),
        Between::Rotation => logs.iter().for_each(|logs| logs.append(newest + 1, late.as_bytes())),
        Between::Removal => {
            if newest > oldest {
                logs.iter().for_each(|logs| drop(std::fs::remove_file(logs.path(oldest))));
                gone.push(oldest);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn pages_are_the_sorted_entries_whatever_happens_between_them(
        plan in planned(DISORDER_MS),
        limit in 1..30usize,
        wants_needles in any::<bool>(),
        span in prop::option::of((-1000..20_000i64, 0..90_000i64)),
        events in prop::collection::vec(between(), 0..6),
    ) {
        let logs = [Directory::new("b-1"), Directory::new("b-2")];
        let sorted = write(&plan, &logs);
        let filter = LogFilter::Body(BodyMatch::Contains, vec!["needle".to_owned()]);
        let mut query = query(if wants_needles { std::slice::from_ref(&filter) } else { &[] }, limit);
        if let Some((start, length)) = span {
            (query.start_ms, query.end_ms) = (EPOCH_MS + start, EPOCH_MS + start + length);
        }
        let sources = logs.each_ref().map(Directory::logs);
        let (mut seen, mut cursor, mut events, mut gone) = (vec![], None, events.into_iter(), vec![]);
        // What was there when its page was read has to be on it, what came later never.
        let mut expected = vec![];
        let mut rest: Vec<_> =
            sorted.into_iter().filter(|(_, _, message)| !wants_needles || message.starts_with("needle")).collect();
        rest.retain(|((time, _, _), _, _)| (query.start_ms..query.end_ms).contains(&-time));
        loop {
            let page = page(&query, &sources, cursor.as_ref());
            rest.retain(|(_, file, _)| !gone.contains(file));
            expected.extend(rest.drain(..rest.len().min(limit)).map(|(_, _, message)| message));
            seen.extend(page.entries.into_iter().map(|entry| entry.message));
            prop_assert_eq!(&seen, &expected);
            prop_assert_eq!(page.next.is_some(), !rest.is_empty());
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
            disturb(events.next().unwrap_or(Between::Nothing), &logs, &mut gone);
        }
    }

    #[test]
    fn nothing_is_lost_or_repeated_when_the_clock_jumps(
        plan in planned(100_000),
        limit in 1..30usize,
        wants_needles in any::<bool>(),
    ) {
        let logs = [Directory::new("b-1"), Directory::new("b-2")];
        let mut expected: BTreeMap<String, usize> = BTreeMap::new();
        for (_, _, message) in write(&plan, &logs) {
            if !wants_needles || message.starts_with("needle") {
                expected.insert(message, 1);
            }
        }
        let filter = LogFilter::Body(BodyMatch::Contains, vec!["needle".to_owned()]);
        let query = query(if wants_needles { std::slice::from_ref(&filter) } else { &[] }, limit);
        let sources = logs.each_ref().map(Directory::logs);
        let (mut seen, mut cursor) = (BTreeMap::new(), None);
        loop {
            let page = page(&query, &sources, cursor.as_ref());
            for entry in page.entries {
                *seen.entry(entry.message).or_insert(0) += 1;
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn blocks_hold_every_line_once_wherever_they_begin(lengths in prop::collection::vec(0..1500usize, 0..20)) {
        let logs = Directory::new("b-1");
        let lines: Vec<_> = lengths.iter().enumerate().map(|(at, length)| format!("{at}{}\n", "x".repeat(*length))).collect();
        logs.append(0, lines.concat().as_bytes());
        let open = logs.open(0).expect("readable").expect("there");
        let mut blocks = blocks::BackwardBlocks::new(&*open.content, open.length);
        let (mut seen, mut end) = (vec![], open.length);
        while let Some(block) = blocks.next(&|| false).expect("readable") {
            prop_assert_eq!(block.end, end);
            end = block.base;
            blocks::lines_backward(block.bytes, |start, end| {
                seen.push(String::from_utf8_lossy(&block.bytes[start..end]).into_owned());
                true
            });
        }
        seen.reverse();
        prop_assert_eq!(seen, lines);
        prop_assert_eq!(end, 0);
    }
}

#[test]
fn start_is_included_and_end_is_not() {
    let logs = Directory::new("b-1");
    for step in 0..5 {
        logs.append(EPOCH_MS / 1000, line(EPOCH_MS + step, &format!("m{step}")).as_bytes());
    }
    let query = LogQuery { start_ms: EPOCH_MS + 1, end_ms: EPOCH_MS + 3, ..query(&[], 10) };
    assert_eq!(messages(&page(&query, &[logs.logs()], None).entries), ["m2", "m1"]);
}

#[test]
fn a_line_that_is_being_written_waits_and_a_torn_one_is_shown_as_it_is() {
    let logs = Directory::new("b-1");
    let began = EPOCH_MS / 1000;
    let torn = &line(EPOCH_MS + 1, "torn apart")[..95];
    logs.append(began, line(EPOCH_MS, "whole").as_bytes());
    logs.append(began, torn.as_bytes());
    assert_eq!(messages(&page(&query(&[], 10), &[logs.logs()], None).entries), ["whole"]);
    // The server was killed; the next one has a file of its own.
    logs.append(began + 9, line(EPOCH_MS + 9000, "after").as_bytes());
    let entries = page(&query(&[], 10), &[logs.logs()], None).entries;
    assert_eq!(entries[0].message, "after");
    assert!(!entries[1].message.is_empty() && "torn apart".starts_with(&entries[1].message), "{entries:?}");
    assert_eq!(entries[2].message, "whole");
}

#[test]
fn of_a_line_that_is_too_long_beginning_and_end_are_read() {
    let logs = Directory::new("b-1");
    let began = EPOCH_MS / 1000;
    logs.append(began, line(EPOCH_MS, "before").as_bytes());
    logs.append(began, line(EPOCH_MS + 1, &format!("long {}", "x".repeat(100_000))).as_bytes());
    logs.append(began, line(EPOCH_MS + 2, "after").as_bytes());
    let entries = page(&query(&[], 10), &[logs.logs()], None).entries;
    assert_eq!((entries[0].message.as_str(), entries[2].message.as_str()), ("after", "before"));
    assert!(entries[1].message.starts_with("long xxx") && entries[1].process == "client backend");
}

#[test]
fn lines_that_are_none_are_passed_over() {
    let logs = Directory::new("b-1");
    let began = EPOCH_MS / 1000;
    logs.append(began, b"\n\n\xff\xfe\0\n{}\nnull\n");
    logs.append(began, line(EPOCH_MS, "one").as_bytes());
    logs.append(began, &[0; 5000]);
    logs.append(began, b"\n");
    logs.append(began, line(EPOCH_MS + 1, "two").as_bytes());
    assert_eq!(messages(&page(&query(&[], 10), &[logs.logs()], None).entries), ["two", "one"]);
}

#[test]
fn an_interrupted_search_ends() {
    let logs = Directory::new("b-1");
    logs.append(EPOCH_MS / 1000, line(EPOCH_MS, "one").as_bytes());
    let outcome = search(&query(&[], 10), &[logs.logs()], None, &|| true);
    assert!(matches!(outcome, Err(SearchError::Interrupted)));
}

#[test]
fn the_newest_entries_are_found_without_reading_the_rest() {
    let logs = Directory::new("b-1");
    let began = EPOCH_MS / 1000;
    for step in 0..2000 {
        logs.append(began + step, line(EPOCH_MS + step * 1000, "x").as_bytes());
    }
    // Opening counts; asking is once for each line and block.
    let asked = AtomicU32::new(0);
    let count = || {
        asked.fetch_add(1, Ordering::Relaxed);
        false
    };
    let found = search(&query(&[], 10), &[logs.logs()], None, &count).expect("a page");
    assert_eq!((found.entries.len(), found.next.is_some()), (10, true));
    assert!(asked.into_inner() < 60);
}
