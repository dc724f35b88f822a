//! Files that are there after a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::{EngineError, Result};

/// Writes a file so that after a crash either the old or the new content is
/// there, whole: a temporary file, flushed, renamed, directory flushed.
///
/// # Errors
/// When any of these steps fails; the old content is then still there.
pub fn write_durably(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let action = || format!("writing {}", path.display());
    let directory = path.parent().unwrap_or(Path::new("."));
    let temporary = path.with_extension("new");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(mode)
        .open(&temporary)
        .map_err(EngineError::io(action()))?;
    file.set_permissions(fs::Permissions::from_mode(mode)).map_err(EngineError::io(action()))?;
    file.write_all(content).map_err(EngineError::io(action()))?;
    file.sync_all().map_err(EngineError::io(action()))?;
    fs::rename(&temporary, path).map_err(EngineError::io(action()))?;
    File::open(directory).and_then(|dir| dir.sync_all()).map_err(EngineError::io(action()))
}

/// Makes the entries of a directory durable.
pub(super) fn sync_directory(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(EngineError::io(format!("flushing {}", path.display())))
}
