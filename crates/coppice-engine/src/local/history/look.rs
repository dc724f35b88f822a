//! One look at the log of a volume.

use std::fs;

use coppice_core::history::{Gap, Mark};
use coppice_core::lsn::Lsn;
use coppice_wal::Place;

use super::clocks::{Clocks, now_ms};
use super::marks::Entry;
use super::pages::Files;
use super::snapshots::{Facts, log_of, wal_of};
use super::thinning::is_snapshot_due;
use super::{Known, Volume};
use crate::local::control_file;
use crate::local::durable::write_durably;
use crate::local::untrusted::UntrustedDir;
use crate::{EngineError, Result};

/// A file that was changed less long ago may have been changed again within the
/// same tick of the clock.
const TICK_MS: i64 = 1_000;

/// A server whose log is lost again and again costs no more than a snapshot in
/// this time.
pub(super) const BEGIN_AGAIN_MS: i64 = 60_000;

/// What is unknown between these.
fn gaps(entries: &[Entry]) -> Vec<Gap> {
    entries.iter().skip(1).filter_map(|entry| entry.mark.gap()).collect()
}

/// Another one after each start of the machine.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

impl Volume {
    /// Looks, and tells from where on the server has to keep its log.
    pub(super) fn look(&mut self, known: &mut Option<Known>, major: u32) -> Result<Lsn> {
        if known.as_ref().is_none_or(|known| known.marks_length != self.marks.length()) {
            *known = self.load(major)?;
        }
        let looked = match known.take() {
            Some(before) => self.look_on(before)?,
            None => None,
        };
        let mut now = match looked {
            Some(now) => now,
            // There is no history yet, or the log has gone on without us.
            None => self.begin(major)?,
        };
        now.marks_length = self.marks.length();
        let needed = now.log.segment().start(now.next_kept);
        *known = Some(now);
        Ok(needed)
    }

    /// What an earlier process left; none when that is nothing.
    fn load(&mut self, major: u32) -> Result<Option<Known>> {
        let snapshots = self.snapshots.list()?;
        let log = log_of(&self.data, major)?;
        let numbers = self.kept.numbers()?;
        let behind_kept = numbers.last().map_or(0, |number| number + 1);
        let mut entries = self.marks.read()?;
        let boot_file = self.history.join("boot");
        if fs::read_to_string(&boot_file).unwrap_or_default() != boot() {
            // What the machine had not written to the disk by its end is gone, and
            // something else may be in its place.
            let durable = snapshots.last().map_or(Lsn(0), |facts| facts.end().at);
            let durable = durable.max(log.segment().start(behind_kept));
            entries.retain(|entry| entry.mark.lsn <= durable);
            self.marks.replace(&entries)?;
            write_durably(&boot_file, boot().as_bytes(), 0o600)?;
        }
        let Some((last, first)) = entries.last().zip(entries.iter().rev().find(|entry| entry.mark.is_first))
        else {
            return Ok(None);
        };
        Ok(Some(Known {
            log,
            place: Place { at: last.mark.lsn, previous: last.previous },
            seen_ms: last.mark.at_ms,
            marked_ms: last.mark.at_ms,
            clocks: None,
            left_out_from: None,
            marks_length: self.marks.length(),
            gaps: gaps(&entries),
            next_kept: behind_kept.max(log.segment().number(first.mark.lsn)),
            snapshots,
            ends_in: log.segment().number(last.mark.lsn),
            changed: None,
            is_settled: false,
        }))
    }

    /// Begins the history, or begins it anew behind a gap.
    fn begin(&mut self, major: u32) -> Result<Known> {
        let log = log_of(&self.data, major)?;
        let (path, now) = (self.path.clone(), now_ms());
        let before = self.snapshots.list()?.pop();
        let last = before.as_ref().map(|facts| facts.snapshot().taken_ms);
        if last.is_some_and(|last| (last..last + BEGIN_AGAIN_MS).contains(&now)) {
            return Err(EngineError::HistoryLost);
        }
        let facts = self.snapshots.take(&path, before.as_ref(), None, &log, now)?;
        let end = facts.end();
        let mut entries = self.marks.read()?;
        // What was marked and not kept can't be gone back to any more.
        let behind_kept =
            self.kept.numbers()?.last().map_or(Lsn(0), |number| log.segment().start(number + 1));
        let snapshots = self.snapshots.list()?;
        let durable = snapshots.iter().map(|facts| facts.end().at).filter(|lsn| *lsn < end.at).max();
        let reachable = behind_kept.max(durable.unwrap_or_default());
        entries.retain(|entry| entry.mark.lsn <= reachable && entry.mark.lsn < end.at);
        let since_ms = entries.last().map_or(now, |entry| entry.mark.at_ms);
        let mark = Mark { at_ms: now.max(since_ms), since_ms, lsn: end.at, is_first: true };
        entries.push(Entry { mark, previous: None });
        self.marks.replace(&entries)?;
        write_durably(&self.history.join("boot"), boot().as_bytes(), 0o600)?;
        Ok(Known {
            log,
            place: end,
            seen_ms: mark.at_ms,
            marked_ms: mark.at_ms,
            clocks: None,
            left_out_from: None,
            marks_length: self.marks.length(),
            gaps: gaps(&entries),
            next_kept: log.segment().number(end.at),
            snapshots,
            ends_in: log.segment().number(end.at),
            changed: None,
            is_settled: false,
        })
    }

    /// None when the log has gone on and what came next is lost.
    fn look_on(&mut self, mut known: Known) -> Result<Option<Known>> {
        let live = wal_of(&self.data)?;
        // Whatever is committed by now is found below. Times stand still where the clock was set back.
        let clocks = Clocks::now();
        let (clock, now) = (clocks.calendar, clocks.calendar.max(known.seen_ms));
        if known.clocks.replace(clocks).is_some_and(|before| clocks.is_ahead_of(&before)) {
            known.left_out_from.get_or_insert(known.seen_ms);
        }
        let name = known.log.file_name(known.ends_in);
        let looking = || EngineError::io(format!("looking at {name}"));
        let changed = live.file(name.as_str()).map_err(looking())?;
        let changed = changed.map(|(_, stat)| (stat.st_mtime, stat.st_mtime_nsec));
        if known.is_settled && changed == known.changed {
            known.seen_ms = now;
            return Ok(Some(known));
        }
        let (walked, ends_in) = self.walk(&known, &live)?;
        if walked == known.place && self.is_beyond(&known)? {
            return Ok(None);
        }
        known.is_settled = (walked, ends_in) == (known.place, known.ends_in)
            && changed.is_none_or(|(seconds, _)| (clock - seconds * 1000).abs() > TICK_MS);
        (known.changed, known.ends_in) = (changed, ends_in);
        if walked != known.place {
            // Where times stand still, this was written at one that comes a second time; and those that
            // were left out may come yet.
            let since_ms = known.left_out_from.take().unwrap_or(known.seen_ms);
            let since_ms = since_ms.min(clock).max(known.marked_ms);
            let mark = Mark { at_ms: now, since_ms, lsn: walked.at, is_first: false };
            self.marks.add(&Entry { mark, previous: walked.previous })?;
            known.gaps.extend(mark.gap());
            (known.place, known.marked_ms) = (walked, now);
        }
        known.seen_ms = now;
        while known.next_kept < known.log.segment().number(known.place.at) {
            if !self.kept.add(&known.log, known.next_kept, &live)? {
                return Ok(None);
            }
            known.next_kept += 1;
        }
        if is_snapshot_due(known.snapshots.last().map(Facts::snapshot), known.place.at, clock) {
            let path = self.path.clone();
            let before = known.snapshots.last();
            let facts = self.snapshots.take(&path, before, Some(known.place), &known.log, now)?;
            known.snapshots.push(facts);
        }
        Ok(Some(known))
    }

    /// Where the log ends now, and the file in which that was found: a later one than the
    /// place is in, where a record is written that is not whole yet.
    fn walk(&mut self, known: &Known, live: &UntrustedDir) -> Result<(Place, u64)> {
        let mut files = Files::new(known.log, vec![self.kept.directory(), live]);
        let walked =
            known.log.walk(known.place, None, &mut files).map_err(EngineError::io("reading the log"))?;
        self.read_in_vain += files.end().0.saturating_sub(walked.place.at.0);
        let ends_in = files.number().unwrap_or_else(|| known.log.segment().number(walked.place.at));
        Ok((walked.place, ends_in))
    }

    /// Whether the server is further than can be walked to.
    fn is_beyond(&mut self, known: &Known) -> Result<bool> {
        if control_file::checkpoint(&self.data)?.redo <= known.place.at {
            return Ok(false);
        }
        // It may have gone on since the log was read.
        let live = wal_of(&self.data)?;
        Ok(self.walk(known, &live)?.0 == known.place)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    use coppice_core::VolumeId;
    use coppice_core::history::{Moment, OutOfReach};
    use coppice_wal::{Log, PAGE, Segment};

    use super::super::History;
    use super::super::snapshots::FACTS;
    use super::super::written::{SYSTEM, Written};
    use super::*;
    use crate::local::layout::Layout;

    const FILE: u64 = Segment::USUAL.bytes;
    const HOUR_MS: i64 = 3_600_000;

    /// A volume whose log comes to the end of its first file.
    struct Kept {
        wal: PathBuf,
        history: History,
        volume: VolumeId,
        known: Option<Known>,
        log: Written,
        _home: tempfile::TempDir,
    }

    impl Kept {
        /// Nothing but the last two pages of the first file is left for what comes.
        fn begin() -> Self {
            let home = tempfile::tempdir().expect("a directory");
            let layout = Layout::new(home.path(), "test");
            let volume = VolumeId::from_trusted("vol_1");
            let data = layout.volume(&volume).join("data");
            let wal = data.join("pg_wal");
            for directory in [&wal, &data.join("global")] {
                fs::create_dir_all(directory).expect("a directory");
            }
            let mut control = [0; 8192];
            control[..8].copy_from_slice(&SYSTEM.to_le_bytes());
            control[48] = 1;
            fs::write(data.join("global/pg_control"), control).expect("a file");
            let history = History::new(&layout);
            let at = 2 * FILE - 2 * PAGE as u64;
            let (now, place) = (now_ms(), Place { at: Lsn(at), previous: None });
            let marked_ms = now - HOUR_MS;
            let mark = Mark { at_ms: marked_ms, since_ms: marked_ms, lsn: place.at, is_first: true };
            let mut found = history.open(&volume).expect("opened").expect("free");
            found.marks.add(&Entry { mark, previous: None }).expect("added");
            let snapshot = serde_json::json!({ "taken_ms": now, "redo": at, "end": at, "previous": null });
            let known = Known {
                log: Log::of(18, SYSTEM, 1, Segment::USUAL).expect("a release"),
                place,
                seen_ms: now,
                marked_ms,
                clocks: None,
                left_out_from: None,
                marks_length: found.marks.length(),
                gaps: vec![],
                // Not every file system can keep one.
                next_kept: 2,
                snapshots: vec![serde_json::from_value(snapshot).expect("facts")],
                ends_in: 1,
                changed: None,
                is_settled: false,
            };
            drop(found);
            Self { wal, history, volume, known: Some(known), log: Written::from(at), _home: home }
        }

        /// Looks, and tells how far the log is seen to go.
        fn look(&mut self) -> Lsn {
            let mut found = self.history.open(&self.volume).expect("opened").expect("free");
            found.look(&mut self.known, 18).expect("looked at");
            self.known.as_ref().expect("known").place.at
        }

        /// Has the server write a record, which is seen.
        fn place(&mut self, seconds_ago: u64) -> Lsn {
            let end = self.log.add(&[1; 100]);
            self.log.write_before(&self.wal, end.0, seconds_ago);
            assert_eq!(self.look(), end);
            end
        }

        fn marks(&self) -> Vec<Mark> {
            let marks = self.history.open(&self.volume).expect("opened").expect("free").marks;
            marks.read().expect("read").into_iter().map(|entry| entry.mark).collect()
        }

        /// Where a moment is, as far as anything is marked.
        fn find(&self, at_ms: i64) -> std::result::Result<Lsn, OutOfReach> {
            let marks = self.marks();
            let seen_ms = self.known.as_ref().expect("known").seen_ms;
            let history = coppice_core::history::History { marks, seen_ms, ..Default::default() };
            history.find(Moment::Time(chrono::DateTime::from_timestamp_millis(at_ms).expect("a time")))
        }
    }

    #[test]
    fn a_record_over_two_files_is_seen_when_all_of_it_is_there() {
        // The next file may be there before it is written to, and it may not.
        for is_there in [true, false] {
            let mut kept = Kept::begin();
            let first = kept.log.add(&[1; 100]);
            let whole = kept.log.add(&[2; 3 * PAGE]);
            if is_there {
                let next = File::create(kept.wal.join(Segment::USUAL.name(1, 2))).expect("a file");
                next.set_len(FILE).expect("a length");
                next.set_modified(SystemTime::now() - Duration::from_secs(60)).expect("a time");
            }
            kept.log.write_before(&kept.wal, 2 * FILE, 60);
            for look in 0..3 {
                assert_eq!(kept.look(), first, "look {look}: half of the next one is there");
            }
            // Its first page there, and then the rest.
            kept.log.write_before(&kept.wal, 2 * FILE + PAGE as u64, 40);
            for look in 0..3 {
                assert_eq!(kept.look(), first, "look {look}: a part is still missing");
            }
            kept.log.write_before(&kept.wal, whole.0, 20);
            assert_eq!(kept.look(), whole);
            let last = kept.log.add(&[3; 10]);
            kept.log.write_before(&kept.wal, last.0, 10);
            assert_eq!(kept.look(), last);
        }
    }

    #[test]
    fn what_is_read_behind_the_end_of_the_log_is_known_to_be_in_vain() {
        let mut kept = Kept::begin();
        let long = kept.log.add(&vec![2; 3 << 20]);
        let mut in_vain = |seconds_ago: u64, end: u64| {
            kept.log.write_before(&kept.wal, end, seconds_ago);
            let mut found = kept.history.open(&kept.volume).expect("opened").expect("free");
            found.look(&mut kept.known, 18).expect("looked at");
            found.read_in_vain >> 20
        };
        assert_eq!(in_vain(60, 2 * FILE + (2 << 20)), 2, "most of a record is there");
        assert_eq!(in_vain(50, long.0), 0, "and then the rest");
    }

    #[test]
    fn what_came_after_the_clock_was_set_back_is_at_no_time_that_it_had_not_had() {
        let mut kept = Kept::begin();
        let first = kept.place(60);
        let before = now_ms();
        // It was three hours later by then.
        kept.known.as_mut().expect("known").seen_ms = before + 3 * HOUR_MS;
        let [_, third] = [50, 40].map(|seconds_ago| kept.place(seconds_ago));
        let after = now_ms();
        assert_eq!(kept.find(before), Ok(first));
        for later in [1, HOUR_MS, 3 * HOUR_MS - (after - before) - 1] {
            let found = kept.find(after + later);
            assert!(matches!(found, Err(OutOfReach::Gap(..))), "{later}: {found:?}");
        }
        assert_eq!(kept.find(before + 3 * HOUR_MS), Ok(third));
        assert_eq!(kept.known.expect("known").gaps.len(), 1, "it is told once");
    }

    #[test]
    fn marks_of_what_a_failed_machine_may_have_lost_are_forgotten() {
        let home = tempfile::tempdir().expect("a directory");
        let layout = Layout::new(home.path(), "test");
        let volume = VolumeId::from_trusted("vol_1");
        let data = layout.volume(&volume).join("data");
        fs::create_dir_all(data.join("global")).expect("a directory");
        fs::write(data.join("global/pg_control"), [1; 8192]).expect("a file");
        let history = History::new(&layout);
        let mut found = history.open(&volume).expect("opened").expect("free");
        fs::write(found.history.join("wal").join(Segment::USUAL.name(1, 1)), "").expect("a kept file");
        for (at_ms, lsn, previous) in
            [(1, FILE + 8, None), (2, FILE + 16, Some(Lsn(FILE + 8))), (3, 2 * FILE + 8, Some(Lsn(8)))]
        {
            let mark = Mark { at_ms, since_ms: at_ms, lsn: Lsn(lsn), is_first: previous.is_none() };
            found.marks.add(&Entry { mark, previous }).expect("added");
        }
        let end = |known: Option<Known>| known.map(|known| (known.place.at, known.next_kept));
        fs::write(found.history.join("boot"), boot()).expect("written");
        assert_eq!(end(found.load(18).expect("loaded")), Some((Lsn(2 * FILE + 8), 2)));
        fs::write(found.history.join("boot"), "another one").expect("written");
        assert_eq!(end(found.load(18).expect("loaded")), Some((Lsn(FILE + 16), 2)), "what was kept is there");
        assert_eq!(end(found.load(18).expect("loaded")), Some((Lsn(FILE + 16), 2)));
    }

    #[test]
    fn times_that_a_clock_left_out_are_not_known_to_have_had_nothing() {
        let mut kept = Kept::begin();
        let first = kept.place(60);
        let set = now_ms();
        // It was three hours earlier a moment ago, and nothing comes at first.
        let known = kept.known.as_mut().expect("known");
        (known.seen_ms, known.marked_ms) = (set - 3 * HOUR_MS, set - 4 * HOUR_MS);
        known.clocks = Some(Clocks { calendar: known.seen_ms, ..Clocks::now() });
        for _ in 0..2 {
            assert_eq!(kept.look(), first);
        }
        let second = kept.place(50);
        let now = kept.known.as_ref().expect("known").seen_ms;
        assert_eq!(kept.find(now), Ok(second));
        let marks = kept.marks();
        let last = marks.last().expect("a mark");
        assert!(last.gap().is_some() && last.since_ms == set - 3 * HOUR_MS, "{last:?}");
    }

    #[test]
    fn what_is_lost_within_a_minute_of_a_snapshot_is_no_history_for_whoever_asks() {
        let kept = Kept::begin();
        let snapshots =
            kept.history.open(&kept.volume).expect("opened").expect("free").history.join("snapshots");
        fs::create_dir_all(snapshots.join("1")).expect("a directory");
        let snapshot =
            serde_json::json!({ "taken_ms": now_ms(), "redo": FILE, "end": FILE, "previous": null });
        fs::write(snapshots.join("1").join(FACTS), snapshot.to_string()).expect("a file");
        // Nothing is known of a start of the machine: what was marked since the snapshot does not count.
        let kept_on = kept.history.look(&kept.volume, 18, None);
        assert!(matches!(kept_on, Err(EngineError::HistoryLost)), "{kept_on:?}");
        assert!(kept.history.read(&kept.volume, 18).expect("no trouble of the platform's").is_none());
        assert!(kept.history.window(&kept.volume, 18).expect("no trouble of the platform's").is_none());
    }
}
