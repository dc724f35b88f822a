//! Data that is worked on in `staging/` before it is a volume, or without ever
//! becoming one: for upgrades.

use std::path::PathBuf;

use coppice_core::VolumeId;
use coppice_core::volume::VolumeLabel;
use coppice_failpoint::failpoint;

use super::making::Flusher;
use super::{SourceState, Volumes};
use crate::Result;
use crate::local::untrusted::UntrustedPath;

impl Volumes {
    /// Copies a volume into the staging directory of `label`, where it stays until it
    /// is published or cleared.
    ///
    /// # Errors
    /// As [`Volumes::copy`].
    pub(in crate::local) fn stage_beside(
        &self,
        source: &VolumeId,
        label: &VolumeLabel,
        state: SourceState<'_>,
    ) -> Result<UntrustedPath> {
        // Before the lock is taken: whoever removes leftovers looks when it has it.
        self.beside.lock().insert(label.volume.clone());
        let _held = self.locks.take(&label.volume, Some(source));
        let staged = self.stage_copy(source, label, state)?;
        Ok(UntrustedPath::new(&staged, "data"))
    }

    /// Where that is.
    pub(in crate::local) fn beside(&self, volume: &VolumeId) -> PathBuf {
        self.staged(volume)
    }

    /// Whether the volume is complete already; its label then carries our claim.
    ///
    /// # Errors
    /// [`crate::EngineError::Fenced`] when a newer claim has made it.
    pub(in crate::local) fn is_made(&self, label: &VolumeLabel) -> Result<bool> {
        let _held = self.locks.take(&label.volume, None);
        self.take_over(label)
    }

    /// Makes what was staged the volume of this label; no server is on it any more.
    ///
    /// # Errors
    /// When it can't be flushed or moved.
    pub(in crate::local) fn publish_beside(&self, volume: &VolumeId) -> Result<()> {
        let _held = self.locks.take(volume, None);
        let staged = self.staged(volume);
        Flusher::open(&staged)?.flush()?;
        failpoint!("upgrade.flushed");
        self.publish(volume, &staged)?;
        self.beside.lock().remove(volume);
        Ok(())
    }

    /// Removes what was staged, if anything was.
    ///
    /// # Errors
    /// When it can't be deleted.
    pub(in crate::local) fn clear_beside(&self, volume: &VolumeId) -> Result<()> {
        let _held = self.locks.take(volume, None);
        self.clear_staged(volume)?;
        self.beside.lock().remove(volume);
        Ok(())
    }
}
