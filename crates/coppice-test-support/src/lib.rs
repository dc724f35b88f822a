//! A real platform on a temporary directory and free ports, for tests.
//!
//! **Owns** starting, killing and cleaning away a platform, and short ways to
//! ask it things as a user would: HTTP, the command line, psql.
//! **Must not know** the inside of the platform; it only runs the executable.
//! **Start reading** at [`Platform`].

mod answer;
mod api_client;
mod directory;
mod leftovers;
mod platform;
mod postgres;
mod psql;

use std::time::{Duration, Instant};

pub use answer::{Answer, fields, is_timestamp, text_of};
pub use api_client::ApiClient;
pub use directory::directory;
pub use leftovers::Leftovers;
pub use platform::{Options, Platform};
pub use postgres::Postgres;
pub use psql::{Psql, psql};

/// Polls until `done` gives a value; panics after `patience`.
pub fn wait_for<T>(what: &str, patience: Duration, mut done: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {patience:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
