//! When work is begun that has to be done within a time, again and again.

use std::collections::VecDeque;
use std::time::Duration;

/// Turns that are remembered.
const REMEMBERED: usize = 16;
/// Two turns do not begin closer together than this part of the time, unless they take
/// longer.
const PARTS: u32 = 4;

/// Schedules turns so that each ends within a period of the start of the one before, judged by
/// the longest recent one: what was there when a turn began is dealt with a period later.
#[derive(Debug)]
pub(crate) struct Pace {
    within: Duration,
    took: VecDeque<Duration>,
}

impl Pace {
    pub(crate) fn new(within: Duration) -> Self {
        Self { within, took: VecDeque::new() }
    }

    /// How long after the beginning of a turn that took so long the next one begins. One
    /// that failed has done nothing for anybody, so the next one comes soon.
    pub(crate) fn next(&mut self, took: Duration, is_done: bool) -> Duration {
        let soonest = took.max(self.within / PARTS);
        if !is_done {
            return soonest;
        }
        if self.took.len() == REMEMBERED {
            self.took.pop_front();
        }
        self.took.push_back(took);
        let longest = self.took.iter().max().copied().unwrap_or_default();
        // And half of it more, since the longest is still to come.
        self.within.saturating_sub(longest + longest / 2).max(soonest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_begins_so_early_that_it_ends_in_time_and_soon_after_a_failure() {
        let seconds = Duration::from_secs;
        let mut pace = Pace::new(seconds(40));
        assert_eq!(pace.next(Duration::ZERO, true), seconds(40));
        assert_eq!(pace.next(seconds(8), true), seconds(28));
        assert_eq!(pace.next(seconds(2), true), seconds(28), "the next one may take as long");
        assert_eq!(pace.next(seconds(3), false), seconds(10), "what failed is done soon");
        assert_eq!(pace.next(seconds(39), false), seconds(39), "and what hung at once");
        assert_eq!(pace.next(seconds(30), true), seconds(30), "more often than that nothing is done");
        for _ in 0..REMEMBERED {
            pace.next(seconds(4), true);
        }
        assert_eq!(pace.next(seconds(4), true), seconds(34), "what was long ago is forgotten");
    }
}
