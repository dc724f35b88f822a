//! What was noticed of replicas, and since when it is so.

use std::time::{Duration, Instant};

/// Something about a replica, and since when it is so.
#[derive(Debug, Default)]
pub(super) struct Since(Option<Instant>);

impl Since {
    /// Notes whether it is so; returns for how long it has been.
    pub(super) fn note(&mut self, is_so: bool) -> Duration {
        match is_so {
            true => _ = self.0.get_or_insert_with(Instant::now),
            false => self.0 = None,
        }
        self.lasts()
    }

    pub(super) fn lasts(&self) -> Duration {
        self.0.as_ref().map(Instant::elapsed).unwrap_or_default()
    }
}

/// What was noticed of a replica.
#[derive(Debug, Default)]
pub(super) struct ReplicaNotes {
    /// Its server runs and receives nothing.
    pub(super) idle: Since,
    /// Its server runs and does not answer.
    pub(super) silent: Since,
    /// It takes far more room than its branch may.
    pub(super) large: Since,
}

impl ReplicaNotes {
    /// The next server has been neither idle nor silent; the volume is as large as before.
    pub(super) fn stopped(&mut self) {
        (self.idle, self.silent) = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_started_anew_has_not_been_silent_for_long() {
        let mut notes = ReplicaNotes::default();
        assert_eq!(notes.silent.note(false), Duration::ZERO);
        let minute = Duration::from_secs(60);
        for since in [&mut notes.idle, &mut notes.silent, &mut notes.large] {
            since.note(true);
            since.0 = since.0.and_then(|since| since.checked_sub(minute));
            assert!(since.note(true) >= minute, "it goes on");
        }
        notes.stopped();
        assert!(notes.silent.note(true) < minute && notes.idle.note(true) < minute);
        assert!(notes.large.lasts() >= minute, "its volume is the same");
    }
}
