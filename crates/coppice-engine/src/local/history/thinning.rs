//! Which snapshots are taken, and which are kept.

use std::time::Duration;

use coppice_core::history::Snapshot;
use coppice_core::lsn::Lsn;

use super::marks::Entry;
use super::snapshots::Facts;
use super::{Known, Volume};
use crate::Result;

/// Going back replays no more of the log than this, and what was written since.
pub(super) const SNAPSHOT_BYTES: u64 = 256 << 20;
/// However much a server writes, snapshots are this far apart.
const APART_MS: i64 = 10_000;
const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Marks that are older than this may be so far apart as the second one says.
const COARSE_AFTER_MS: i64 = 7 * DAY_MS;
const COARSE_MS: i64 = 10_000;

/// Whether it is time for another one.
pub(super) fn is_snapshot_due(last: Option<Snapshot>, end: Lsn, now_ms: i64) -> bool {
    last.is_none_or(|last| {
        let written = end.0.saturating_sub(last.lsn.0);
        let age = now_ms - last.taken_ms;
        (written >= SNAPSHOT_BYTES && !(0..APART_MS).contains(&age)) || (written > 0 && age >= HOUR_MS)
    })
}

/// Which of these, oldest first, are not kept: of the last hour all are, of the
/// last day one an hour, then one a day; the first is where the window begins,
/// which goes back for `keep_ms`.
fn superfluous(snapshots: &[Snapshot], now_ms: i64, keep_ms: i64) -> Vec<Lsn> {
    let beginning = snapshots.iter().rposition(|taken| now_ms - taken.taken_ms >= keep_ms).unwrap_or(0);
    let (outside, inside) = snapshots.split_at(beginning);
    let mut dropped: Vec<_> = outside.iter().map(|taken| taken.lsn).collect();
    let mut kept: Option<&Snapshot> = None;
    for (index, taken) in inside.iter().enumerate() {
        let age = now_ms - taken.taken_ms;
        let apart = match age {
            ..HOUR_MS => 0,
            HOUR_MS..DAY_MS => HOUR_MS,
            _ => DAY_MS,
        };
        let is_near = kept.is_some_and(|kept| taken.taken_ms - kept.taken_ms < apart);
        if is_near && index + 1 < inside.len() {
            dropped.push(taken.lsn);
        } else {
            kept = Some(taken);
        }
    }
    dropped
}

/// Leaves out marks of long ago that say little more than those around them: a
/// server that always writes has one for each second.
fn coarsen(entries: &mut Vec<Entry>, now_ms: i64) {
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    let mut later = entries.iter().peekable();
    while let Some(entry) = later.next() {
        let is_between = kept.last().zip(later.peek()).is_some_and(|(before, next)| {
            now_ms - next.mark.at_ms > COARSE_AFTER_MS
                && next.mark.at_ms - before.mark.at_ms <= COARSE_MS
                && !entry.mark.is_first
                && !next.mark.is_first
        });
        if !is_between {
            kept.push(*entry);
        }
    }
    *entries = kept;
}

impl Volume {
    /// Removes what is not kept, and what of the log and the marks is not needed
    /// without it.
    pub(super) fn thin(&mut self, known: &mut Known, now_ms: i64, keep: Duration) -> Result<()> {
        let all: Vec<_> = known.snapshots.iter().map(Facts::snapshot).collect();
        let dropped = superfluous(&all, now_ms, i64::try_from(keep.as_millis()).unwrap_or(i64::MAX));
        if dropped.is_empty() {
            return Ok(());
        }
        let beginning = known.snapshots.iter().map(|facts| facts.end().at).find(|end| !dropped.contains(end));
        if let Some(beginning) =
            beginning.filter(|beginning| all.first().is_some_and(|first| first.lsn < *beginning))
        {
            self.forget_before(beginning)?;
        }
        for end in &dropped {
            self.snapshots.remove(*end)?;
        }
        known.snapshots.retain(|facts| !dropped.contains(&facts.end().at));
        let mut entries = self.marks.read()?;
        coarsen(&mut entries, now_ms);
        self.marks.replace(&entries)?;
        known.marks_length = self.marks.length();
        Ok(())
    }

    /// Counts anew what one that is going to stay has added, where the one before it is gone: what that had added may
    /// be in it. One at a time.
    pub(super) fn recount(&self, known: &mut Known, now_ms: i64) -> Result<()> {
        let is_due = |pair: &[Facts]| match pair {
            [before, facts] => {
                now_ms - facts.snapshot().taken_ms >= HOUR_MS && !facts.is_counted_since(before.end().at)
            }
            _ => false,
        };
        let Some(index) = known.snapshots.windows(2).position(is_due) else { return Ok(()) };
        if let Some([before, facts]) = known.snapshots.get_mut(index..index + 2) {
            *facts = self.snapshots.recount(facts, before)?;
        }
        Ok(())
    }

    /// Lets the window begin with the snapshot at this place. Marks go first: what
    /// is marked can be gone back to.
    pub(super) fn forget_before(&mut self, beginning: Lsn) -> Result<()> {
        let mut entries = self.marks.read()?;
        let later = entries.partition_point(|entry| entry.mark.lsn < beginning);
        let last_before = later.checked_sub(1).and_then(|index| entries.get(index)).copied();
        entries.drain(..later);
        if let Some(first) = entries.first_mut() {
            if first.mark.lsn == beginning {
                first.mark.is_first = true;
            } else if let Some(mut before) = last_before {
                // The snapshot was taken between two looks.
                before.mark = coppice_core::history::Mark {
                    at_ms: first.mark.at_ms,
                    since_ms: first.mark.at_ms,
                    lsn: beginning,
                    is_first: true,
                };
                entries.insert(0, before);
            }
        }
        self.marks.replace(&entries)?;
        self.kept.remove_before(beginning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(minutes_ago: i64, lsn: u64) -> Snapshot {
        Snapshot { taken_ms: -minutes_ago * MINUTE_MS, lsn: Lsn(lsn) }
    }

    #[test]
    fn one_is_taken_after_so_much_was_written_or_an_hour_with_anything() {
        let last = Some(taken(59, 1000));
        assert!(is_snapshot_due(None, Lsn(1), 0));
        assert!(!is_snapshot_due(last, Lsn(1000 + SNAPSHOT_BYTES - 1), 0));
        assert!(is_snapshot_due(last, Lsn(1000 + SNAPSHOT_BYTES), 0));
        assert!(!is_snapshot_due(Some(taken(0, 1)), Lsn(2 * SNAPSHOT_BYTES), 9_999), "a moment ago");
        assert!(
            is_snapshot_due(Some(taken(-120, 1)), Lsn(2 * SNAPSHOT_BYTES), 0),
            "by a clock that was set back"
        );
        assert!(is_snapshot_due(last, Lsn(1001), MINUTE_MS));
        assert!(!is_snapshot_due(last, Lsn(1000), 60 * MINUTE_MS), "nothing was written");
    }

    #[test]
    fn the_older_they_are_the_fewer_are_kept_and_the_first_begins_the_window() {
        let day = 24 * 60;
        let all = [
            taken(9 * day, 1),
            taken(8 * day, 2),
            taken(3 * day, 3),
            taken(3 * day - 60, 4),
            taken(2 * day - 60, 5),
            taken(300, 6),
            taken(290, 7),
            taken(240, 8),
            taken(30, 9),
            taken(20, 10),
        ];
        let lsns = |numbers: &[u64]| numbers.iter().copied().map(Lsn).collect::<Vec<_>>();
        let week = 7 * DAY_MS;
        assert_eq!(superfluous(&all, 0, week), lsns(&[1, 4, 7]));
        assert_eq!(superfluous(&all, 0, 2 * DAY_MS), lsns(&[1, 2, 3, 7]), "a shorter window begins later");
        let kept: Vec<_> = all.iter().filter(|taken| ![1, 4, 7].contains(&taken.lsn.0)).copied().collect();
        assert_eq!(superfluous(&kept, 0, week), [], "what is kept stays");
        assert_eq!(superfluous(&[taken(100 * day, 1)], 0, week), [], "the only one");
    }

    #[test]
    fn marks_of_long_ago_are_ten_seconds_apart_unless_nothing_was_written_between() {
        let mark = |second: i64, is_first: bool| Entry {
            mark: coppice_core::history::Mark {
                at_ms: second * 1000,
                since_ms: second * 1000 - 500,
                lsn: Lsn(second.unsigned_abs()),
                is_first,
            },
            previous: (!is_first).then_some(Lsn(1)),
        };
        // A busy minute, a pause, a gap, and another one.
        let seconds = (1..=60).chain([3000]).chain(4000..=4030);
        let mut entries: Vec<_> = seconds.map(|second| mark(second, second == 1 || second == 4005)).collect();
        let all = entries.clone();
        coarsen(&mut entries, COARSE_AFTER_MS);
        assert_eq!(entries, all, "none is old enough");
        coarsen(&mut entries, COARSE_AFTER_MS + 5_000_000);
        let left: Vec<_> = entries.iter().map(|entry| entry.mark.at_ms / 1000).collect();
        let expected = [1, 11, 21, 31, 41, 51, 60, 3000, 4000, 4004, 4005, 4015, 4025, 4030];
        assert_eq!(left, expected);
    }
}
