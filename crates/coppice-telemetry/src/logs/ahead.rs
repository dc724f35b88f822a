//! Files that have nothing to be found in them, found out ahead of the search.
//!
//! Most files of a log have no line that a rare text is in. Telling so takes
//! one look at their bytes in any order, so other processors do it while the
//! search is at newer files. They stay only a few files ahead: a search that
//! has found enough ends.

use std::thread::Scope;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use regex_automata::meta::Regex;

use super::blocks::{BLOCK, read_at_most};
use super::{InstanceLogs, LogFile, SearchError};

/// Most processors of one search, with its own.
const THREADS_MAX: usize = 4;
/// How many files are looked at before the search comes to them.
const AHEAD_MAX: usize = 2 * THREADS_MAX;
/// What the prefilter looks for is shorter than this, in bytes.
pub(super) const OVERLAP: usize = 256;

/// How often a search that waits for a helper asks whether it is over.
const IMPATIENCE: Duration = Duration::from_millis(50);

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    /// Somebody looks at it.
    Soon,
    /// Whether something may be found in it.
    Hits(bool),
}

#[derive(Debug)]
struct Progress {
    known: Vec<Known>,
    /// The file the search is at.
    at: usize,
    is_over: bool,
}

/// Looks at files ahead of a search.
pub(super) struct Ahead<'a> {
    prefilter: &'a Regex,
    logs: InstanceLogs<'a>,
    /// In the order of the search.
    files: &'a [i64],
    /// Files that were last written before have nothing.
    too_old_ms: i64,
    is_over: &'a (dyn Fn() -> bool + Sync),
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// Ends the helpers with the search, whatever ends that.
pub(super) struct Helpers<'a> {
    progress: &'a Mutex<Progress>,
    changed: &'a Condvar,
}

impl Drop for Helpers<'_> {
    fn drop(&mut self) {
        self.progress.lock().is_over = true;
        self.changed.notify_all();
    }
}

impl<'a> Ahead<'a> {
    pub(super) fn new(
        prefilter: &'a Regex,
        logs: InstanceLogs<'a>,
        files: &'a [i64],
        too_old_ms: i64,
        is_over: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        let known = vec![Known::Nothing; files.len()];
        let progress = Mutex::new(Progress { known, at: 0, is_over: false });
        Self { prefilter, logs, files, too_old_ms, is_over, progress, changed: Condvar::new() }
    }

    /// Lets other processors help until the answer is dropped.
    pub(super) fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Helpers<'scope> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        for _ in 1..processors.min(self.files.len()) {
            // Without help the search goes on alone.
            let _ =
                std::thread::Builder::new().name("log-search".to_owned()).spawn_scoped(scope, || self.help());
        }
        Helpers { progress: &self.progress, changed: &self.changed }
    }

    fn help(&self) {
        let mut progress = self.progress.lock();
        while !progress.is_over {
            match self.next_of(&progress) {
                Some(index) => {
                    self.look_for_others(progress, index);
                    progress = self.progress.lock();
                }
                None => self.changed.wait(&mut progress),
            }
        }
    }

    /// The first file near the search that nobody has looked at.
    fn next_of(&self, progress: &Progress) -> Option<usize> {
        let mut near = progress.at..(progress.at + AHEAD_MAX).min(self.files.len());
        near.find(|index| progress.known[*index] == Known::Nothing)
    }

    /// Looks at a file that the search is not at yet.
    fn look_for_others(&self, mut progress: MutexGuard<'_, Progress>, index: usize) {
        progress.known[index] = Known::Soon;
        drop(progress);
        // The search comes upon what went wrong by itself.
        let hits = self.look(index).unwrap_or(true);
        self.progress.lock().known[index] = Known::Hits(hits);
        self.changed.notify_all();
    }

    /// Whether something may be found in a file.
    pub(super) fn has_hits(&self, index: usize) -> Result<bool, SearchError> {
        let mut progress = self.progress.lock();
        progress.at = index;
        self.changed.notify_all();
        loop {
            if (self.is_over)() {
                return Err(SearchError::Interrupted);
            }
            progress = match (progress.known[index], self.next_of(&progress)) {
                (Known::Hits(hits), _) => return Ok(hits),
                (Known::Nothing, _) => {
                    progress.known[index] = Known::Soon;
                    drop(progress);
                    return self.look(index);
                }
                // A helper is at it; the next ones are looked at instead of waiting.
                (Known::Soon, Some(next)) => {
                    self.look_for_others(progress, next);
                    self.progress.lock()
                }
                (Known::Soon, None) => {
                    self.changed.wait_for(&mut progress, IMPATIENCE);
                    progress
                }
            };
        }
    }

    fn look(&self, index: usize) -> Result<bool, SearchError> {
        match self.logs.files.open(self.files[index])? {
            Some(open) if open.modified_ms >= self.too_old_ms => self.look_at(&open),
            Some(_) | None => Ok(false),
        }
    }

    fn look_at(&self, open: &LogFile) -> Result<bool, SearchError> {
        let mut buffer = vec![0; OVERLAP + BLOCK as usize];
        let (mut at, mut kept) = (0, 0);
        while at < open.length {
            if (self.is_over)() || self.progress.lock().is_over {
                return Err(SearchError::Interrupted);
            }
            let got = read_at_most(&*open.content, &mut buffer[kept..], at)?;
            if got == 0 {
                break;
            }
            let filled = kept + got;
            if self.prefilter.is_match(&buffer[..filled]) {
                return Ok(true);
            }
            at += got as u64;
            kept = filled.min(OVERLAP);
            buffer.copy_within(filled - kept..filled, 0);
        }
        Ok(false)
    }
}
