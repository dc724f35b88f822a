//! How a volume leaves: renamed into `trash/` and deleted there, or renamed
//! into `quarantine/` and kept.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use coppice_core::VolumeId;
use coppice_failpoint::failpoint;

use super::{QuarantinedVolume, Volumes, labels, single_name};
use crate::local::btrfs;
use crate::local::durable::sync_directory;
use crate::local::untrusted::{self, UntrustedPath};
use crate::{EngineError, Result};

impl Volumes {
    pub(super) fn remove_volume(&self, volume: &VolumeId) -> Result<()> {
        single_name(volume)?;
        let _held = self.locks.take(volume, None);
        let path = self.layout.volume(volume);
        let trashed = self.layout.trash().join(volume.as_str());
        if let Some(label) = labels::read(&path)? {
            self.refuse_foreign(&label)?;
            // Left by an earlier removal of a volume that was then made again.
            delete_tree(&trashed)?;
            failpoint!("volume.remove.before_rename");
            match fs::rename(&path, &trashed) {
                // Deleting has room set apart for it, renaming has not.
                Err(error) if error.kind() == ErrorKind::StorageFull => delete_in_place(&path)?,
                result => {
                    result.map_err(EngineError::io(format!("moving {} to the trash", path.display())))?
                }
            }
            failpoint!("volume.remove.after_rename");
            sync_directory(&self.layout.volumes())?;
        }
        // Nobody begins another one without the volume.
        self.history.remove(volume)?;
        failpoint!("volume.remove.before_delete");
        delete_tree(&trashed)?;
        delete_tree(&self.staged(volume))
    }

    pub(super) fn quarantine_volume(&self, volume: &VolumeId) -> Result<()> {
        single_name(volume)?;
        let _held = self.locks.take(volume, None);
        let path = self.layout.volume(volume);
        if !path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            return Ok(());
        }
        let quarantine = self.layout.quarantine();
        let mut target = quarantine.join(volume.as_str());
        let mut number = 1;
        while target.symlink_metadata().is_ok() {
            number += 1;
            target = quarantine.join(format!("{volume}.{number}"));
        }
        failpoint!("volume.quarantine.before_rename");
        fs::rename(&path, &target).map_err(EngineError::io(format!("setting {} aside", path.display())))?;
        failpoint!("volume.quarantine.after_rename");
        sync_directory(&quarantine)?;
        sync_directory(&self.layout.volumes())
    }

    pub(super) fn quarantined_volumes(&self) -> Result<Vec<QuarantinedVolume>> {
        let quarantine = self.layout.quarantine();
        let reading = || format!("reading {}", quarantine.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(&quarantine).map_err(EngineError::io(reading()))? {
            let path = entry.map_err(EngineError::io(reading()))?.path();
            let label = labels::read(&path).ok().flatten();
            found.push(QuarantinedVolume { path, label });
        }
        Ok(found)
    }

    pub(super) fn delete_leftovers(&self) -> Result<()> {
        let mut result = Ok(());
        for directory in [self.layout.trash(), self.layout.staging()] {
            let reading = || format!("reading {}", directory.display());
            for entry in fs::read_dir(&directory).map_err(EngineError::io(reading()))? {
                let entry = entry.map_err(EngineError::io(reading()))?;
                let volume = VolumeId::from_trusted(entry.file_name().to_string_lossy());
                // Somebody is making or removing it right now.
                let Some(_held) = self.locks.try_take(&volume) else { continue };
                if self.beside.lock().contains(&volume) {
                    continue;
                }
                if let Err(error) = delete_tree(&entry.path()) {
                    result = Err(error);
                }
            }
        }
        result
    }
}

/// Deletes a volume where it is. The label goes last: should this be cut short,
/// the rest still says whose it is.
fn delete_in_place(volume_dir: &Path) -> Result<()> {
    if !btrfs::is_subvolume(volume_dir) {
        delete_tree(UntrustedPath::new(volume_dir, "data").host_path())?;
    }
    delete_tree(volume_dir)
}

/// Deletes a volume, whole or half made, or its data. One that is not there is fine.
pub(super) fn delete_tree(path: &Path) -> Result<()> {
    untrusted::delete_tree(path).map_err(EngineError::io(format!("deleting {}", path.display())))
}
