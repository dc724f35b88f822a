//! How fine the history is kept, and for how long.

use chrono::{DateTime, TimeDelta, Utc};

/// One of the resolutions in which history is kept. Each is made from the one
/// before it, and kept longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Every sample.
    Sample,
    /// A quarter of an hour.
    Quarter,
    /// An hour.
    Hour,
}

impl Level {
    /// Finest first.
    pub const ALL: [Self; 3] = [Self::Sample, Self::Quarter, Self::Hour];

    /// Length of its buckets; those of samples have none.
    pub fn width(self) -> TimeDelta {
        match self {
            Self::Sample => TimeDelta::zero(),
            Self::Quarter => TimeDelta::minutes(15),
            Self::Hour => TimeDelta::hours(1),
        }
    }

    /// For how long it is kept at least.
    pub fn retention(self) -> TimeDelta {
        match self {
            Self::Sample => TimeDelta::days(2),
            Self::Quarter => TimeDelta::days(35),
            Self::Hour => TimeDelta::days(180),
        }
    }

    /// How much time a partition of its table spans.
    pub fn partition(self) -> TimeDelta {
        match self {
            Self::Sample => TimeDelta::days(1),
            Self::Quarter => TimeDelta::days(7),
            Self::Hour => TimeDelta::days(30),
        }
    }

    /// The coarsest level whose buckets make up steps of this length.
    pub(super) fn for_step(step: TimeDelta) -> Self {
        let fits =
            |level: &Self| *level == Self::Sample || step.num_seconds() % level.width().num_seconds() == 0;
        Self::ALL.into_iter().rev().find(fits).unwrap_or(Self::Sample)
    }
}

/// Up to where the buckets of each level are made. What is newer is in the
/// finer levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// All quarters before this are made.
    pub quarters: DateTime<Utc>,
    /// All hours before this are made.
    pub hours: DateTime<Utc>,
}

/// The last multiple of `step` (since 1970, UTC) that is not after `time`.
pub fn floor(time: DateTime<Utc>, step: TimeDelta) -> DateTime<Utc> {
    let (seconds, step) = (time.timestamp(), step.num_seconds().max(1));
    DateTime::from_timestamp(seconds - seconds.rem_euclid(step), 0).unwrap_or(time)
}
