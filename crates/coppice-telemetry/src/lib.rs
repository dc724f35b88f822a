//! What branches do over time.
//!
//! **Owns** what the measurements of an instance mean: which metrics there
//! are, how counters become values, how values become series.
//! **Must not know** HTTP, SQL, processes or files.
//! **Start reading** at [`metrics`].

pub mod metrics;
