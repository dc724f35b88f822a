//! Copies the data of a branch out of the platform.

use std::path::Path;

use coppice_core::BranchId;
use coppice_core::image::PostgresVersion;

use super::clone::{FileMethod, Selected, Walk};
use super::{failed, labels};
use crate::local::layout::Layout;
use crate::local::untrusted::UntrustedPath;
use crate::{EngineError, Result};

/// Copies the data of a branch that sleeps into `target`, which exists and is
/// empty, and returns the version of its PostgreSQL. Modes and owners are kept;
/// nothing is followed that a server could have put there.
///
/// # Errors
/// When the data is not here or can't be read, or the copy can't be written.
pub fn copy_out(data_dir: &Path, branch: &BranchId, target: &Path) -> Result<PostgresVersion> {
    // The runtime directory is not looked at.
    let layout = Layout::new(data_dir, "");
    let reading = || format!("reading {}", layout.volumes().display());
    for entry in std::fs::read_dir(layout.volumes()).map_err(failed(reading()))? {
        let volume = entry.map_err(failed(reading()))?.path();
        let Ok(Some(label)) = labels::read(&volume) else { continue };
        if label.branch.as_ref() != Some(branch) {
            continue;
        }
        let select = |path: &Path| match path.to_str() {
            Some("postmaster.pid" | "postmaster.opts") => Selected::No,
            _ => Selected::Yes,
        };
        let method = FileMethod::Reflink;
        let walk = Walk { volume: &label.volume, method, select: &select, is_live: false };
        let parent = target.parent().unwrap_or(Path::new("/"));
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        walk.copy(&layout.volume_data(&label.volume), &UntrustedPath::new(parent, &name))?;
        return Ok(label.version);
    }
    Err(EngineError::Other(format!("no volume of branch {branch} is in {}", layout.volumes().display())))
}
