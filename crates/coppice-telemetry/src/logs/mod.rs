//! Queries on PostgreSQL's `jsonlog` files, read where they are kept.
//!
//! Files are read backwards in blocks. Raw bytes are searched first
//! (`prefilter.rs`), and only lines that can match are taken apart
//! (`line.rs`), freed of secrets (`mask.rs`) and held against the filters
//! (`filter.rs`). `search.rs` puts them in order and says where the next page
//! begins.

mod ahead;
mod automaton;
mod blocks;
mod entry;
mod filter;
mod line;
mod mask;
#[cfg(test)]
mod mask_tests;
mod prefilter;
mod search;
#[cfg(test)]
mod search_tests;

use std::fs::File;
use std::io;

pub use entry::{LogEntry, LogLevel, MESSAGE_BYTES_MAX};
pub use filter::{BodyMatch, FilterError, LogFilter, LogFilters};
pub use search::{LogCursor, LogPage, LogQuery, search};

/// Why a search came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The client has gone, or time is up.
    #[error("the search was interrupted")]
    Interrupted,
    /// A file can't be read.
    #[error("reading a log")]
    Io(#[from] io::Error),
}

/// A log file, opened.
#[derive(Debug)]
pub struct OpenLog {
    /// For reading at any place.
    pub file: File,
    /// Its length in bytes when it was opened.
    pub length: u64,
    /// When it was last written, in milliseconds since the Unix epoch.
    pub modified_ms: i64,
}

/// The log files of one instance. Each is told by when it was begun, in
/// seconds since the Unix epoch.
pub trait InstanceLogs: Sync {
    /// The instance's id.
    fn instance(&self) -> &str;

    /// Every file there is now, in no order.
    ///
    /// # Errors
    /// When that can't be found out.
    fn list(&self) -> io::Result<Vec<i64>>;

    /// Opens a file; none when it is not there any more, or is none.
    ///
    /// # Errors
    /// When it is there and can't be opened.
    fn open(&self, began: i64) -> io::Result<Option<OpenLog>>;
}
