//! What branches do over time.
//!
//! **Owns** what the measurements of an instance mean: which metrics there
//! are, how counters become values, how values become series; and what its
//! logs say: parsing, masking, filters, pages.
//! **Must not know** HTTP, SQL, processes or where files are.
//! **Start reading** at [`metrics`] and [`logs`].

pub mod logs;
pub mod metrics;
mod time;

pub use time::ceil_ms;
