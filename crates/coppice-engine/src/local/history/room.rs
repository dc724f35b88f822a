//! How much room histories may take.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use coppice_core::VolumeId;
use coppice_turns::Name;

use super::History;
use super::kept::Kept;
use super::look::BEGIN_AGAIN_MS;
use super::parts::{BYTES_OF_LOG, Part, Parts};
use super::snapshots::{Snapshots, added_bytes};
use crate::local::btrfs;
use crate::{EngineError, Result};

/// With less than this free of a hundred parts, what is missing is taken from
/// histories, down to the newest snapshot of each volume.
const TIGHT: u64 = 15;
/// With less than this, nothing is.
const SHORT: u64 = 5;

/// What came of shortening a history.
enum Shortened {
    /// It takes so many bytes now.
    To(u64),
    /// There is nothing between its beginning and its newest snapshot.
    NoFurther,
    /// Another process is at it, or its volume is gone.
    Held,
}

impl History {
    /// Notes who answers for a volume, whose histories share what one may have.
    pub(in crate::local) fn note_holder(&self, volume: &VolumeId, holder: Name) {
        self.holders.lock().insert(volume.clone(), holder);
    }

    /// Lets histories take `share` of a hundred parts of `total_bytes`, and fewer
    /// where there is little free. Whoever has most is cut first, at the old end of the
    /// largest, and nobody for what another one has. Blocks.
    pub(in crate::local) fn keep_within(&self, share: u8, total_bytes: u64, free_bytes: u64) -> Result<()> {
        let is_below = |parts: u64| free_bytes < total_bytes / 100 * parts;
        let has_room = share > 0 && !is_below(SHORT);
        if self.has_room.swap(has_room, Ordering::Relaxed) && !has_room && share > 0 {
            tracing::warn!("no history is kept of any branch: there is no room for it");
        }
        let mut parts = self.parts()?;
        if !has_room {
            return parts.volumes().try_for_each(|volume| self.remove(volume));
        }
        let missing = (total_bytes / 100 * TIGHT).saturating_sub(free_bytes);
        let share_bytes = total_bytes / 100 * u64::from(share);
        let most = share_bytes.min(parts.bytes().saturating_sub(missing));
        let mut is_cut = false;
        while let Some(mut part) = parts.take_next(most) {
            match self.shorten(&part.volume)? {
                Shortened::To(bytes) => {
                    part.bytes = bytes;
                    is_cut = true;
                }
                Shortened::NoFurther if parts.may_lose_all(&part, share_bytes) => {
                    self.take_all(&part)?;
                    is_cut = true;
                    continue;
                }
                Shortened::NoFurther | Shortened::Held => part.stays = true,
            }
            parts.put(part);
        }
        if is_cut && btrfs::is_btrfs(&self.layout.histories()) {
            // Before the next look, which would take from others what is about to be free.
            btrfs::commit(&self.layout.histories()).map_err(EngineError::io("freeing history"))?;
        }
        Ok(())
    }

    /// Removes a history that takes too much and can't be shortened. The next one of its volume begins as late as one
    /// whose log is lost again and again.
    fn take_all(&self, part: &Part) -> Result<()> {
        let (volume, bytes) = (&part.volume, part.bytes);
        tracing::warn!(%volume, bytes, "the history of volume {volume} took too much in too short a time: it begins anew");
        self.remove(volume)?;
        self.rests.rest(volume, Duration::from_millis(BEGIN_AGAIN_MS.unsigned_abs()), Instant::now());
        Ok(())
    }

    /// Every history with its bytes, as far as that can be told.
    fn parts(&self) -> Result<Parts> {
        let histories = self.layout.histories();
        let reading = || EngineError::io(format!("reading {}", histories.display()));
        let mut parts = Parts::default();
        for entry in fs::read_dir(&histories).map_err(reading())? {
            let name = entry.map_err(reading())?.file_name();
            let volume = VolumeId::from_trusted(name.to_string_lossy());
            let kept = Kept::of(&self.layout.history(&volume))?;
            let bytes = self.size(&volume, &kept, self.added_bytes(&volume))?;
            let holder = self.holders.lock().get(&volume).cloned();
            // Where nobody is known, each volume is by itself.
            let holder = holder.unwrap_or_else(|| volume.as_str().into());
            parts.put(Part { volume, holder, bytes, stays: false });
        }
        Ok(parts)
    }

    fn size(&self, volume: &VolumeId, kept: &Kept, added_bytes: u64) -> Result<u64> {
        let mut counted = self.counted.lock().remove(volume).unwrap_or_default();
        let log_bytes = kept.count(&mut counted)?;
        self.counted.lock().insert(volume.clone(), counted);
        Ok((log_bytes * BYTES_OF_LOG).max(added_bytes))
    }

    /// What a volume's snapshots have added to the first one.
    fn added_bytes(&self, volume: &VolumeId) -> u64 {
        if let Some(bytes) = self.added.lock().get(volume) {
            return *bytes;
        }
        let snapshots = Snapshots::of(&self.layout.history(volume)).list().unwrap_or_default();
        let bytes = added_bytes(&snapshots);
        self.added.lock().insert(volume.clone(), bytes);
        bytes
    }

    /// Lets a volume's history begin with its second snapshot, if it has one.
    fn shorten(&self, volume: &VolumeId) -> Result<Shortened> {
        let entry = self.entry(volume);
        // Whoever is looked at all the time is no better off than others.
        let mut known = entry.lock();
        let Some(mut found) = self.open(volume)? else { return Ok(Shortened::Held) };
        let snapshots = found.snapshots.list()?;
        let [first, second, ..] = snapshots.as_slice() else { return Ok(Shortened::NoFurther) };
        *known = None;
        found.forget_before(second.end().at)?;
        found.snapshots.remove(first.end().at)?;
        let added = added_bytes(snapshots.get(1..).unwrap_or_default());
        self.added.lock().insert(volume.clone(), added);
        self.size(volume, &found.kept, added).map(Shortened::To)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use coppice_core::history::Mark;
    use coppice_core::lsn::Lsn;
    use coppice_wal::Segment;

    use super::super::marks::{Entry, Marks};
    use super::*;
    use crate::local::layout::Layout;

    const FILE: u64 = Segment::USUAL.bytes;

    /// A volume whose log was kept from the second file on, with snapshots where
    /// these files begin, each of which has so much that the one before has not.
    fn make(layout: &Layout, volume: &VolumeId, files: u64, snapshots: &[u64], added_bytes: u64) {
        let history = layout.history(volume);
        for directory in [layout.volume(volume), history.join("wal")] {
            fs::create_dir_all(directory).expect("a directory");
        }
        for number in 1..=files {
            fs::write(history.join("wal").join(Segment::USUAL.name(1, number)), "").expect("a file");
        }
        let mut marks = Marks::hold(&history.join("marks")).expect("opened").expect("free");
        for number in 1..=files {
            let (at_ms, is_first) = (number as i64 * 1000, number == 1);
            let mark = Mark { at_ms, since_ms: at_ms, lsn: Lsn(number * FILE), is_first };
            marks.add(&Entry { mark, previous: (!is_first).then_some(Lsn(1)) }).expect("added");
        }
        for number in snapshots {
            let end = number * FILE;
            let snapshot = history.join("snapshots").join(format!("{end:016X}"));
            fs::create_dir_all(&snapshot).expect("a directory");
            let facts = serde_json::json!({
                "taken_ms": number, "redo": end, "end": end, "previous": null, "added_bytes": added_bytes,
            });
            fs::write(snapshot.join("snapshot.json"), facts.to_string()).expect("a file");
        }
    }

    /// Files, marks and snapshots that are left, and where the window begins.
    fn left(history: &Path) -> (usize, usize, usize, u64) {
        let count = |name: &str| fs::read_dir(history.join(name)).map_or(0, Iterator::count);
        let marks = Marks::hold(&history.join("marks")).expect("opened").expect("free").read().expect("read");
        let first = marks.first().map_or(0, |entry| entry.mark.lsn.0 / FILE);
        assert!(marks.first().is_none_or(|entry| entry.mark.is_first));
        (count("wal"), marks.len(), count("snapshots"), first)
    }

    #[test]
    fn the_largest_history_is_cut_at_its_old_end_and_all_go_where_there_is_no_room() {
        let home = tempfile::tempdir().expect("a directory");
        let layout = Layout::new(home.path(), "test");
        let [large, small] = ["vol_large", "vol_small"].map(VolumeId::from_trusted);
        make(&layout, &large, 12, &[1, 5, 9], 0);
        make(&layout, &small, 4, &[1, 3], 0);
        let history = History::new(&layout);
        let all = || [left(&layout.history(&large)), left(&layout.history(&small))];
        let total = 100 * FILE;
        history.keep_within(32, total, total).expect("enough");
        assert_eq!(all(), [(12, 12, 3, 1), (4, 4, 2, 1)]);
        history.keep_within(24, total, total).expect("cut");
        assert_eq!(all(), [(8, 8, 2, 5), (4, 4, 2, 1)], "the small one had no part in it");
        history.keep_within(24, total, total / 10).expect("cut");
        assert_eq!(all(), [(4, 4, 1, 9), (4, 4, 2, 1)], "what was missing for 15 of a hundred parts");
        history.keep_within(24, total, total / 10).expect("cut");
        assert_eq!(all(), [(4, 4, 1, 9), (2, 2, 1, 3)], "the newest snapshot of each");
        history.keep_within(24, total, total / 100).expect("removed");
        assert!(!layout.history(&large).exists() && !layout.history(&small).exists());
        assert!(!history.has_room());
        history.keep_within(24, total, total).expect("room again");
        assert!(history.has_room());
        history.keep_within(0, total, total).expect("none");
        assert!(!history.has_room());
    }

    #[test]
    fn a_history_is_cut_for_what_its_snapshots_hold_however_little_its_log_is() {
        let home = tempfile::tempdir().expect("a directory");
        let layout = Layout::new(home.path(), "test");
        let [holding, writing] = ["vol_holding", "vol_writing"].map(VolumeId::from_trusted);
        make(&layout, &holding, 3, &[1, 2, 3], 20 * FILE);
        make(&layout, &writing, 8, &[1, 5], 8 * FILE);
        let history = History::new(&layout);
        let all = || [left(&layout.history(&holding)), left(&layout.history(&writing))];
        let total = 100 * FILE;
        history.keep_within(60, total, total).expect("enough");
        assert_eq!(all(), [(3, 3, 3, 1), (8, 8, 2, 1)]);
        history.keep_within(40, total, total).expect("cut");
        assert_eq!(all(), [(2, 2, 2, 2), (8, 8, 2, 1)]);
        history.keep_within(40, total, total / 10).expect("cut");
        assert_eq!(all(), [(1, 1, 1, 3), (8, 8, 2, 1)], "also where there is little room");
    }

    #[test]
    fn what_cant_be_shortened_of_one_is_taken_from_no_other() {
        let home = tempfile::tempdir().expect("a directory");
        let layout = Layout::new(home.path(), "test");
        let [greedy, modest] = ["vol_greedy", "vol_modest"].map(VolumeId::from_trusted);
        make(&layout, &greedy, 40, &[1], 0);
        make(&layout, &modest, 12, &[1, 5, 9], 0);
        let history = History::new(&layout);
        history.keep_within(60, 100 * FILE, 100 * FILE).expect("cut");
        assert!(!layout.history(&greedy).exists(), "all of it");
        assert_eq!(left(&layout.history(&modest)), (12, 12, 3, 1));
        assert!(history.rests.has(&greedy, Instant::now()), "it does not begin anew all the time");
    }

    #[test]
    fn a_history_that_cant_be_shortened_stays_where_nobody_else_needs_the_room() {
        let home = tempfile::tempdir().expect("a directory");
        let layout = Layout::new(home.path(), "test");
        let [long, short] = ["vol_long", "vol_short"].map(VolumeId::from_trusted);
        make(&layout, &long, 40, &[1], 0);
        make(&layout, &short, 2, &[1], 0);
        let history = History::new(&layout);
        let all = || [left(&layout.history(&long)), left(&layout.history(&short))];
        for volume in [&long, &short] {
            history.note_holder(volume, "one".into());
        }
        history.keep_within(1, 100 * FILE, 100 * FILE).expect("nothing to cut");
        assert_eq!(all(), [(40, 40, 1, 1), (2, 2, 1, 1)]);
        history.note_holder(&short, "other".into());
        history.keep_within(90, 100 * FILE, 100 * FILE).expect("enough");
        assert_eq!(all(), [(40, 40, 1, 1), (2, 2, 1, 1)], "it has no more than its part");
    }

    #[test]
    fn many_histories_of_one_holder_are_cut_before_a_larger_one_of_another() {
        let home = tempfile::tempdir().expect("a directory");
        let layout = Layout::new(home.path(), "test");
        let history = History::new(&layout);
        let many = ["vol_1", "vol_2", "vol_3"].map(VolumeId::from_trusted);
        let one = VolumeId::from_trusted("vol_one");
        make(&layout, &one, 8, &[1, 5], 0);
        history.note_holder(&one, "one".into());
        for volume in &many {
            make(&layout, volume, 6, &[1, 4], 0);
            history.note_holder(volume, "other".into());
        }
        history.keep_within(40, 100 * FILE, 100 * FILE).expect("cut");
        assert_eq!(left(&layout.history(&one)), (8, 8, 2, 1));
        let mut files = many.map(|volume| left(&layout.history(&volume)).0);
        files.sort_unstable();
        assert_eq!(files, [3, 3, 6]);
    }
}
