//! Which snapshots are taken, and which are kept.

use coppice_core::history::Snapshot;
use coppice_core::lsn::Lsn;

use super::snapshots::Facts;
use super::{Known, Volume};
use crate::Result;

/// Going back replays no more of the log than this, and what was written since.
const SNAPSHOT_BYTES: u64 = 256 << 20;
/// However much a server writes, snapshots are this far apart.
const APART_MS: i64 = 10_000;
const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// What is older than this is not kept.
const WINDOW_MS: i64 = 7 * DAY_MS;

/// Whether it is time for another one.
pub(super) fn is_snapshot_due(last: Option<Snapshot>, end: Lsn, now_ms: i64) -> bool {
    last.is_none_or(|last| {
        let written = end.0.saturating_sub(last.lsn.0);
        let age = now_ms - last.taken_ms;
        (written >= SNAPSHOT_BYTES && !(0..APART_MS).contains(&age)) || (written > 0 && age >= HOUR_MS)
    })
}

/// Which of these, oldest first, are not kept: of the last hour all are, of the
/// last day one an hour, then one a day; the first is where the window begins.
fn superfluous(snapshots: &[Snapshot], now_ms: i64) -> Vec<Lsn> {
    let beginning = snapshots.iter().rposition(|taken| now_ms - taken.taken_ms >= WINDOW_MS).unwrap_or(0);
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

impl Volume {
    /// Removes what is not kept, and what of the log and the marks is not needed
    /// without it.
    pub(super) fn thin(&mut self, known: &mut Known, now_ms: i64) -> Result<()> {
        let all: Vec<_> = known.snapshots.iter().map(Facts::snapshot).collect();
        let dropped = superfluous(&all, now_ms);
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
        assert_eq!(superfluous(&all, 0), lsns(&[1, 4, 7]));
        let kept: Vec<_> = all.iter().filter(|taken| ![1, 4, 7].contains(&taken.lsn.0)).copied().collect();
        assert_eq!(superfluous(&kept, 0), [], "what is kept stays");
        assert_eq!(superfluous(&[taken(100 * day, 1)], 0), [], "the only one");
    }
}
