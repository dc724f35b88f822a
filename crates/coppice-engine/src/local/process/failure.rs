//! Errors of a process that has only its standard error to report to.

use std::fmt;

/// What was being done, and why it failed.
#[derive(Debug)]
pub(super) struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Adds what was being done.
pub(super) trait Context<T> {
    fn context(self, action: &str) -> Result<T, Failure>;
    fn with_context(self, action: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, action: &str) -> Result<T, Failure> {
        self.with_context(|| action.to_owned())
    }

    fn with_context(self, action: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure(format!("{}: {error}", action())))
    }
}
