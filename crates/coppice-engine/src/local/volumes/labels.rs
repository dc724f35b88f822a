//! The label of a volume: whose it is, and the newest claim that acted on it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use coppice_core::volume::VolumeLabel;

use crate::local::durable::write_durably;
use crate::{EngineError, Result};

/// Only root, or the one account everything runs under, may read a label.
const LABEL_MODE: u32 = 0o600;

fn label_path(volume_dir: &Path) -> PathBuf {
    volume_dir.join("label.json")
}

/// The label in `volume_dir`; none when there is no such directory.
///
/// # Errors
/// When there is a directory without a label, or the label is damaged.
pub(super) fn read(volume_dir: &Path) -> Result<Option<VolumeLabel>> {
    let path = label_path(volume_dir);
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| EngineError::Other(format!("{} is damaged: {error}", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => match volume_dir.symlink_metadata() {
            Err(missing) if missing.kind() == ErrorKind::NotFound => Ok(None),
            _ => Err(EngineError::Other(format!("{} has no label", volume_dir.display()))),
        },
        Err(error) => Err(EngineError::io(format!("reading {}", path.display()))(error)),
    }
}

/// Replaces the label of a volume in place.
pub(super) fn replace(volume_dir: &Path, label: &VolumeLabel) -> Result<()> {
    write_durably(&label_path(volume_dir), &encode(label)?, LABEL_MODE)
}

/// Writes the label of a half-made volume, also over that of its source. A
/// crash may leave half a label: nobody reads one in `staging/`.
pub(super) fn write_staged(staged_dir: &Path, label: &VolumeLabel) -> Result<()> {
    let path = label_path(staged_dir);
    let write = || -> std::io::Result<()> {
        let mut file: File =
            OpenOptions::new().create(true).truncate(true).write(true).mode(LABEL_MODE).open(&path)?;
        file.write_all(&encode(label).map_err(std::io::Error::other)?)?;
        file.sync_all()
    };
    write().map_err(EngineError::io(format!("writing {}", path.display())))
}

fn encode(label: &VolumeLabel) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(label).map_err(|error| EngineError::Other(error.to_string()))
}
