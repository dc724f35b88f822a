//! The history of volumes: what a volume can be taken back to.
//!
//! `history/<volume>/` in the pool has `snapshots/`, finished files of the log
//! (`wal/`), and `marks`, which says how far the log was at which time. A
//! moment is the newest snapshot whose log ends before it, with the log from
//! there, cut off at the moment: an ordinary recovery then ends there.
//!
//! What a server has written is walked and copied, never believed: a wrong
//! log spoils its own history, and its recovery is one more start of the same
//! confined server.
//!
//! Only where a snapshot of a running volume is one moment, and files share
//! blocks: on btrfs.

mod clocks;
#[cfg(test)]
mod disk;
mod kept;
mod look;
mod marks;
mod moment;
mod pages;
mod parts;
mod rests;
mod room;
mod snapshots;
mod stored;
mod thinning;
#[cfg(test)]
mod written;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coppice_core::VolumeId;
use coppice_core::history::{Gap, History as Found, Window};
use coppice_core::lsn::Lsn;
use coppice_turns::Name;
use coppice_wal::{Log, Place};
use parking_lot::Mutex;

use super::layout::Layout;
use super::untrusted::{self, UntrustedPath};
use crate::{EngineError, Result};
use clocks::{Clocks, now_ms};
use marks::Marks;
use rests::Rests;
pub(super) use snapshots::trim_wal;
use snapshots::{Facts, Snapshots};
pub(super) use stored::append_log;

/// What is known of a volume's history between two looks.
struct Known {
    log: Log,
    /// Behind the last record that was seen.
    place: Place,
    /// When nothing was behind it for the last time.
    seen_ms: i64,
    /// The time of the last mark.
    marked_ms: i64,
    /// What time it was at the last look of this process.
    clocks: Option<Clocks>,
    /// What was seen before the clock was set forward, if it was since the last mark.
    left_out_from: Option<i64>,
    /// Length of the marks by then: another process has worked on them if it differs.
    marks_length: u64,
    /// Gaps among the marks, oldest first; those before the first mark may be left from
    /// before it was cut off.
    gaps: Vec<Gap>,
    /// The first file of the log that is not kept yet.
    next_kept: u64,
    snapshots: Vec<Facts>,
    /// The file in which the last walk found the end of the log.
    ends_in: u64,
    /// When that was last changed, and whether all that it had then was seen.
    changed: Option<(i64, u64)>,
    is_settled: bool,
}

/// Histories of all volumes.
#[derive(Debug)]
pub(super) struct History {
    layout: Layout,
    /// Held while somebody works on a volume's history.
    known: Mutex<HashMap<VolumeId, Arc<Mutex<Option<Known>>>>>,
    /// What snapshots of volumes have added to the first one of each, as far as it was asked.
    added: Mutex<HashMap<VolumeId, u64>>,
    /// What kept files of volumes count, by their numbers, as far as it was asked.
    counted: Mutex<HashMap<VolumeId, BTreeMap<u64, u64>>>,
    /// Who answers for volumes, as far as anybody said.
    holders: Mutex<HashMap<VolumeId, Name>>,
    rests: Rests,
    /// Whether there is room for any.
    has_room: AtomicBool,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("place", &self.place).finish_non_exhaustive()
    }
}

/// A volume that is worked on: its marks are held.
struct Volume {
    path: PathBuf,
    data: UntrustedPath,
    history: PathBuf,
    snapshots: Snapshots,
    kept: kept::Kept,
    marks: Marks,
    /// Bytes of the log that looks read behind its end, and will read again.
    read_in_vain: u64,
}

fn is_held(volume: &VolumeId) -> EngineError {
    EngineError::Other(format!("another process works on the history of {volume}"))
}

impl History {
    pub(super) fn new(layout: &Layout) -> Self {
        let has_room = AtomicBool::new(true);
        Self {
            layout: layout.clone(),
            known: Mutex::default(),
            added: Mutex::default(),
            counted: Mutex::default(),
            holders: Mutex::default(),
            rests: Rests::default(),
            has_room,
        }
    }

    fn entry(&self, volume: &VolumeId) -> Arc<Mutex<Option<Known>>> {
        self.known.lock().entry(volume.clone()).or_default().clone()
    }

    /// Whether any is kept.
    pub(super) fn has_room(&self) -> bool {
        self.has_room.load(Ordering::Relaxed)
    }

    /// Opens a volume's history; none while another process works on it, and when
    /// the volume is gone.
    fn open(&self, volume: &VolumeId) -> Result<Option<Volume>> {
        let history = self.layout.history(volume);
        if !self.layout.volume(volume).is_dir() {
            return Ok(None);
        }
        fs::create_dir_all(&history).map_err(EngineError::io(format!("making {}", history.display())))?;
        let Some(marks) = Marks::hold(&history.join("marks"))? else { return Ok(None) };
        Ok(Some(Volume {
            path: self.layout.volume(volume),
            data: self.layout.volume_data(volume),
            snapshots: Snapshots::of(&history),
            kept: kept::Kept::of(&history)?,
            history,
            marks,
            read_in_vain: 0,
        }))
    }

    /// Looks at a volume's log, and tells from where on the server has to keep it.
    fn look_at(
        &self,
        volume: &VolumeId,
        found: &mut Volume,
        known: &mut Option<Known>,
        major: u32,
    ) -> Result<Lsn> {
        let needed = found.look(known, major);
        self.rests.begin(volume, found.read_in_vain, Instant::now());
        needed
    }

    /// Looks unless the log rests, for one who asks what is kept; false where nothing is.
    fn look_for(
        &self,
        volume: &VolumeId,
        found: &mut Volume,
        known: &mut Option<Known>,
        major: u32,
    ) -> Result<bool> {
        if self.rests.has(volume, Instant::now()) {
            return Ok(known.is_some());
        }
        match self.look_at(volume, found, known, major) {
            Ok(_) => Ok(true),
            // Until it begins anew.
            Err(EngineError::HistoryLost) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Looks at the log of a volume, keeps what was finished, and takes a
    /// snapshot when it is time; with `keep`, what is older than that goes. Tells
    /// from where on the server has to keep its log; none when somebody else is at
    /// it, and, with `keep`, while it rests. Blocks.
    pub(super) fn look(&self, volume: &VolumeId, major: u32, keep: Option<Duration>) -> Result<Option<Lsn>> {
        if !self.has_room() {
            return Ok(None);
        }
        if keep.is_some() && self.rests.has(volume, Instant::now()) {
            return Ok(None);
        }
        let entry = self.entry(volume);
        let Some(mut known) = entry.try_lock() else { return Ok(None) };
        let Some(mut found) = self.open(volume)? else { return Ok(None) };
        let needed = self.look_at(volume, &mut found, &mut known, major)?;
        if let (Some(known), Some(keep)) = (known.as_mut(), keep) {
            found.thin(known, now_ms(), keep)?;
            found.recount(known, now_ms())?;
        }
        if let Some(known) = known.as_ref() {
            self.added.lock().insert(volume.clone(), snapshots::added_bytes(&known.snapshots));
        }
        Ok(Some(needed))
    }

    /// Looks, and tells everything that is kept. Blocks.
    pub(super) fn read(&self, volume: &VolumeId, major: u32) -> Result<Option<Found>> {
        if !self.has_room() {
            return Ok(None);
        }
        let entry = self.entry(volume);
        let mut known = entry.lock();
        let Some(mut found) = self.open(volume)? else { return Ok(None) };
        if !self.look_for(volume, &mut found, &mut known, major)? {
            return Ok(None);
        }
        let Some(known) = known.as_ref() else { return Ok(None) };
        Ok(Some(Found {
            marks: found.marks.read()?.into_iter().map(|entry| entry.mark).collect(),
            seen_ms: known.seen_ms,
            snapshots: known.snapshots.iter().map(Facts::snapshot).collect(),
            wal_bytes: found.kept.numbers()?.len() as u64 * known.log.segment().bytes,
        }))
    }

    /// Looks, and tells the moments from and to which something is kept, and the gaps
    /// between. Reads no more marks than it must. Blocks.
    pub(super) fn window(&self, volume: &VolumeId, major: u32) -> Result<Option<(Window, Vec<Gap>)>> {
        if !self.has_room() {
            return Ok(None);
        }
        let entry = self.entry(volume);
        let mut known = entry.lock();
        let Some(mut found) = self.open(volume)? else { return Ok(None) };
        if !self.look_for(volume, &mut found, &mut known, major)? {
            return Ok(None);
        }
        let ends = found.marks.first()?.zip(found.marks.last()?);
        let Some((known, (first, last))) = known.as_mut().zip(ends) else { return Ok(None) };
        let ends = Found { marks: vec![first.mark, last.mark], seen_ms: known.seen_ms, ..Found::default() };
        let Some(window) = ends.window() else { return Ok(None) };
        known.gaps.retain(|(_, behind)| window.from < *behind);
        Ok(Some((window, known.gaps.clone())))
    }

    /// The log of a volume from a place on, at most so many bytes of it; none when it
    /// is not there, or the log has not come so far. Blocks.
    pub(super) fn log_from(
        &self,
        volume: &VolumeId,
        major: u32,
        from: Lsn,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>> {
        if !self.has_room() {
            return Ok(None);
        }
        let entry = self.entry(volume);
        let mut known = entry.lock();
        let mut found = self.open(volume)?.ok_or_else(|| is_held(volume))?;
        if !self.rests.has(volume, Instant::now()) {
            self.look_at(volume, &mut found, &mut known, major)?;
        }
        let Some(known) = known.as_ref() else { return Ok(None) };
        found.read_log(known, from, bytes_max)
    }

    /// Fills `staged`, which is not there yet, with a volume as it was at a place
    /// of its log, and tells where the last record before that ends. Blocks.
    pub(super) fn fill(&self, volume: &VolumeId, major: u32, lsn: Lsn, staged: &Path) -> Result<Lsn> {
        let entry = self.entry(volume);
        let _held = entry.lock();
        let found = self.open(volume)?.ok_or_else(|| is_held(volume))?;
        found.fill(lsn, major, staged)
    }

    /// Removes a volume's history. Blocks.
    pub(super) fn remove(&self, volume: &VolumeId) -> Result<()> {
        let entry = self.entry(volume);
        let mut known = entry.lock();
        *known = None;
        let path = self.layout.history(volume);
        let snapshots = Snapshots::of(&path);
        for facts in snapshots.list().unwrap_or_default() {
            snapshots.remove(facts.end().at)?;
        }
        untrusted::delete_tree(&path).map_err(EngineError::io(format!("deleting {}", path.display())))?;
        self.known.lock().remove(volume);
        self.added.lock().remove(volume);
        self.counted.lock().remove(volume);
        self.holders.lock().remove(volume);
        Ok(())
    }
}
