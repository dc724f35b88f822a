//! Queries on PostgreSQL's `jsonlog` files, read where they are kept, a part at a
//! time.
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

/// Bytes that are read at any place, wherever they are kept.
pub trait ReadAt: Send + Sync {
    /// Reads what is at this place into `buffer`, or a part of it, and returns how many
    /// bytes; 0 at the end. Blocks.
    ///
    /// # Errors
    /// When that can't be read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// A log file, opened.
pub struct LogFile {
    /// What is in it, in PostgreSQL's `jsonlog` format.
    pub content: Box<dyn ReadAt>,
    /// Its length in bytes when it was opened.
    pub length: u64,
    /// When it was last written, in milliseconds since the Unix epoch.
    pub modified_ms: i64,
}

/// The log files of an instance. Each is told by when it was begun, in seconds
/// since the Unix epoch. Every call blocks.
pub trait LogFiles: Send + Sync {
    /// Every file there is now, in no order.
    ///
    /// # Errors
    /// When that can't be found out.
    fn list(&self) -> io::Result<Vec<i64>>;

    /// Opens a file; none when it is not there any more, or is no ordinary one.
    ///
    /// # Errors
    /// When it is there and can't be opened.
    fn open(&self, began: i64) -> io::Result<Option<LogFile>>;
}

/// What one instance has logged.
#[derive(Clone, Copy)]
pub struct InstanceLogs<'a> {
    /// Its id.
    pub instance: &'a str,
    /// Its files.
    pub files: &'a dyn LogFiles,
}
