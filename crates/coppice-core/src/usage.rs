//! What is metered, and which time counts.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::amount::{Decimal, Whole, rounded};

/// How often a control plane says that it is there: the most that is lost of
/// what is metered when nobody is.
pub const METERING: Duration = Duration::from_secs(60);
/// Time without a control plane that still counts: one that comes in the place
/// of another may miss a turn.
const PAUSE_MAX: TimeDelta = TimeDelta::seconds(150);
/// The clock of the metastore and one that nobody sets may differ by so much
/// between two turns. Also how much later a turn's transaction may come to its
/// lock than one that began after it.
const TOLERANCE: TimeDelta = TimeDelta::seconds(10);

/// What is counted of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meter {
    /// Microseconds of instances that were to be awake.
    Awake,
    /// Microseconds that it slept.
    Asleep,
    /// Bytes that its files took and no other branch pays for, times microseconds.
    Storage,
    /// Bytes that its files share with the branch it was made from, which pays for
    /// them, times microseconds.
    Shared,
    /// Bytes that its clients were sent.
    Egress,
}

/// Decimals of a quantity that is shown.
const DECIMALS: u32 = 6;
/// Microseconds of an hour.
const HOUR: i64 = 3_600_000_000;
const GIB: i64 = 1 << 30;

impl Meter {
    /// What a quantity is shown in.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Awake => "instance-hours",
            Self::Asleep => "hours",
            Self::Storage | Self::Shared => "GiB-hours",
            Self::Egress => "GiB",
        }
    }

    /// How many of what is counted make one of that unit.
    pub fn per_unit(self) -> Whole {
        match self {
            Self::Awake | Self::Asleep => HOUR.into(),
            Self::Storage | Self::Shared => Whole::from(HOUR) * GIB,
            Self::Egress => GIB.into(),
        }
    }

    /// A quantity in that unit.
    pub fn shown(self, quantity: &Whole) -> Decimal {
        rounded(quantity, &self.per_unit(), DECIMALS)
    }
}

names!(Meter {
    Awake = "awake", Asleep = "asleep", Storage = "storage", Shared = "shared", Egress = "egress",
});

/// When a process said last that it is there: the metastore's time, and how long
/// ago that is by a clock that nobody sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastTurn {
    /// The metastore's time.
    pub at: DateTime<Utc>,
    /// How long ago.
    pub ago: Duration,
}

/// Which time counts from a turn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// What counted goes on until now.
    GoesOn,
    /// What counted goes on until `until`, and begins again now: the clock
    /// leapt, or nobody was there.
    Resumes {
        /// Not after now.
        until: DateTime<Utc>,
    },
    /// Now was counted already.
    Waits,
    /// The clock was set back: what is noted for times that are still to come
    /// does not count.
    TurnsBack,
}

impl Witness {
    /// What follows from when time counted last, by whomever, and when this
    /// process had its last turn.
    pub fn of(now: DateTime<Utc>, counted_until: Option<DateTime<Utc>>, last: Option<LastTurn>) -> Self {
        let Some(until) = counted_until else { return Self::Resumes { until: now } };
        if now + TOLERANCE < until {
            return Self::TurnsBack;
        }
        if now <= until {
            return Self::Waits;
        }
        let ago = |last: LastTurn| TimeDelta::from_std(last.ago).unwrap_or(TimeDelta::MAX);
        // Another process that counted since may have seen the clock leap already.
        let own = last.filter(|last| last.at <= until).and_then(|last| last.at.checked_add_signed(ago(last)));
        match own {
            Some(expected) if now - expected > TOLERANCE && until <= expected => {
                Self::Resumes { until: expected }
            }
            Some(expected) if now - expected <= TOLERANCE => Self::GoesOn,
            Some(_) | None if now - until <= PAUSE_MAX => Self::GoesOn,
            Some(_) | None => Self::Resumes { until },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(1_000_000 + seconds)
    }

    fn turn(at_seconds: i64, ago: u64) -> Option<LastTurn> {
        Some(LastTurn { at: at(at_seconds), ago: Duration::from_secs(ago) })
    }

    #[test]
    fn time_counts_while_somebody_is_there() {
        assert_eq!(Witness::of(at(0), None, None), Witness::Resumes { until: at(0) });
        assert_eq!(Witness::of(at(60), Some(at(0)), turn(0, 60)), Witness::GoesOn);
        assert_eq!(Witness::of(at(60), Some(at(30)), turn(0, 60)), Witness::GoesOn, "two take turns");
        assert_eq!(Witness::of(at(100), Some(at(0)), None), Witness::GoesOn, "a successor");
        assert_eq!(Witness::of(at(900), Some(at(0)), turn(0, 899)), Witness::GoesOn, "no metastore");
    }

    #[test]
    fn time_without_anybody_does_not_count() {
        assert_eq!(Witness::of(at(900), Some(at(0)), None), Witness::Resumes { until: at(0) });
        let stood_still = Witness::of(at(86_400), Some(at(0)), turn(0, 60));
        assert_eq!(stood_still, Witness::Resumes { until: at(60) }, "the machine was suspended");
    }

    #[test]
    fn a_leap_of_the_clock_is_no_time() {
        let leapt = Witness::of(at(3660), Some(at(20)), turn(0, 60));
        assert_eq!(leapt, Witness::Resumes { until: at(60) });
        assert_eq!(
            Witness::of(at(3660), Some(at(3650)), turn(0, 60)),
            Witness::GoesOn,
            "it was seen by another"
        );
    }

    #[test]
    fn time_that_comes_again_is_counted_once() {
        assert_eq!(Witness::of(at(-1), Some(at(0)), turn(0, 1)), Witness::Waits);
        assert_eq!(Witness::of(at(-60), Some(at(0)), turn(0, 60)), Witness::TurnsBack);
    }
}
