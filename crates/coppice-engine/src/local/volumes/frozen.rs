//! Copies of volumes that hold still while they are read.

use coppice_core::VolumeId;
use coppice_core::lsn::Lsn;
use coppice_core::volume::VolumeLabel;

use super::{SourceState, Volumes, removal, single_name};
use crate::local::history::trim_wal;
use crate::local::untrusted::UntrustedPath;
use crate::{EngineError, Result};

/// The name of a volume's copy.
fn frozen(volume: &VolumeId) -> VolumeId {
    VolumeId::from_trusted(format!("frozen-{volume}"))
}

impl Volumes {
    /// Copies a volume for [`read_frozen`](Self::read_frozen). Tells where its log
    /// ends, if that is kept from there on.
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    pub(in crate::local) fn freeze(&self, source: &VolumeId, state: SourceState<'_>) -> Result<Option<Lsn>> {
        single_name(source)?;
        let label = self.label(source)?.ok_or_else(|| EngineError::NoVolume(source.clone()))?;
        let label = VolumeLabel { volume: frozen(source), ..label };
        let _held = self.locks.take(&label.volume, Some(source));
        let is_atomic = self.is_snapshot_atomic(source);
        let staged = self.stage_copy(source, &label, state)?;
        if !is_atomic {
            return Ok(None);
        }
        let end = trim_wal(&UntrustedPath::new(&staged, "data"), label.version.major)?;
        Ok(Some(end).filter(|_| self.has_room_for_history()))
    }

    /// Reads a copy that was made by [`freeze`](Self::freeze), to which nobody
    /// writes, and deletes it. The volume itself may be gone by now.
    ///
    /// # Errors
    /// What `read` returns; when there is no such copy, or it can't be deleted.
    pub(in crate::local) fn read_frozen<T>(
        &self,
        source: &VolumeId,
        read: impl FnOnce(&UntrustedPath) -> Result<T>,
    ) -> Result<T> {
        let frozen = frozen(source);
        let _held = self.locks.take(&frozen, None);
        let staged = self.staged(&frozen);
        let done = read(&UntrustedPath::new(&staged, "data"));
        removal::delete_tree(&staged)?;
        done
    }
}
