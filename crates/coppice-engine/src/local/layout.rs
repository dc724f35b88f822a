//! Where everything of a local engine lives.
//!
//! The data directory survives a reboot, the runtime directory does not: what
//! is in the latter (sockets, server records) has no meaning after one.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use coppice_core::image::PostgresVersion;
use coppice_core::{InstanceId, VolumeId};

use super::untrusted::UntrustedPath;
use crate::{EngineError, Result};

/// The longest runtime directory that leaves room for a socket's path: 107
/// bytes in `sockaddr_un`, less an instance's directory and the socket's name.
const RUNTIME_DIR_LENGTH_MAX: usize = 50;

/// The paths of one local engine.
#[derive(Clone, Debug)]
pub struct Layout {
    data_dir: PathBuf,
    runtime_dir: PathBuf,
}

impl Layout {
    /// The layout for a data directory; `key` tells apart the engines of one
    /// machine and is a few characters long.
    pub fn new(data_dir: &Path, key: &str) -> Self {
        Self { data_dir: data_dir.to_owned(), runtime_dir: runtime_parent().join(key) }
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Gone after a reboot.
    pub fn runtime_dir(&self) -> &Path {
        &self.runtime_dir
    }

    /// The platform's own pool, an image file with btrfs.
    pub fn pool_image(&self) -> PathBuf {
        self.data_dir.join("pool.img")
    }

    /// Holds the volumes: where the pool is mounted, or an ordinary directory.
    pub fn pool(&self) -> PathBuf {
        self.data_dir.join("pool")
    }

    /// Complete volumes, one directory each.
    pub fn volumes(&self) -> PathBuf {
        self.pool().join("volumes")
    }

    /// One volume: its label and its data.
    pub fn volume(&self, volume: &VolumeId) -> PathBuf {
        self.volumes().join(volume.as_str())
    }

    /// PostgreSQL's data directory in a volume.
    pub fn volume_data(&self, volume: &VolumeId) -> UntrustedPath {
        UntrustedPath::new(&self.volume(volume), "data")
    }

    /// Half-made volumes; whatever is here may be made anew by its branch.
    pub fn staging(&self) -> PathBuf {
        self.pool().join("staging")
    }

    /// Volumes on their way out, after a tombstone.
    pub fn trash(&self) -> PathBuf {
        self.pool().join("trash")
    }

    /// What a drill restores; whatever is here when none goes on is a leftover.
    pub fn drill(&self) -> PathBuf {
        self.pool().join("drill")
    }

    /// Volumes that no row knows, kept for a person to look at.
    pub fn quarantine(&self) -> PathBuf {
        self.pool().join("quarantine")
    }

    /// Makes sure that the place of runtime directories is this account's, if it
    /// is there: where that is below `/tmp`, anybody could have made it.
    pub(super) fn check_runtime(&self) -> Result<()> {
        check_owner(self.runtime_dir.parent().unwrap_or(&self.runtime_dir))
    }

    /// What is kept of the past of volumes.
    pub fn histories(&self) -> PathBuf {
        self.pool().join("history")
    }

    /// What is kept of the past of one.
    pub fn history(&self, volume: &VolumeId) -> PathBuf {
        self.histories().join(volume.as_str())
    }

    /// Immutable copies of PostgreSQL installations.
    pub fn images(&self) -> PathBuf {
        self.data_dir.join("images")
    }

    /// One image.
    pub fn image(&self, version: PostgresVersion) -> PathBuf {
        self.images().join(version.to_string())
    }

    /// The template of each release, by volume.
    pub(super) fn templates(&self) -> PathBuf {
        self.data_dir.join("templates.json")
    }

    /// What becomes templates.
    pub(super) fn fresh_clusters(&self) -> PathBuf {
        self.data_dir.join("fresh")
    }

    /// What an instance keeps outside its volume.
    pub fn instance(&self, instance: &InstanceId) -> PathBuf {
        self.data_dir.join("instances").join(instance.as_str())
    }

    /// What an instance logs.
    pub fn instance_logs(&self, instance: &InstanceId) -> UntrustedPath {
        UntrustedPath::new(&self.instance(instance), "log")
    }

    /// Where an instance's socket is: a directory, or a link to where the server
    /// has it.
    pub fn instance_socket(&self, instance: &InstanceId) -> UntrustedPath {
        UntrustedPath::new(&self.instance_runtime(instance), "socket")
    }

    /// An instance's socket, record and mount points.
    pub fn instance_runtime(&self, instance: &InstanceId) -> PathBuf {
        self.runtime_dir.join(instance.as_str())
    }

    /// The embedded metastore.
    pub fn metastore(&self) -> PathBuf {
        self.data_dir.join("metastore")
    }
}

fn check_owner(directory: &Path) -> Result<()> {
    let Ok(found) = directory.symlink_metadata() else { return Ok(()) };
    if found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(EngineError::Other(format!(
        "{} was made by another account ({}), which could take the place of servers there: have it removed, or set \
         XDG_RUNTIME_DIR to a directory of your own",
        directory.display(),
        found.uid()
    )))
}

fn runtime_parent() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/coppice");
    }
    let uid = rustix::process::geteuid().as_raw();
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(|dir| PathBuf::from(dir).join("coppice"))
        .filter(|dir| dir.as_os_str().len() <= RUNTIME_DIR_LENGTH_MAX)
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/coppice-{uid}")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn a_runtime_directory_that_somebody_else_made_is_refused() {
        let home = tempfile::tempdir().expect("a directory");
        let place = home.path().join("coppice-1000");
        assert!(check_owner(&place).is_ok(), "it is made when it is needed");
        std::fs::create_dir(&place).expect("a directory");
        assert!(check_owner(&place).is_ok(), "one's own");
        let link = home.path().join("link");
        symlink(&place, &link).expect("a link");
        assert!(check_owner(&link).is_err(), "a link leads where its maker likes");
        // Only root gives directories away.
        if chown(&place, Some(1_234_567), None).is_ok() {
            assert!(check_owner(&place).is_err());
        }
    }
}
