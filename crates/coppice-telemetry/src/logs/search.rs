//! Pages of a log, newest entry first.
//!
//! Entries are ordered by time, then by instance, then by their place in the
//! files, the later one first. Processes write at the same time, so lines are
//! a little out of order in a file: reading backwards goes on until no line
//! further below can be newer than what was found. A line that is older than
//! one below it by more than [`DISORDER_MS`] (the clock was set back, or a
//! process slept between making a line and writing it) is not waited for: lines
//! below it count as not newer than that, whatever they say. So each entry has
//! one place in the order that depends on the files alone, and no page repeats
//! or leaves out what another one has.
//!
//! A cursor holds the place of the last entry given out, where to read on, and
//! how far the files went when the first page was read: what is written later
//! belongs to another query.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use serde::{Deserialize, Serialize};

use super::ahead::Ahead;
use super::blocks::{BackwardBlocks, Block, end_of_last_line, lines_backward, read_at_most};
use super::filter::LogFilters;
use super::line::RawEntry;
use super::{InstanceLogs, LogEntry, LogFile, SearchError};

/// How far lines may be out of order in a file, in milliseconds.
pub(super) const DISORDER_MS: i64 = 2_000;
/// How far names, times of files and lines may disagree, in milliseconds.
const MARGIN_MS: i64 = 60_000;
/// Most files of an instance that are looked at, newest first.
const FILES_MAX: usize = 20_000;
/// Most bytes of a file that are looked at, from its end.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// What is asked for.
#[derive(Debug)]
pub struct LogQuery {
    /// The earliest time, in milliseconds since the Unix epoch.
    pub start_ms: i64,
    /// The first time that is too late.
    pub end_ms: i64,
    /// Which entries.
    pub filters: LogFilters,
    /// How many at most.
    pub limit: usize,
}

/// Entries, and where the next ones are.
#[derive(Debug, Default)]
pub struct LogPage {
    /// Newest first.
    pub entries: Vec<LogEntry>,
    /// None after the last page.
    pub next: Option<LogCursor>,
}

/// Where a page ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCursor {
    /// The last entry that was given out.
    last: Place,
    /// By instance; one that is missing has come since the first page.
    instances: Vec<Reading>,
}

/// How far an instance's files are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reading {
    instance: String,
    /// Where to read on, downwards: a file and a place in it.
    from: (i64, u64),
    /// What lines from there on count as at most.
    ceiling_ms: i64,
}

/// The place of an entry in the order; a smaller one is given out earlier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Place {
    time_ms: Reverse<i64>,
    instance: String,
    file: Reverse<i64>,
    offset: Reverse<u64>,
}

#[derive(Debug)]
struct Candidate {
    place: Place,
    /// What it takes to come by it again.
    again: Reading,
    entry: LogEntry,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}
impl Eq for Candidate {}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place.cmp(&other.place)
    }
}

/// Reads a page: the first one, or the one at `cursor`. Blocks; `is_over` is
/// asked often whether to give up.
///
/// # Errors
/// When it was interrupted, or a file can't be read.
pub fn search(
    query: &LogQuery,
    instances: &[InstanceLogs<'_>],
    cursor: Option<&LogCursor>,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<LogPage, SearchError> {
    let (mut found, mut left) = (BinaryHeap::new(), Left::default());
    let mut readings = vec![];
    for logs in instances {
        let start = match cursor {
            None => Some(newest_end(*logs)?),
            Some(cursor) => cursor.instances.iter().find(|known| known.instance == logs.instance).cloned(),
        };
        let Some(start) = start else { continue };
        let (found, left) = (&mut found, &mut left);
        let mut search = Search { query, logs: *logs, cursor, is_over, found, left, at: start };
        if query.filters.wants_instance(logs.instance) {
            search.run()?;
        }
        readings.push(search.at);
    }
    let mut candidates = found.into_sorted_vec();
    if candidates.len() <= query.limit {
        return Ok(LogPage { entries: candidates.into_iter().map(|one| one.entry).collect(), next: None });
    }
    candidates.split_off(query.limit).into_iter().for_each(|one| left.note(one.again));
    for reading in &mut readings {
        if let Some(left) = left.0.remove(&reading.instance) {
            *reading = left;
        }
    }
    let last = candidates.last().map(|one| one.place.clone());
    let next = last.map(|last| LogCursor { last, instances: readings });
    Ok(LogPage { entries: candidates.into_iter().map(|one| one.entry).collect(), next })
}

/// By instance, the newest of what was seen and did not fit into the page.
#[derive(Debug, Default)]
struct Left(BTreeMap<String, Reading>);

impl Left {
    fn note(&mut self, reading: Reading) {
        let known = self.0.get(&reading.instance);
        if known.is_none_or(|known| known.from < reading.from) {
            self.0.insert(reading.instance.clone(), reading);
        }
    }
}

/// Where the first page begins.
fn newest_end(logs: InstanceLogs<'_>) -> Result<Reading, SearchError> {
    let newest = logs.files.list()?.into_iter().max().unwrap_or(i64::MIN);
    let end = match logs.files.open(newest)? {
        Some(open) => end_of_last_line(&*open.content, open.length)?,
        None => 0,
    };
    Ok(Reading { instance: logs.instance.to_owned(), from: (newest, end), ceiling_ms: i64::MAX })
}

/// The search in the files of one instance.
struct Search<'a> {
    query: &'a LogQuery,
    logs: InstanceLogs<'a>,
    cursor: Option<&'a LogCursor>,
    is_over: &'a (dyn Fn() -> bool + Sync),
    /// The best so far, of all instances: one more than the page takes, which
    /// tells that there is another page.
    found: &'a mut BinaryHeap<Candidate>,
    left: &'a mut Left,
    at: Reading,
}

impl Search<'_> {
    fn run(&mut self) -> Result<(), SearchError> {
        let (newest, _) = self.at.from;
        let mut files: Vec<_> =
            self.logs.files.list()?.into_iter().filter(|began| *began <= newest).collect();
        files.sort_unstable_by_key(|began| Reverse(*began));
        files.truncate(FILES_MAX);
        let first_too_late = self.query.end_ms.saturating_add(MARGIN_MS);
        files.retain(|began| began.saturating_mul(1000) < first_too_late);
        let Some(prefilter) = self.query.filters.prefilter() else {
            return self.run_through(&files, None).map(drop);
        };
        // Often the first file is enough. The page before may have ended in it,
        // so it is read like one with hits whether or not it has any left.
        let (first, rest) = files.split_at(files.len().min(1));
        if self.run_through(first, None)? || rest.is_empty() {
            return Ok(());
        }
        let ahead = Ahead::new(prefilter, self.logs, rest, self.too_old_ms(), self.is_over);
        std::thread::scope(|scope| {
            let _helpers = ahead.start(scope);
            self.run_through(rest, Some(&ahead)).map(drop)
        })
    }

    /// What was last written before is not looked at.
    fn too_old_ms(&self) -> i64 {
        self.query.start_ms.saturating_sub(MARGIN_MS)
    }

    /// Goes through files; returns whether enough was found.
    fn run_through(&mut self, files: &[i64], ahead: Option<&Ahead<'_>>) -> Result<bool, SearchError> {
        let (newest, end) = self.at.from;
        for (index, &began) in files.iter().enumerate() {
            let Some(open) = self.logs.files.open(began)? else { continue };
            if open.modified_ms < self.too_old_ms() {
                continue;
            }
            let end = if began == newest { end.min(open.length) } else { open.length };
            self.at.from = (began, end);
            let has_hits = ahead.map_or(Ok(true), |ahead| ahead.has_hits(index))?;
            let is_enough = match has_hits {
                true => self.read(&open, began, end)?,
                false => self.pass_over(&open, began)?,
            };
            if is_enough {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A file without hits tells how far the search has come by its first line.
    fn pass_over(&mut self, open: &LogFile, began: i64) -> Result<bool, SearchError> {
        let mut beginning = [0; 64];
        let got = read_at_most(&*open.content, &mut beginning, 0)?;
        if let Some(raw) = RawEntry::find(&beginning[..got]) {
            self.lower_ceiling(raw.timestamp_ms);
        }
        self.at.from = (began, 0);
        Ok(self.is_enough())
    }

    /// Reads a file; returns whether enough was found.
    fn read(&mut self, open: &LogFile, began: i64, end: u64) -> Result<bool, SearchError> {
        let mut blocks = BackwardBlocks::new(&*open.content, end);
        while let Some(block) = blocks.next(self.is_over)? {
            if !self.search_block(&block, began)? {
                return Ok(true);
            }
            if block.end + FILE_BYTES_MAX < end {
                return Ok(false);
            }
            // Where few lines match, the first line of each block tells how
            // far the search has come.
            let first = memchr::memchr(b'\n', block.bytes).map_or(block.bytes, |end| &block.bytes[..end]);
            let Some(raw) = RawEntry::find(first) else { continue };
            self.lower_ceiling(raw.timestamp_ms);
            self.at.from = (began, block.base);
            if self.is_enough() {
                return Ok(true);
            }
            if raw.timestamp_ms < self.query.start_ms.saturating_sub(MARGIN_MS) {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Goes through the lines of a block; returns whether to read on.
    fn search_block(&mut self, block: &Block<'_>, began: i64) -> Result<bool, SearchError> {
        let Some(prefilter) = self.query.filters.prefilter() else {
            let mut outcome = Ok(());
            let goes_on = lines_backward(block.bytes, |start, end| {
                self.look_at_if_in_time(block, began, start, end).unwrap_or_else(|error| {
                    outcome = Err(error);
                    false
                })
            });
            return outcome.map(|()| goes_on);
        };
        let mut lines = vec![];
        let mut at = 0;
        while at < block.bytes.len() {
            let input = regex_automata::Input::new(block.bytes).span(at..block.bytes.len());
            let Some(hit) = prefilter.search_half(&input) else { break };
            let hit = hit.offset().saturating_sub(1);
            let start = memchr::memrchr(b'\n', &block.bytes[..hit]).map_or(0, |at| at + 1);
            let end =
                memchr::memchr(b'\n', &block.bytes[hit..]).map_or(block.bytes.len(), |end| hit + end + 1);
            lines.push((start, end));
            at = end;
        }
        for (start, end) in lines.into_iter().rev() {
            if !self.look_at_if_in_time(block, began, start, end)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn look_at_if_in_time(
        &mut self,
        block: &Block<'_>,
        began: i64,
        start: usize,
        end: usize,
    ) -> Result<bool, SearchError> {
        if (self.is_over)() {
            return Err(SearchError::Interrupted);
        }
        let Some(raw) = RawEntry::find(&block.bytes[start..end]) else { return Ok(true) };
        self.at.from = (began, block.place_of_end(end));
        self.look_at(&raw, began, block.base + start as u64);
        self.lower_ceiling(raw.timestamp_ms);
        Ok(!self.is_enough())
    }

    /// Keeps an entry if it belongs to the page, as far as is known yet.
    fn look_at(&mut self, raw: &RawEntry<'_>, began: i64, offset: u64) {
        if !(self.query.start_ms..self.query.end_ms).contains(&raw.timestamp_ms) {
            return;
        }
        let place = Place {
            time_ms: Reverse(raw.timestamp_ms.min(self.at.ceiling_ms)),
            instance: self.at.instance.clone(),
            file: Reverse(began),
            offset: Reverse(offset),
        };
        if self.cursor.is_some_and(|cursor| place <= cursor.last) {
            return;
        }
        let is_full = self.found.len() > self.query.limit;
        if is_full && self.found.peek().is_some_and(|worst| worst.place < place) {
            // Whether it matches is found out when its page is read.
            self.left.note(self.at.clone());
            return;
        }
        let Some(entry) = self.query.filters.admit(raw, &self.at.instance) else { return };
        self.found.push(Candidate { place, again: self.at.clone(), entry });
        if is_full && let Some(worst) = self.found.pop() {
            self.left.note(worst.again);
        }
    }

    fn lower_ceiling(&mut self, timestamp_ms: i64) {
        self.at.ceiling_ms = self.at.ceiling_ms.min(timestamp_ms.saturating_add(DISORDER_MS));
    }

    /// Whether nothing further below can be among the best.
    fn is_enough(&self) -> bool {
        let worst = self.found.peek().filter(|_| self.found.len() > self.query.limit);
        worst.is_some_and(|worst| worst.place.time_ms.0 > self.at.ceiling_ms)
    }
}
