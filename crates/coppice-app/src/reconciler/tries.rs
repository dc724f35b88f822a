//! Starts of a server that ends again and again.

use std::time::{Duration, Instant};

use super::attempt::pause;

/// A server that answers for so long is well again.
pub(super) const RECOVERY: Duration = Duration::from_secs(600);
/// Starts of a server that nobody put to sleep that come at once. Each costs the
/// machine more than the branch, so the next ones have to wait.
const STARTS_AT_ONCE: u32 = 5;

/// How often a server was started, each time soon after the one before, and when last.
#[derive(Debug, Default)]
pub(super) struct Tries {
    count: u32,
    last: Option<Instant>,
}

impl Tries {
    /// It is started.
    pub(super) fn note(&mut self) {
        self.count = if self.are_recent() { self.count + 1 } else { 1 };
        self.last = Some(Instant::now());
    }

    /// How long it has to stay down before it is started once more: longer each time
    /// that it ended again.
    pub(super) fn rest(&self) -> Duration {
        let (Some(last), Some(beyond @ 1..)) = (self.last, self.count.checked_sub(STARTS_AT_ONCE)) else {
            return Duration::ZERO;
        };
        pause(beyond).saturating_sub(last.elapsed())
    }

    /// Whether the last one counts when the next one comes.
    pub(super) fn are_recent(&self) -> bool {
        self.last.is_some_and(|last| last.elapsed() < RECOVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_again_and_again_is_started_later_each_time() {
        let mut tries = Tries::default();
        let mut start = || {
            tries.note();
            tries.rest()
        };
        for _ in 0..STARTS_AT_ONCE {
            assert_eq!(start(), Duration::ZERO, "that happens");
        }
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            let rest = start();
            assert!(rest > last || rest > Duration::from_secs(29), "{rest:?} after {last:?}");
            last = rest;
        }
        tries.last = Instant::now().checked_sub(Duration::from_secs(31));
        assert_eq!(tries.rest(), Duration::ZERO, "it has rested");
        assert!(tries.are_recent(), "and is not forgotten for that");
    }
}
