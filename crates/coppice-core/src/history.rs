//! The history of a volume: which moments of the past it can be taken back to.
//!
//! While a server runs, somebody looks at its write-ahead log each second and
//! marks how far it is. A moment is found by its mark, so it is a place in the
//! log, whatever a clock said later.

use chrono::{DateTime, Utc};

use crate::lsn::Lsn;

/// Looks further apart than this leave a gap if something was written in between.
const GAP_MS: i64 = 10_000;

/// How far the log was at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When it was looked at, in milliseconds since the Unix epoch: whatever was
    /// committed before lies before `lsn`.
    pub at_ms: i64,
    /// When it was last seen that nothing had been written since the mark before
    /// this one; where the clock was set back since then, the time that it had by that.
    pub since_ms: i64,
    /// Behind the last record.
    pub lsn: Lsn,
    /// Whether nothing connects it to the mark before.
    pub is_first: bool,
}

/// A copy of the volume to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was made, in milliseconds since the Unix epoch.
    pub taken_ms: i64,
    /// Where its own log ends: what it can be taken forward from.
    pub lsn: Lsn,
}

/// A moment of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A time.
    Time(DateTime<Utc>),
    /// A place in the log.
    Lsn(Lsn),
}

/// Why a moment can't be gone back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfReach {
    /// Nothing is kept.
    NoHistory,
    /// It is before everything that is kept.
    Before,
    /// It has not been yet, or nobody has looked since.
    After,
    /// Between these times nobody looked.
    Gap(DateTime<Utc>, DateTime<Utc>),
}

/// The moments from and to which there is history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first moment.
    pub from: DateTime<Utc>,
    /// The last one.
    pub to: DateTime<Utc>,
    /// Where the log was at the first.
    pub from_lsn: Lsn,
    /// And at the last.
    pub to_lsn: Lsn,
}

/// Times between which it is not known what was when: the last one before, and the first one behind.
pub type Gap = (DateTime<Utc>, DateTime<Utc>);

/// Times that can be gone back to, from the first to the last but for gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first time.
    pub from: DateTime<Utc>,
    /// The last one.
    pub to: DateTime<Utc>,
    /// Oldest first.
    pub gaps: Vec<Gap>,
}

impl Span {
    /// What of it lies between two times; none when nothing does.
    pub fn within(mut self, from: DateTime<Utc>, to: DateTime<Utc>) -> Option<Self> {
        (self.from, self.to) = (self.from.max(from), self.to.min(to));
        // In the midst of a gap, nothing begins or ends.
        for (before, behind) in &self.gaps {
            if *before < self.from && self.from < *behind {
                self.from = *behind;
            }
        }
        for (before, behind) in self.gaps.iter().rev() {
            if *before < self.to && self.to < *behind {
                self.to = *before;
            }
        }
        self.gaps.retain(|(before, behind)| self.from <= *before && *behind <= self.to);
        (self.from <= self.to).then_some(self)
    }

    /// The gap that a time lies in.
    pub fn gap_at(&self, time: DateTime<Utc>) -> Option<Gap> {
        self.gaps.iter().copied().find(|(before, behind)| *before < time && time < *behind)
    }

    /// One after the other, oldest first, with what is between them as gaps; none of none.
    pub fn joined(spans: impl IntoIterator<Item = Self>) -> Option<Self> {
        spans.into_iter().reduce(|mut all, next| {
            if all.to < next.from {
                all.gaps.push((all.to, next.from));
            }
            all.gaps.extend(next.gaps);
            all.to = next.to;
            all
        })
    }
}

/// What is kept of a volume's past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Oldest first.
    pub marks: Vec<Mark>,
    /// When it was last seen that nothing had been written since the last mark.
    pub seen_ms: i64,
    /// Oldest first.
    pub snapshots: Vec<Snapshot>,
    /// Bytes of the log that are kept beside the volume.
    pub wal_bytes: u64,
}

fn time(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(ms).unwrap_or_default()
}

impl Mark {
    /// Whether it is unknown what was between the mark before and this one.
    fn is_behind_gap(&self) -> bool {
        self.is_first || self.at_ms - self.since_ms > GAP_MS
    }

    /// The gap that ends with it, if one does. That of a first mark means nothing where no mark is before it.
    pub fn gap(&self) -> Option<Gap> {
        self.is_behind_gap().then(|| (time(self.since_ms), time(self.at_ms)))
    }
}

impl History {
    /// The moments it goes from and to; none when nothing is kept.
    pub fn window(&self) -> Option<Window> {
        let (first, last) = (self.marks.first()?, self.marks.last()?);
        Some(Window {
            from: time(first.at_ms),
            to: time(self.seen_ms.max(last.at_ms)),
            from_lsn: first.lsn,
            to_lsn: last.lsn,
        })
    }

    /// Times between which nobody looked while something was written, oldest first.
    pub fn gaps(&self) -> Vec<Gap> {
        self.marks.iter().skip(1).filter_map(Mark::gap).collect()
    }

    /// The place in the log to go back to for a moment.
    ///
    /// # Errors
    /// When it can't be gone back to.
    pub fn find(&self, moment: Moment) -> Result<Lsn, OutOfReach> {
        let last = self.marks.last().ok_or(OutOfReach::NoHistory)?;
        let behind = match moment {
            Moment::Time(at) => self.marks.partition_point(|mark| mark.at_ms <= at.timestamp_millis()),
            Moment::Lsn(lsn) => self.marks.partition_point(|mark| mark.lsn <= lsn),
        };
        let before = behind.checked_sub(1).and_then(|index| self.marks.get(index));
        let before = before.ok_or(OutOfReach::Before)?;
        let next = self.marks.get(behind);
        let gap = |next: &Mark| OutOfReach::Gap(time(next.since_ms), time(next.at_ms));
        match (moment, next) {
            (Moment::Time(at), Some(next))
                if next.is_behind_gap() && at.timestamp_millis() > next.since_ms =>
            {
                Err(gap(next))
            }
            (Moment::Time(at), None) if at.timestamp_millis() > self.seen_ms.max(last.at_ms) => {
                Err(OutOfReach::After)
            }
            (Moment::Time(_), _) => Ok(before.lsn),
            (Moment::Lsn(lsn), Some(next)) if next.is_first && lsn > before.lsn => Err(gap(next)),
            (Moment::Lsn(lsn), None) if lsn > last.lsn => Err(OutOfReach::After),
            (Moment::Lsn(lsn), _) => Ok(lsn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at: i64, since: i64, lsn: u64) -> Mark {
        Mark { at_ms: at * 1000, since_ms: since * 1000, lsn: Lsn(lsn), is_first: false }
    }

    /// Looked at each second from 100 to 200; written to in the seconds before
    /// 110 and 111; nobody looked from 111 to 130; what was written from 150 to
    /// 160 is lost.
    fn history() -> History {
        let marks = vec![
            Mark { is_first: true, ..mark(100, 100, 1000) },
            mark(110, 109, 1100),
            mark(111, 110, 1200),
            mark(130, 111, 1300),
            Mark { is_first: true, ..mark(160, 150, 2000) },
            mark(170, 169, 2100),
        ];
        History { marks, seen_ms: 200_000, snapshots: vec![], wal_bytes: 0 }
    }

    #[test]
    fn a_time_is_where_the_log_was_when_it_was_last_looked_at_by_then() {
        let history = history();
        let at = |seconds: i64| history.find(Moment::Time(time(seconds * 1000)));
        let gap = |from: i64, to: i64| Err(OutOfReach::Gap(time(from * 1000), time(to * 1000)));
        assert_eq!(at(99), Err(OutOfReach::Before));
        assert_eq!(at(100), Ok(Lsn(1000)));
        assert_eq!(at(109), Ok(Lsn(1000)));
        assert_eq!(at(110), Ok(Lsn(1100)));
        assert_eq!(at(111), Ok(Lsn(1200)));
        assert_eq!(at(112), gap(111, 130), "something was written, nobody knows when");
        assert_eq!(at(130), Ok(Lsn(1300)));
        assert_eq!(at(150), Ok(Lsn(1300)), "seen to be the same until then");
        assert_eq!(at(151), gap(150, 160));
        assert_eq!(at(165), Ok(Lsn(2000)));
        assert_eq!(at(200), Ok(Lsn(2100)));
        assert_eq!(at(201), Err(OutOfReach::After));
        assert_eq!(History::default().find(Moment::Time(time(0))), Err(OutOfReach::NoHistory));
    }

    #[test]
    fn a_place_in_the_log_is_itself_where_the_log_was_kept() {
        let history = history();
        let at = |lsn: u64| history.find(Moment::Lsn(Lsn(lsn)));
        assert_eq!(at(999), Err(OutOfReach::Before));
        assert_eq!(at(1250), Ok(Lsn(1250)), "all of it is there, though nobody knows from when");
        assert_eq!(at(1300), Ok(Lsn(1300)));
        assert!(matches!(at(1301), Err(OutOfReach::Gap(..))));
        assert_eq!(at(2100), Ok(Lsn(2100)));
        assert_eq!(at(2101), Err(OutOfReach::After));
    }

    #[test]
    fn the_window_is_from_the_first_mark_to_the_last_look_and_tells_its_gaps() {
        let history = history();
        let window = history.window().expect("a window");
        assert_eq!((window.from, window.to), (time(100_000), time(200_000)));
        assert_eq!((window.from_lsn, window.to_lsn), (Lsn(1000), Lsn(2100)));
        let gaps = [(time(111_000), time(130_000)), (time(150_000), time(160_000))];
        assert_eq!(history.gaps(), gaps);
        assert!(History::default().window().is_none());
    }

    fn span(from: i64, to: i64, gaps: &[(i64, i64)]) -> Span {
        let at = |seconds: i64| time(seconds * 1000);
        let gaps = gaps.iter().map(|(from, to)| (at(*from), at(*to))).collect();
        Span { from: at(from), to: at(to), gaps }
    }

    #[test]
    fn a_span_is_cut_at_two_times_and_never_ends_in_a_gap() {
        let whole = || span(100, 200, &[(111, 130), (150, 160)]);
        let cut = |from: i64, to: i64| whole().within(time(from * 1000), time(to * 1000));
        assert_eq!(cut(0, 300), Some(whole()));
        assert_eq!(cut(105, 155), Some(span(105, 150, &[(111, 130)])));
        assert_eq!(cut(111, 130), Some(span(111, 130, &[(111, 130)])));
        assert_eq!(cut(112, 200), Some(span(130, 200, &[(150, 160)])));
        assert_eq!(cut(112, 129), None, "all of it is in a gap");
        assert_eq!((cut(0, 99), cut(201, 300)), (None, None));
    }

    #[test]
    fn what_is_between_two_spans_is_a_gap() {
        let all = [span(1, 5, &[(2, 3)]), span(5, 7, &[]), span(9, 12, &[(10, 11)])];
        assert_eq!(Span::joined(all), Some(span(1, 12, &[(2, 3), (7, 9), (10, 11)])));
        assert_eq!(Span::joined([]), None);
    }

    #[test]
    fn only_what_is_between_the_ends_of_a_gap_lies_in_it() {
        let span = span(1, 12, &[(2, 3), (7, 9)]);
        let at = |seconds: i64| span.gap_at(time(seconds * 1000));
        assert_eq!([at(2), at(7), at(9), at(11)], [None; 4]);
        assert_eq!(at(8), Some((time(7000), time(9000))));
    }
}
