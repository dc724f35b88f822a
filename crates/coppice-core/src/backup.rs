//! What is kept of what a branch was, and for how long.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use crate::random;

/// Days for which what a branch was is kept, at least and at most.
pub const RETENTION_DAYS: std::ops::RangeInclusive<u32> = 2..=35;

const MINUTES_OF_HOUR: u16 = 60;
/// When a base is made that nobody has chosen a time for: on a Sunday, from the
/// first of these hours until the second one, UTC.
const QUIET_HOURS: std::ops::Range<u16> = 2..6;

/// When a base is made: each week or each day, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupTime {
    /// The day of the week, 0 is Sunday; none is every day.
    pub day: Option<u8>,
    /// The minute of that day, from 0 to 1439.
    pub minute: u16,
}

/// What is kept of what a branch was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupConfiguration {
    /// For how many days, within [`RETENTION_DAYS`].
    pub retention_days: u32,
    /// When a base is made, where there is a store.
    pub time: BackupTime,
}

/// What to change of that; what is absent stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupChange {
    /// Days, within [`RETENTION_DAYS`].
    pub retention_days: Option<u32>,
    /// When a base is made.
    pub time: Option<BackupTime>,
}

/// What came of a drill: a base, restored for proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrillResult {
    /// A server came up on it, and what was looked at is sound.
    Passed,
    /// It can't be restored, or what is in it is damaged.
    Failed,
    /// Nothing was found out: there was no room or no time for it.
    Skipped,
}

names!(DrillResult { Passed = "passed", Failed = "failed", Skipped = "skipped" });

/// What came of a drill, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrillReport {
    /// What came of it.
    pub result: DrillResult,
    /// What was looked at, what is wrong, or why it was skipped; for people.
    pub message: String,
}

impl DrillReport {
    /// A report with its message.
    pub fn new(result: DrillResult, message: impl Into<String>) -> Self {
        Self { result, message: message.into() }
    }
}

impl BackupConfiguration {
    /// What a new branch has that nothing is said of: two days, and a time of its
    /// own, so that not all are backed up at once.
    pub fn of_new_branch() -> Self {
        let mut drawn = [0; 8];
        random::fill(&mut drawn);
        let minutes = QUIET_HOURS.len() as u64 * u64::from(MINUTES_OF_HOUR);
        let later = u16::try_from(u64::from_le_bytes(drawn) % minutes).unwrap_or_default();
        let minute = QUIET_HOURS.start * MINUTES_OF_HOUR + later;
        Self { retention_days: *RETENTION_DAYS.start(), time: BackupTime { day: Some(0), minute } }
    }

    /// With a change.
    pub fn with(self, change: BackupChange) -> Self {
        Self {
            retention_days: change.retention_days.unwrap_or(self.retention_days),
            time: change.time.unwrap_or(self.time),
        }
    }

    /// For how long what a branch was is kept.
    pub fn retention(&self) -> Duration {
        Duration::from_secs(u64::from(self.retention_days) * 24 * 3600)
    }
}

impl Display for BackupTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.day {
            Some(day) => write!(f, "{day}")?,
            None => f.write_str("*")?,
        }
        write!(f, ":{:02}:{:02}", self.minute / MINUTES_OF_HOUR, self.minute % MINUTES_OF_HOUR)
    }
}

impl FromStr for BackupTime {
    type Err = &'static str;

    /// Reads `day:hour:minute`, each with the digits that [`Display`] writes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WHY: &str = "must be a day of the week (0 is Sunday, * every day), an hour and a minute in UTC, such as \
                           0:03:15 or *:23:00";
        let (day, time) = text.split_once(':').ok_or(WHY)?;
        let (hour, minute) = time.split_once(':').ok_or(WHY)?;
        let number = |digits: &str, count: usize, end: u16| {
            let is_number = digits.len() == count && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u16>().ok().filter(|number| is_number && *number < end).ok_or(WHY)
        };
        let day = match day {
            "*" => None,
            day => Some(number(day, 1, 7)?),
        };
        let minute = number(hour, 2, 24)? * MINUTES_OF_HOUR + number(minute, 2, MINUTES_OF_HOUR)?;
        Ok(Self { day: day.and_then(|day| u8::try_from(day).ok()), minute })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_it_is_written_and_nothing_else_is() {
        for (text, day, minute) in
            [("0:02:00", Some(0), 120), ("*:23:59", None, 1439), ("6:00:05", Some(6), 5)]
        {
            let read: BackupTime = text.parse().expect(text);
            assert_eq!((read, read.to_string().as_str()), (BackupTime { day, minute }, text));
        }
        for text in
            ["", "*", "7:02:00", "0:24:00", "0:02:60", "0:2:00", "0:02:0", "00:02:00", "0:+2:00", "*:02:00 "]
        {
            assert!(text.parse::<BackupTime>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_new_branch_keeps_two_days_and_is_backed_up_early_on_a_sunday() {
        let drawn: Vec<_> = (0..200).map(|_| BackupConfiguration::of_new_branch()).collect();
        let is_quiet =
            |one: &BackupConfiguration| one.time.day == Some(0) && (120..360).contains(&one.time.minute);
        assert!(drawn.iter().all(|one| is_quiet(one) && one.retention_days == 2));
        assert!(drawn.iter().any(|one| one.time != drawn[0].time), "not all at once");
        let change = BackupChange { retention_days: Some(9), time: None };
        let changed = drawn[0].with(change);
        assert_eq!((changed.retention_days, changed.time), (9, drawn[0].time), "the rest stays");
    }
}
