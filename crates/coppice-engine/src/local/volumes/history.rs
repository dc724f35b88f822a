//! The past of volumes.

use std::fs;
use std::time::Duration;

use coppice_core::VolumeId;
use coppice_core::history::{Gap, History, Window};
use coppice_core::lsn::Lsn;
use coppice_core::volume::VolumeLabel;
use coppice_failpoint::failpoint;
use coppice_turns::Name;

use super::making::Flusher;
use super::{DriverKind, Volumes, labels, single_name};
use crate::local::durable::write_durably;
use crate::{EngineError, Result};

/// Says in a volume where its recovery has to end.
const MOMENT: &str = "moment";

impl Volumes {
    /// Makes a volume with the data that `source` had when its write-ahead log
    /// ended at `lsn`. Its server recovers it when it is started.
    ///
    /// # Errors
    /// As [`copy`](Self::copy), and when history does not have that.
    pub fn copy_back(&self, source: &VolumeId, label: &VolumeLabel, lsn: Lsn) -> Result<()> {
        single_name(source)?;
        single_name(&label.volume)?;
        let _held = self.locks.take(&label.volume, Some(source));
        if self.take_over(label)? {
            return Ok(());
        }
        let source_label = labels::read(&self.layout.volume(source))?
            .ok_or_else(|| EngineError::NoVolume(source.clone()))?;
        self.refuse_foreign(&source_label)?;
        let staged = self.clear_staged(&label.volume)?;
        let flusher = Flusher::open(&self.layout.staging())?;
        let end = self.history.fill(source, source_label.version.major, lsn, &staged)?;
        failpoint!("volume.copy_back.after_fill");
        let moment = format!("{} {end}", label.volume);
        write_durably(&staged.join(MOMENT), moment.as_bytes(), 0o600)?;
        labels::write_staged(&staged, label)?;
        flusher.flush()?;
        self.publish(&label.volume, &staged)
    }

    /// Notes who answers for a volume: what histories may take is shared out among these.
    pub(in crate::local) fn note_holder(&self, volume: &VolumeId, holder: Name) {
        self.history.note_holder(volume, holder);
    }

    /// Looks at the write-ahead log of a volume, and keeps it; with `keep`, what is
    /// older than that goes. Tells from where on its server has to keep it; none where
    /// no history is kept.
    ///
    /// # Errors
    /// When it can't be read or kept; nothing that was kept is lost by that.
    pub fn look(&self, volume: &VolumeId, keep: Option<Duration>) -> Result<Option<Lsn>> {
        match self.major_with_history(volume)? {
            Some(major) => self.history.look(volume, major, keep),
            None => Ok(None),
        }
    }

    /// What is kept of a volume's past, by now; none where nothing is.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub fn history(&self, volume: &VolumeId) -> Result<Option<History>> {
        match self.major_with_history(volume)? {
            Some(major) => self.history.read(volume, major),
            None => Ok(None),
        }
    }

    /// The moments from and to which there is a past, by now, and the gaps between, oldest
    /// first; none where there is none.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub fn history_window(&self, volume: &VolumeId) -> Result<Option<(Window, Vec<Gap>)>> {
        match self.major_with_history(volume)? {
            Some(major) => self.history.window(volume, major),
            None => Ok(None),
        }
    }

    /// The log of a volume from a place on, at most so many bytes of it; none when
    /// it is not kept from there.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub fn log_from(&self, volume: &VolumeId, from: Lsn, bytes_max: u64) -> Result<Option<Vec<u8>>> {
        match self.major_with_history(volume)? {
            Some(major) => self.history.log_from(volume, major, from, bytes_max),
            None => Ok(None),
        }
    }

    /// Where recovery of a volume that was made by [`copy_back`](Self::copy_back)
    /// has to end; none for others.
    pub(in crate::local) fn moment(&self, volume: &VolumeId) -> Option<Lsn> {
        let text = fs::read_to_string(self.layout.volume(volume).join(MOMENT)).ok()?;
        // A copy of it inherits the file.
        text.strip_prefix(volume.as_str())?.trim().parse().ok()
    }

    /// Whether history can be kept here, wanted or not.
    pub(in crate::local) fn stores_history(&self) -> bool {
        self.driver == DriverKind::Btrfs
    }

    /// Whether history is kept here, room or no room.
    pub(in crate::local) fn can_keep_history(&self) -> bool {
        self.stores_history() && self.history_share > 0
    }

    /// Whether there is room for any.
    pub(in crate::local) fn has_room_for_history(&self) -> bool {
        self.history_share > 0 && self.history.has_room()
    }

    /// The release of a volume, if history is kept of it.
    fn major_with_history(&self, volume: &VolumeId) -> Result<Option<u32>> {
        if !self.has_room_for_history() || !self.is_snapshot_atomic(volume) {
            return Ok(None);
        }
        Ok(self.label(volume)?.map(|label| label.version.major))
    }
}
