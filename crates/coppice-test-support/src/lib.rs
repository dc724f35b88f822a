//! A real platform on a temporary directory and free ports, for tests.
//!
//! **Owns** starting, killing and cleaning away a platform, and short ways to
//! ask it things as a user would: HTTP, the command line, psql.
//! **Must not know** the inside of the platform; it only runs the executable.
//! **Start reading** at [`Platform`].

mod answer;
mod api_client;
mod directory;
mod fresh;
mod kept;
mod leftovers;
mod node;
mod pdf;
mod platform;
mod postgres;
mod psql;
mod python;
mod requests;
mod s3;
mod signal;
mod swift;

use std::time::{Duration, Instant};

pub use answer::{Answer, fields, is_timestamp, text_of};
pub use api_client::ApiClient;
pub use directory::directory;
pub use leftovers::Leftovers;
pub use node::NodeProgram;
pub use pdf::text_of_pdf;
pub use platform::{Options, Platform};
pub use postgres::Postgres;
pub use psql::{Psql, psql};
pub use python::python_program;
pub use rustix::process::Signal;
pub use s3::{S3_SECRET, S3Server, make_bucket};
pub use signal::signal;

/// How long to wait before the next look: a tenth of how long it has taken,
/// within these.
const POLL_MIN: Duration = Duration::from_millis(5);
const POLL_MAX: Duration = Duration::from_millis(50);

/// Polls until `done` gives a value; panics after `patience`. What takes long is
/// looked at less often, so that looking does not take the processor from it.
pub fn wait_for<T>(what: &str, patience: Duration, mut done: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        let elapsed = began.elapsed();
        assert!(elapsed < patience, "{what}: not within {patience:?}");
        std::thread::sleep((elapsed / 10).clamp(POLL_MIN, POLL_MAX));
    }
}
