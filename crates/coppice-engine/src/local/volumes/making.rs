//! How a volume comes to be: made in `staging/`, flushed, moved into place.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use coppice_core::VolumeId;
use coppice_core::volume::VolumeLabel;
use coppice_failpoint::failpoint;
use rustix::fs::FileType;

use super::clone::{self, FileMethod, Met, Selected, Walk};
use super::{DriverKind, SHARED_DIRECTORY_MODE, SourceState, Volumes, labels, live, removal, single_name};
use crate::local::btrfs;
use crate::local::durable::sync_directory;
use crate::local::untrusted::UntrustedPath;
use crate::{EngineError, Result};

/// Under which those who work on a drill's data wait for each other.
fn drill() -> VolumeId {
    VolumeId::from_trusted("drill")
}

impl Volumes {
    pub(super) fn make(
        &self,
        label: &VolumeLabel,
        fill: &mut dyn FnMut(&UntrustedPath) -> Result<()>,
    ) -> Result<()> {
        single_name(&label.volume)?;
        let _held = self.locks.take(&label.volume, None);
        if self.take_over(label)? {
            return Ok(());
        }
        let staged = self.stage(&label.volume)?;
        let flusher = Flusher::open(&staged)?;
        let data = self.make_data_dir(&staged)?;
        failpoint!("volume.create.before_fill");
        if let Err(error) = fill(&data) {
            // Nobody may come to try again.
            removal::delete_tree(&staged)?;
            return Err(error);
        }
        failpoint!("volume.create.after_fill");
        if let Some(account) = self.owner() {
            clone::give_to(data.host_path(), account)
                .map_err(EngineError::io("changing owners of new data"))?;
        }
        labels::write_staged(&staged, label)?;
        flusher.flush()?;
        self.publish(&label.volume, &staged)
    }

    pub(super) fn make_copy(
        &self,
        source: &VolumeId,
        label: &VolumeLabel,
        state: SourceState<'_>,
    ) -> Result<()> {
        single_name(source)?;
        single_name(&label.volume)?;
        if *source == label.volume {
            return Err(EngineError::Other(format!("volume {source} can't be a copy of itself")));
        }
        let _held = self.locks.take(&label.volume, Some(source));
        if self.take_over(label)? {
            return Ok(());
        }
        let staged = self.stage_copy(source, label, state)?;
        self.publish(&label.volume, &staged)
    }

    /// Copies a volume into a directory that is none yet.
    pub(super) fn stage_copy(
        &self,
        source: &VolumeId,
        label: &VolumeLabel,
        state: SourceState<'_>,
    ) -> Result<PathBuf> {
        let source_dir = self.layout.volume(source);
        let source_label = labels::read(&source_dir)?.ok_or_else(|| EngineError::NoVolume(source.clone()))?;
        self.refuse_foreign(&source_label)?;
        refuse_scattered(source, &source_dir)?;
        if self.is_snapshot_atomic(source) {
            self.stage_snapshot(&source_dir, label)
        } else {
            self.stage_clone(source, label, state)
        }
    }

    /// True when the volume is complete already; its label then carries our claim.
    pub(super) fn take_over(&self, label: &VolumeLabel) -> Result<bool> {
        let Some(present) = labels::read(&self.layout.volume(&label.volume))? else { return Ok(false) };
        self.refuse_foreign(&present)?;
        self.check_claim(&label.volume, label.claim)?;
        Ok(true)
    }

    fn stage_snapshot(&self, source_dir: &Path, label: &VolumeLabel) -> Result<PathBuf> {
        let staged = self.clear_staged(&label.volume)?;
        btrfs::snapshot(source_dir, &staged)
            .map_err(EngineError::io(format!("taking a snapshot of {}", source_dir.display())))?;
        failpoint!("volume.copy.after_snapshot");
        labels::write_staged(&staged, label)?;
        Ok(staged)
    }

    fn stage_clone(&self, source: &VolumeId, label: &VolumeLabel, state: SourceState<'_>) -> Result<PathBuf> {
        let method = match self.driver {
            DriverKind::Btrfs | DriverKind::Reflink => FileMethod::Reflink,
            DriverKind::Copy => FileMethod::Bytes,
        };
        let staged = self.stage(&label.volume)?;
        let flusher = Flusher::open(&staged)?;
        let source_data = self.layout.volume_data(source);
        let data = self.make_data_dir(&staged)?;
        failpoint!("volume.copy.before_clone");
        match state {
            SourceState::Stopped => {
                let walk = Walk {
                    volume: source,
                    method,
                    select: &|_| Selected::Yes,
                    is_live: false,
                    met: Met::default(),
                };
                walk.copy(&source_data, &data)?;
            }
            SourceState::Live(server) => live::copy(source, &source_data, &data, method, server)?,
        }
        failpoint!("volume.copy.after_clone");
        labels::write_staged(&staged, label)?;
        flusher.flush()?;
        Ok(staged)
    }

    /// Writes data that is no volume's by `fill` in place of what a drill before left,
    /// and tells what `fill` does.
    pub(in crate::local) fn fill_drill<T>(
        &self,
        fill: impl FnOnce(&UntrustedPath) -> Result<T>,
    ) -> Result<T> {
        let _held = self.locks.take(&drill(), None);
        let place = self.layout.drill();
        removal::delete_tree(&place)?;
        self.make_place(&place)?;
        let data = self.make_data_dir(&place)?;
        let filled = fill(&data)?;
        if let Some(account) = self.owner() {
            clone::give_to(data.host_path(), account)
                .map_err(EngineError::io("changing owners of what was restored"))?;
        }
        Ok(filled)
    }

    /// Deletes what [`fill_drill`](Self::fill_drill) made.
    pub(in crate::local) fn remove_drill(&self) -> Result<()> {
        let _held = self.locks.take(&drill(), None);
        removal::delete_tree(&self.layout.drill())
    }

    /// An empty directory in place of whatever an earlier attempt left.
    fn stage(&self, volume: &VolumeId) -> Result<PathBuf> {
        let staged = self.clear_staged(volume)?;
        self.make_place(&staged)?;
        Ok(staged)
    }

    /// Makes a directory, a subvolume where the driver wants one.
    fn make_place(&self, place: &Path) -> Result<()> {
        let action = || format!("making {}", place.display());
        if self.driver == DriverKind::Btrfs {
            btrfs::create_subvolume(place).map_err(EngineError::io(action()))?;
            failpoint!("volume.stage.after_subvolume");
            set_mode(place, SHARED_DIRECTORY_MODE).map_err(EngineError::io(action()))
        } else {
            DirBuilder::new().mode(SHARED_DIRECTORY_MODE).create(place).map_err(EngineError::io(action()))
        }
    }

    pub(super) fn clear_staged(&self, volume: &VolumeId) -> Result<PathBuf> {
        let staged = self.staged(volume);
        removal::delete_tree(&staged)?;
        failpoint!("volume.stage.after_clear");
        Ok(staged)
    }

    fn make_data_dir(&self, staged: &Path) -> Result<UntrustedPath> {
        let data = UntrustedPath::new(staged, "data");
        let make = || -> std::io::Result<()> {
            DirBuilder::new().mode(0o700).create(data.host_path())?;
            if let Some(account) = self.owner() {
                std::os::unix::fs::chown(data.host_path(), Some(account), Some(account))?;
            }
            Ok(())
        };
        make().map_err(EngineError::io(format!("making {}", data.host_path().display())))?;
        Ok(data)
    }

    /// The last step. Before it there is no volume, after it a complete one.
    pub(super) fn publish(&self, volume: &VolumeId, staged: &Path) -> Result<()> {
        failpoint!("volume.publish.before_rename");
        let path = self.layout.volume(volume);
        fs::rename(staged, &path)
            .map_err(EngineError::io(format!("moving {} into place", path.display())))?;
        failpoint!("volume.publish.after_rename");
        sync_directory(&self.layout.volumes())
    }
}

/// Refuses data that one copy of the directory would not contain whole.
fn refuse_scattered(source: &VolumeId, source_dir: &Path) -> Result<()> {
    let refused =
        |reason: &str| EngineError::NotCopyable { volume: source.clone(), reason: reason.to_owned() };
    let reading = || format!("reading the data of volume {source}");
    let data = UntrustedPath::new(source_dir, "data").require().map_err(EngineError::io(reading()))?;
    if data.stat(c"pg_wal").is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink) {
        return Err(refused("its pg_wal is a link"));
    }
    let tablespaces = match data.directory("pg_tblspc").map_err(EngineError::io(reading()))? {
        Some(tablespaces) => !tablespaces.names(1).map_err(EngineError::io(reading()))?.is_empty(),
        None => false,
    };
    if tablespaces {
        return Err(refused("it has tablespaces"));
    }
    if btrfs::is_subvolume(source_dir)
        && btrfs::has_nested_subvolumes(source_dir)
            .map_err(EngineError::io(format!("looking for subvolumes in {}", source_dir.display())))?
    {
        return Err(refused("it contains another subvolume"));
    }
    if crate::local::pool::has_mounts_below(source_dir)? {
        return Err(refused("something is mounted in it"));
    }
    Ok(())
}

/// Flushes a whole file system: a volume has a thousand files, and flushing
/// each takes as many waits. Opened before the first write, so that a write
/// that failed in the background is reported here.
pub(super) struct Flusher {
    directory: File,
    path: PathBuf,
}

impl Flusher {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let directory = File::open(path).map_err(EngineError::io(format!("opening {}", path.display())))?;
        Ok(Self { directory, path: path.to_owned() })
    }

    pub(super) fn flush(&self) -> Result<()> {
        rustix::fs::syncfs(&self.directory)
            .map_err(EngineError::io(format!("flushing {}", self.path.display())))
    }
}

/// Sets the mode whatever the umask is.
pub(super) fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if path.metadata()?.mode() & 0o7777 == mode {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}
