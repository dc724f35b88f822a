//! What time it is, and whether somebody has set that.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Set forward by less, a clock leaves out no times that would be told as a gap.
const STEP_MS: i64 = 10_000;

/// The time, in milliseconds since the Unix epoch.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The calendar, which can be set, and for how long the machine is up, also asleep; in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    pub(super) calendar: i64,
    pub(super) uptime: i64,
}

impl Clocks {
    pub(super) fn now() -> Self {
        let told = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let seconds = told.split_whitespace().next().and_then(|seconds| seconds.parse::<f64>().ok());
        Self { calendar: now_ms(), uptime: (seconds.unwrap_or_default() * 1000.0) as i64 }
    }

    /// Whether the calendar was set forward since then.
    pub(super) fn is_ahead_of(&self, before: &Self) -> bool {
        self.calendar - before.calendar > self.uptime - before.uptime + STEP_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_on_with_the_machine_is_not_set() {
        let before = Clocks { calendar: 1_000_000, uptime: 5_000 };
        let after = |calendar, uptime| {
            Clocks { calendar: before.calendar + calendar, uptime: before.uptime + uptime }
                .is_ahead_of(&before)
        };
        assert!(!after(3_600_000, 3_600_000), "nobody looked for an hour");
        assert!(!after(3_000, 1_000) && !after(-3_600_000, 1_000));
        assert!(after(3_600_000, 1_000));
        let now = Clocks::now();
        assert!(now.uptime > 0 && !Clocks::now().is_ahead_of(&now));
    }
}
