//! Volumes: the directories that hold the data of instances.
//!
//! A volume is `volumes/<id>` with two entries: `label.json`, which says whose
//! it is (root alone may read it), and `data/`, PostgreSQL's directory, owned
//! by the installation's storage account. It is made in `staging/<id>`, made
//! durable there, and moved into place by one rename: what is under `volumes/`
//! is complete. It leaves by a rename too, into `trash/` when a tombstone
//! names it or into `quarantine/` when nobody knows it.
//!
//! Every call may be repeated, also after a crash in the middle of it. Calls
//! on one volume wait for each other (`locks.rs`), so that a caller that gave
//! up and tries again does not meet its own earlier attempt.

use std::collections::BTreeSet;
use std::path::PathBuf;

use coppice_core::VolumeId;
use coppice_core::claim::ClaimToken;
use coppice_core::volume::VolumeLabel;
use parking_lot::Mutex;

use super::btrfs;
use super::history::History;
use super::installation::Installation;
use super::layout::Layout;
use super::pool::Pool;
pub use super::storage_options::{DriverKind, PoolMode, StorageOptions};
pub use super::storage_usage::StorageUsage;
use super::untrusted::UntrustedPath;
use crate::{EngineError, Result};

mod beside;
mod bytes;
mod changed;
mod clone;
mod driver;
mod export;
mod frozen;
mod history;
mod labels;
mod live;
mod locks;
mod making;
mod removal;

pub(super) use bytes::Mark;
pub(super) use clone::give_to;
pub(super) use export::LEFT_BEHIND;
pub use export::copy_out;

/// Others may pass through a directory of ours, not look into it: servers run
/// under accounts of their own.
const SHARED_DIRECTORY_MODE: u32 = 0o711;

/// Where volumes are kept, and how they are copied.
#[derive(Debug)]
pub struct Volumes {
    layout: Layout,
    installation: Installation,
    driver: DriverKind,
    driver_reason: String,
    pool: Option<Pool>,
    locks: locks::VolumeLocks,
    /// What is in `staging/` and worked on by servers, for longer than a call.
    beside: Mutex<BTreeSet<VolumeId>>,
    history: History,
    /// Of a hundred parts of the room for volumes.
    history_share: u8,
    /// Held from reading a claim to writing a newer one.
    claims: Mutex<()>,
}

/// A running server whose volume is to be copied. Nothing is asked of it where
/// a copy is one atomic snapshot, so an implementation connects only when
/// [`backup_start`](LiveSource::backup_start) is called.
pub trait LiveSource {
    /// Runs `pg_backup_start(…, fast => true)`. From here until this value is
    /// dropped the server must keep its WAL, for example by a temporary
    /// physical replication slot that reserves WAL immediately.
    ///
    /// # Errors
    /// When the server can't be asked.
    fn backup_start(&mut self) -> Result<()>;

    /// Runs `pg_backup_stop(wait_for_archive => false)` in the same session and
    /// returns its `labelfile`. When copying fails in between, this is not
    /// called; ending the session ends the backup.
    ///
    /// # Errors
    /// When the server can't be asked.
    fn backup_stop(&mut self) -> Result<String>;
}

/// What is known about the source of a copy while it is made.
pub enum SourceState<'a> {
    /// No server runs on it, and the caller sees to it that none is started.
    Stopped,
    /// A server runs on it or may be started meanwhile.
    Live(&'a mut dyn LiveSource),
}

/// What lies under `volumes/`.
#[derive(Debug, Default)]
pub struct VolumeList {
    /// Labels of the volumes, in no particular order.
    pub labels: Vec<VolumeLabel>,
    /// Volumes whose label is missing or damaged, with the reason.
    pub unreadable: Vec<(VolumeId, String)>,
}

impl VolumeList {
    /// Says in the log which volumes can't be told.
    pub fn tell_unreadable(&self) {
        for (volume, reason) in &self.unreadable {
            tracing::warn!(%volume, "volume {volume} has no readable label and is left alone: {reason}");
        }
    }
}

/// A volume that was set aside.
#[derive(Debug)]
pub struct QuarantinedVolume {
    /// Where it is now.
    pub path: PathBuf,
    /// Its label, where that is readable.
    pub label: Option<VolumeLabel>,
}

impl Volumes {
    /// Chooses the driver by what the file system under the data directory can
    /// do, attaches the pool, and makes the directories.
    ///
    /// # Errors
    /// When the pool can't be attached, a chosen driver does not work here, or
    /// the directories can't be made.
    pub fn open(layout: &Layout, installation: &Installation, options: &StorageOptions) -> Result<Self> {
        let choice = driver::choose(layout, options)?;
        Ok(Self {
            layout: layout.clone(),
            installation: installation.clone(),
            driver: choice.kind,
            driver_reason: choice.reason,
            pool: choice.pool,
            locks: locks::VolumeLocks::default(),
            beside: Mutex::default(),
            history: History::new(layout),
            history_share: options.history_share,
            claims: Mutex::new(()),
        })
    }

    /// The driver in use.
    pub fn driver(&self) -> DriverKind {
        self.driver
    }

    /// Why this driver is in use, in a sentence.
    pub fn driver_reason(&self) -> &str {
        &self.driver_reason
    }

    /// True when a copy of `source` is one moment in time even while a server
    /// writes to it, so that nothing has to be asked of that server.
    pub fn is_snapshot_atomic(&self, source: &VolumeId) -> bool {
        self.driver == DriverKind::Btrfs && btrfs::is_subvolume(&self.layout.volume(source))
    }

    /// Makes a volume whose data `fill` writes into the directory it is given:
    /// empty, mode 0700, owned by the storage account. Afterwards everything in
    /// it belongs to that account, whoever wrote it. `fill` is not called when
    /// the volume is there already.
    ///
    /// # Errors
    /// [`EngineError::Fenced`] when a newer claim has made the volume; what
    /// `fill` returns; when writing fails.
    pub fn create(
        &self,
        label: &VolumeLabel,
        fill: &mut dyn FnMut(&UntrustedPath) -> Result<()>,
    ) -> Result<()> {
        self.make(label, fill)
    }

    /// Makes a volume with the data of `source` as it is now.
    ///
    /// # Errors
    /// [`EngineError::Fenced`] when a newer claim has made the volume,
    /// [`EngineError::NoVolume`] when the source is missing,
    /// [`EngineError::NotCopyable`] when its data is not in one piece.
    pub fn copy(&self, source: &VolumeId, label: &VolumeLabel, state: SourceState<'_>) -> Result<()> {
        self.make_copy(source, label, state)
    }

    /// Refuses a claim that is older than the newest one that acted on the
    /// volume, and otherwise writes it into the label.
    ///
    /// # Errors
    /// [`EngineError::Fenced`], [`EngineError::NoVolume`], or when the label
    /// can't be read or written.
    pub fn check_claim(&self, volume: &VolumeId, claim: ClaimToken) -> Result<()> {
        let _reading_and_writing = self.claims.lock();
        let mut label = self.label(volume)?.ok_or_else(|| EngineError::NoVolume(volume.clone()))?;
        if label.claim > claim {
            return Err(EngineError::Fenced(volume.clone()));
        }
        if label.claim < claim {
            label.claim = claim;
            labels::replace(&self.layout.volume(volume), &label)?;
        }
        Ok(())
    }

    /// The label of a volume; none when there is no such volume.
    ///
    /// # Errors
    /// When the label is missing or damaged.
    pub fn label(&self, volume: &VolumeId) -> Result<Option<VolumeLabel>> {
        single_name(volume)?;
        labels::read(&self.layout.volume(volume))
    }

    /// All volumes on disk, without those that were set aside.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn list(&self) -> Result<VolumeList> {
        let volumes = self.layout.volumes();
        let reading = || format!("reading {}", volumes.display());
        let mut list = VolumeList::default();
        for entry in std::fs::read_dir(&volumes).map_err(EngineError::io(reading()))? {
            let name = entry.map_err(EngineError::io(reading()))?.file_name();
            let volume = VolumeId::from_trusted(name.to_string_lossy());
            match labels::read(&volumes.join(&name)) {
                Ok(Some(label)) if label.volume == volume => list.labels.push(label),
                Ok(Some(label)) => {
                    list.unreadable.push((volume, format!("its label is that of {}", label.volume)));
                }
                // Removed since the directory was read.
                Ok(None) => {}
                Err(error) => list.unreadable.push((volume, error.chain())),
            }
        }
        Ok(list)
    }

    /// PostgreSQL's data directory in a volume.
    pub fn data_dir(&self, volume: &VolumeId) -> UntrustedPath {
        self.layout.volume_data(volume)
    }

    /// PostgreSQL's data directory in what a drill restored.
    pub(super) fn drill_data(&self) -> UntrustedPath {
        UntrustedPath::new(&self.layout.drill(), "data")
    }

    /// A number that is another one after the volume was changed, half a minute
    /// later at most; none where the file system keeps none.
    pub fn generation(&self, volume: &VolumeId) -> Option<u64> {
        let path = self.layout.volume(volume);
        btrfs::is_subvolume(&path).then(|| btrfs::generation(&path).ok()).flatten()
    }

    /// Whether the volume is there, complete.
    pub fn exists(&self, volume: &VolumeId) -> bool {
        self.layout.volume(volume).is_dir()
    }

    /// Removes a volume, complete or half made. The caller holds a tombstone
    /// for it. One that is not there is fine.
    ///
    /// # Errors
    /// When it carries another installation's label or none that can be read,
    /// or deleting fails.
    pub fn remove(&self, volume: &VolumeId) -> Result<()> {
        self.remove_volume(volume)
    }

    /// Sets a volume aside, keeping its data. One that is not there is fine.
    ///
    /// # Errors
    /// When it can't be moved.
    pub fn quarantine(&self, volume: &VolumeId) -> Result<()> {
        self.quarantine_volume(volume)
    }

    /// Volumes that were set aside.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn quarantined(&self) -> Result<Vec<QuarantinedVolume>> {
        self.quarantined_volumes()
    }

    /// How many volumes were set aside, without looking at them.
    pub fn quarantined_count(&self) -> usize {
        std::fs::read_dir(self.layout.quarantine()).map(Iterator::count).unwrap_or_default()
    }

    /// Whether they are kept in a pool of the platform's own.
    pub fn has_pool(&self) -> bool {
        self.pool.is_some()
    }

    /// Deletes what removals and half-made volumes of an earlier run left.
    ///
    /// # Errors
    /// When something can't be deleted; the rest is deleted all the same.
    pub fn empty_trash(&self) -> Result<()> {
        self.delete_leftovers()
    }

    /// Room for volumes.
    ///
    /// # Errors
    /// When the file system can't be asked.
    pub fn usage(&self) -> Result<StorageUsage> {
        StorageUsage::of(&self.layout.volumes())
    }

    /// Room for volumes, with what the pool can still grow by, in bytes.
    ///
    /// # Errors
    /// When a file system can't be asked.
    pub(in crate::local) fn room_bytes(&self) -> Result<u64> {
        let growable = self.pool.as_ref().map_or(Ok(0), Pool::growable_bytes)?;
        Ok(self.usage()?.free_bytes.saturating_add(growable))
    }

    /// Has all that was written be on the disk, and the pool grow when it is short of room
    /// by that; tells what is left.
    ///
    /// # Errors
    /// When the file system can't be asked, or growing fails.
    pub(in crate::local) fn settle(&self) -> Result<StorageUsage> {
        let volumes = self.layout.volumes();
        if btrfs::is_btrfs(&volumes) {
            btrfs::commit(&volumes).map_err(EngineError::io("writing volumes to the disk"))?;
        }
        self.pool.as_ref().map_or(Ok(()), Pool::maintain)?;
        self.usage()
    }

    /// To be called now and then: grows the pool when it is short of room and
    /// the host has some, and cuts histories where they take too much.
    ///
    /// # Errors
    /// When growing fails; the pool is then as before. When a history can't be cut.
    pub fn maintain(&self) -> Result<()> {
        self.pool.as_ref().map_or(Ok(()), Pool::maintain)?;
        let usage = self.usage()?;
        self.history.keep_within(self.history_share, usage.total_bytes, usage.free_bytes)
    }

    /// Unmounts the pool and frees its loop device. Does nothing without a pool.
    ///
    /// # Errors
    /// When something still uses it.
    pub fn detach(&self) -> Result<()> {
        self.pool.as_ref().map_or(Ok(()), Pool::detach)
    }

    fn staged(&self, volume: &VolumeId) -> PathBuf {
        self.layout.staging().join(volume.as_str())
    }

    /// Who owns data on disk; none where only one account is at hand.
    fn owner(&self) -> Option<u32> {
        rustix::process::geteuid().is_root().then(|| self.installation.storage_account())
    }

    fn refuse_foreign(&self, label: &VolumeLabel) -> Result<()> {
        if label.installation == self.installation.installation {
            return Ok(());
        }
        Err(EngineError::Other(format!(
            "volume {} belongs to installation {}, not to this one; it is left alone",
            label.volume, label.installation
        )))
    }
}

/// An id becomes the name of a directory, so it must be a name and nothing else.
fn single_name(volume: &VolumeId) -> Result<()> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !volume.as_str().is_empty() && volume.as_str().bytes().all(is_name) {
        return Ok(());
    }
    Err(EngineError::Other(format!("{:?} is not the id of a volume", volume.as_str())))
}
