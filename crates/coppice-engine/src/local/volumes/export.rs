//! Copies the data of a branch out of the platform.

use std::path::Path;

use coppice_core::BranchId;
use coppice_core::image::PostgresVersion;

use super::clone::{FileMethod, Met, Selected, Walk};
use super::labels;
use crate::local::layout::Layout;
use crate::local::untrusted::UntrustedPath;
use crate::{EngineError, Result};

/// What is left behind: notes of a server that ran, and files at the top by which
/// whoever starts the copy would be told what to run, where to restore from, or
/// what to link to. PostgreSQL reads them wherever its configuration is.
pub(in crate::local) const LEFT_BEHIND: [&str; 8] = [
    "backup_label",
    "backup_label.old",
    "postgresql.auto.conf",
    "postmaster.opts",
    "postmaster.pid",
    "recovery.signal",
    "standby.signal",
    "tablespace_map",
];

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
    for entry in std::fs::read_dir(layout.volumes()).map_err(EngineError::io(reading()))? {
        let volume = entry.map_err(EngineError::io(reading()))?.path();
        let Ok(Some(label)) = labels::read(&volume) else { continue };
        if label.branch.as_ref() != Some(branch) {
            continue;
        }
        let select = |path: &Path| match path.to_str() {
            Some(name) if LEFT_BEHIND.contains(&name) => Selected::No,
            _ => Selected::Yes,
        };
        let method = FileMethod::Reflink;
        let walk =
            Walk { volume: &label.volume, method, select: &select, is_live: false, met: Met::default() };
        let parent = target.parent().unwrap_or(Path::new("/"));
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        walk.copy(&layout.volume_data(&label.volume), &UntrustedPath::new(parent, &name))?;
        return Ok(label.version);
    }
    Err(EngineError::Other(format!("no volume of branch {branch} is in {}", layout.volumes().display())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use coppice_core::claim::ClaimToken;
    use coppice_core::volume::VolumeLabel;
    use coppice_core::{HostId, InstallationId, VolumeId};

    use super::*;

    #[test]
    fn nothing_that_tells_a_plain_server_what_to_do_comes_along() {
        let [home, out] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let branch = BranchId::generate();
        let label = VolumeLabel {
            installation: InstallationId::from_trusted("ins_1"),
            host: HostId::from_trusted("hst_1"),
            volume: VolumeId::from_trusted("vol_1"),
            branch: Some(branch.clone()),
            claim: ClaimToken::new(1, 1),
            version: PostgresVersion::parse("17.10").expect("a version"),
        };
        let volume = Layout::new(home.path(), "").volume(&label.volume);
        fs::create_dir_all(volume.join("data/base")).expect("directories");
        fs::write(volume.join("label.json"), serde_json::to_vec(&label).expect("JSON")).expect("a label");
        let kept = ["PG_VERSION", "base/recovery.signal", "pg_hba.conf"];
        for name in LEFT_BEHIND.iter().chain(&kept) {
            fs::write(volume.join("data").join(name), "restore_command = 'sh'").expect("a file");
        }
        let target = out.path().join("pgdata");
        fs::create_dir(&target).expect("a directory");
        assert_eq!(copy_out(home.path(), &branch, &target).expect("copied"), label.version);
        let is_there = |name: &&str| target.join(name).exists();
        assert!(kept.iter().all(is_there) && !LEFT_BEHIND.iter().any(is_there));
    }
}
