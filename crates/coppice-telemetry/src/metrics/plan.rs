//! Which step a request gets, and what has to be read for it.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Level, Progress, floor};
use crate::ceil_ms;

/// Points of one series.
const POINTS_MAX: i64 = 1500;

/// How a request is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Distance of points.
    pub step: TimeDelta,
    /// Where the first point stands at the earliest: the first instant asked
    /// for, in whole milliseconds, as points are told.
    pub start: DateTime<Utc>,
    /// Last instant asked for.
    pub end: DateTime<Utc>,
    /// What to read; no two of them overlap.
    pub pieces: Vec<Piece>,
}

/// A time to be read from one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The level.
    pub level: Level,
    /// First bucket.
    pub from: DateTime<Utc>,
    /// End, itself not included.
    pub until: DateTime<Utc>,
}

/// The step for a time of this length.
fn step(length: TimeDelta) -> TimeDelta {
    let day = TimeDelta::days(1);
    let steps = [
        (day, TimeDelta::minutes(1)),
        (day * 3, TimeDelta::minutes(15)),
        (day * 7, TimeDelta::minutes(30)),
        (day * 30, TimeDelta::hours(1)),
    ];
    if let Some((_, step)) = steps.into_iter().find(|(below, _)| length < *below) {
        return step;
    }
    if length <= day * 180 {
        return TimeDelta::hours(6);
    }
    // A step may begin before the first instant, and another one at the last.
    let days = length.num_seconds() / day.num_seconds() + 1;
    day * i32::try_from(days.div_euclid(POINTS_MAX - 2) + 1).unwrap_or(i32::MAX)
}

impl Plan {
    /// Answers a request for `start` to `end`, both included.
    pub fn new(start: DateTime<Utc>, end: DateTime<Utc>, now: DateTime<Utc>, progress: &Progress) -> Self {
        let step = step(end - start);
        let best = Level::for_step(step);
        // What is kept from when on. A level that ends before it is made, or is
        // made beyond what the finer one still has, is bounded by the other.
        let hours = (now - Level::Hour.retention(), progress.hours);
        let quarters = (kept_since(Level::Quarter, now).min(hours.1), progress.quarters.max(hours.1));
        let samples = kept_since(Level::Sample, now).min(quarters.1);
        let first = start.max(hours.0);
        let last = end.min(now) + TimeDelta::nanoseconds(1);
        // Where each coarser level hands over to the next finer one.
        let (to_quarters, to_samples) = match best {
            Level::Hour => (hours.1, quarters.1),
            Level::Quarter => (quarters.0, quarters.1),
            Level::Sample => (quarters.0, samples),
        };
        let to_samples = to_samples.max(to_quarters);
        let piece = |level: Level, from: DateTime<Utc>, until: DateTime<Utc>| {
            let from = from.max(if level == Level::Sample { first } else { floor(first, level.width()) });
            let until = until.min(last);
            (from < until).then_some(Piece { level, from, until })
        };
        let pieces = [
            piece(Level::Hour, DateTime::<Utc>::MIN_UTC, to_quarters),
            piece(Level::Quarter, to_quarters, to_samples),
            piece(Level::Sample, to_samples, DateTime::<Utc>::MAX_UTC),
        ];
        let start = DateTime::from_timestamp_millis(ceil_ms(start)).unwrap_or(start).min(end);
        Self { step, start, end, pieces: pieces.into_iter().flatten().collect() }
    }

    /// Where the point of the step with this instant stands.
    pub(super) fn point_of(&self, time: DateTime<Utc>) -> DateTime<Utc> {
        floor(time, self.step).max(self.start)
    }
}

/// From when on a level is certain to be there; at a boundary of its own and of
/// the next coarser level.
fn kept_since(level: Level, now: DateTime<Utc>) -> DateTime<Utc> {
    floor(now - level.retention(), TimeDelta::hours(1)) + TimeDelta::hours(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("a time")
    }

    #[test]
    fn the_step_follows_the_length() {
        let second = TimeDelta::seconds(1);
        let day = TimeDelta::days(1);
        let expected = [
            (TimeDelta::zero(), 60),
            (day - second, 60),
            (day, 900),
            (day * 3 - second, 900),
            (day * 3, 1800),
            (day * 7, 3600),
            (day * 30 - second, 3600),
            (day * 30, 21_600),
            (day * 180, 21_600),
            (day * 180 + second, 86_400),
            (day * 1496, 86_400),
            (day * 1499, 2 * 86_400),
        ];
        for (length, seconds) in expected {
            assert_eq!(step(length).num_seconds(), seconds, "{length}");
        }
    }

    #[test]
    fn no_series_has_more_points_than_allowed() {
        for days in (1..4_000_000).step_by(997) {
            for seconds in [-1, 0, 1] {
                let length = TimeDelta::days(days) + TimeDelta::seconds(seconds);
                let points = length.num_seconds() / step(length).num_seconds() + 2;
                assert!(points <= POINTS_MAX, "{days} days: {points}");
            }
        }
    }

    #[test]
    fn a_recent_hour_is_read_from_samples() {
        let now = at("2026-05-04T12:07:30Z");
        let progress = Progress { quarters: at("2026-05-04T12:00:00Z"), hours: at("2026-05-04T12:00:00Z") };
        let plan = Plan::new(now - TimeDelta::hours(1), now, now, &progress);
        assert_eq!(plan.step, TimeDelta::minutes(1));
        assert_eq!(plan.pieces.iter().map(|piece| piece.level).collect::<Vec<_>>(), [Level::Sample]);
    }

    #[test]
    fn no_point_is_told_outside_of_what_was_asked_for() {
        let now = at("2026-05-04T12:07:30Z");
        let progress = Progress { quarters: at("2026-05-04T12:00:00Z"), hours: at("2026-05-04T12:00:00Z") };
        let first = |start: &str, end: &str| {
            let plan = Plan::new(at(start), at(end), now, &progress);
            plan.point_of(plan.pieces[0].from)
        };
        let start = "2026-05-04T12:07:00.123456789Z";
        assert_eq!(first(start, "2026-05-04T12:07:10Z"), at("2026-05-04T12:07:00.124Z"));
        assert_eq!(first(start, "2026-05-04T12:07:00.1238Z"), at("2026-05-04T12:07:00.1238Z"));
        let whole = "2026-05-04T12:07:00.123Z";
        assert_eq!(first(whole, "2026-05-04T12:07:10Z"), at(whole));
    }

    #[test]
    fn a_long_time_ends_with_what_is_not_merged_yet() {
        let now = at("2026-05-04T12:40:30Z");
        let progress = Progress { quarters: at("2026-05-04T12:30:00Z"), hours: at("2026-05-04T12:00:00Z") };
        let plan = Plan::new(now - TimeDelta::days(20), now, now, &progress);
        let boundaries: Vec<_> = plan.pieces.iter().map(|piece| (piece.level, piece.until)).collect();
        assert_eq!(
            boundaries,
            [
                (Level::Hour, progress.hours),
                (Level::Quarter, progress.quarters),
                (Level::Sample, now + TimeDelta::nanoseconds(1))
            ]
        );
        for pair in plan.pieces.windows(2) {
            assert_eq!(pair[0].until, pair[1].from);
        }
    }

    #[test]
    fn what_is_no_longer_there_finely_is_read_coarsely() {
        let now = at("2026-05-04T12:40:30Z");
        let progress = Progress { quarters: at("2026-05-04T12:30:00Z"), hours: at("2026-05-04T12:00:00Z") };
        let hour = |days| {
            let start = now - TimeDelta::days(days);
            Plan::new(start, start + TimeDelta::hours(1), now, &progress).pieces
        };
        let levels = |pieces: Vec<Piece>| pieces.into_iter().map(|piece| piece.level).collect::<Vec<_>>();
        assert_eq!(levels(hour(1)), [Level::Sample]);
        assert_eq!(levels(hour(10)), [Level::Quarter]);
        assert_eq!(levels(hour(100)), [Level::Hour]);
        assert_eq!(levels(hour(200)), []);
    }
}
