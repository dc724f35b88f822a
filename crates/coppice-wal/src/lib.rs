//! Walks PostgreSQL's write-ahead log (releases 15 to 18) from one place to the
//! end of what is valid.
//!
//! **Owns** how pages and records lie in the log.
//! **Must not know** files: whoever calls reads the pages.
//! **Start reading** at [`Log::walk`].
//!
//! What a record means stays unknown, but for when a transaction was committed: it is valid when it is where the one
//! before it ends, names that one, and its checksum is right. PostgreSQL's own
//! recovery looks at nothing else to decide where a log ends
//! (src/backend/access/transam/xlogreader.c). Memory is bounded whatever the
//! log says: a record is never held, only its header and what says that time.

mod checksum;
mod page;
mod record;
mod walk;

pub use page::{PAGE, Page, Segment};
pub use walk::{Ended, Log, Pages, Place, Walked};
