//! From what a report of sealed usage is read: days that were added up, which
//! are a twentieth of the rows, and hours where those would be too coarse.

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};

const DAY: TimeDelta = TimeDelta::days(1);

/// The parts of a time, none of them twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans {
    /// When days of UTC begin, of each of which all belongs together.
    pub(crate) days: Vec<DateTime<Utc>>,
    /// When hours of none of these days begin.
    pub(crate) hours: Vec<DateTime<Utc>>,
}

impl Spans {
    /// All of it by hours.
    pub(crate) fn by_hours(from: DateTime<Utc>, to: DateTime<Utc>) -> Self {
        let mut spans = Self::default();
        spans.take_hours(from, to);
        spans
    }

    /// By days where they are whole and no boundary is inside of them.
    pub(crate) fn by_days(from: DateTime<Utc>, to: DateTime<Utc>, boundaries: &[DateTime<Utc>]) -> Self {
        // Only times that are hundreds of years away can't be rounded.
        let (Ok(before), Ok(end)) = (from.duration_trunc(DAY), to.duration_trunc(DAY)) else {
            return Self::by_hours(from, to);
        };
        let mut day = if before < from { before + DAY } else { before };
        if day >= end {
            return Self::by_hours(from, to);
        }
        let mut spans = Self::by_hours(from, day);
        while day < end {
            match boundaries.iter().any(|at| *at > day && *at < day + DAY) {
                true => spans.take_hours(day, day + DAY),
                false => spans.days.push(day),
            }
            day += DAY;
        }
        spans.take_hours(end, to);
        spans
    }

    fn take_hours(&mut self, from: DateTime<Utc>, to: DateTime<Utc>) {
        let mut hour = from;
        while hour < to {
            self.hours.push(hour);
            hour += TimeDelta::hours(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        format!("2026-03-{text}:00Z").parse().unwrap()
    }

    #[test]
    fn whole_days_without_a_boundary_inside_are_days_and_the_rest_is_hours() {
        let boundaries = [at("03T00:00"), at("04T07:00"), at("05T00:00")];
        let spans = Spans::by_days(at("01T22:00"), at("06T03:00"), &boundaries);
        assert_eq!(spans.days, [at("02T00:00"), at("03T00:00"), at("05T00:00")]);
        let hours = [("01T22:00", "02T00:00"), ("04T00:00", "05T00:00"), ("06T00:00", "06T03:00")];
        let hours = hours.into_iter().flat_map(|(from, to)| Spans::by_hours(at(from), at(to)).hours);
        assert_eq!(spans.hours, hours.collect::<Vec<_>>());
    }

    #[test]
    fn what_holds_no_whole_day_is_hours() {
        for (from, to) in [
            ("01T01:00", "02T23:00"),
            ("01T00:00", "01T23:00"),
            ("01T01:00", "02T00:00"),
            ("01T05:00", "01T06:00"),
        ] {
            assert_eq!(Spans::by_hours(at(from), at(to)).hours.len() as i64, (at(to) - at(from)).num_hours());
            assert_eq!(Spans::by_days(at(from), at(to), &[]), Spans::by_hours(at(from), at(to)));
        }
        assert_eq!(Spans::by_days(at("01T00:00"), at("01T00:00"), &[]), Spans::default());
    }
}
