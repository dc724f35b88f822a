//! The identity of a data directory, and the lock that keeps a second control
//! plane away from it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use coppice_core::{HostId, InstallationId};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::durable::write_durably;
use crate::{EngineError, Result};

/// First account number that container managers and systemd leave free
/// (systemd's "Users, Groups, UIDs and GIDs" lists the ranges in use).
const ACCOUNT_RANGE_START: u32 = 1_900_000_000;
/// Accounts of one installation: one per volume, and one that owns files on disk.
const ACCOUNTS_PER_INSTALLATION: u32 = 65_536;
const ACCOUNT_BLOCKS: u32 = 3_700;

/// Who a data directory is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installation {
    /// The installation; its metastore carries the same id.
    pub installation: InstallationId,
    /// This machine, as that metastore knows it.
    pub host: HostId,
    /// First of this installation's reserved uids and gids.
    pub account_base: u32,
}

impl Installation {
    /// Reads the identity of `data_dir`, or gives it one.
    ///
    /// # Errors
    /// When the file can't be read or written, or is damaged.
    pub fn ensure(data_dir: &Path) -> Result<Self> {
        let path = data_dir.join("installation.json");
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| EngineError::Other(format!("{} is damaged: {error}", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let now = chrono::Utc::now();
                let made = Self::of(InstallationId::generate(now), HostId::generate(now));
                made.write(data_dir)?;
                Ok(made)
            }
            Err(error) => Err(EngineError::io(format!("reading {}", path.display()))(error)),
        }
    }

    /// Gives `data_dir` the identity of an installation whose own is lost.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn recover(data_dir: &Path, installation: &InstallationId, host: &HostId) -> Result<()> {
        Self::of(installation.clone(), host.clone()).write(data_dir)
    }

    fn of(installation: InstallationId, host: HostId) -> Self {
        let block = fnv1a(installation.as_str().as_bytes()) % ACCOUNT_BLOCKS;
        Self { installation, host, account_base: ACCOUNT_RANGE_START + block * ACCOUNTS_PER_INSTALLATION }
    }

    fn write(&self, data_dir: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(|error| EngineError::Other(error.to_string()))?;
        write_durably(&data_dir.join("installation.json"), &text, 0o600)
    }

    /// Owns the files of every volume on disk. No process ever runs as it.
    pub fn storage_account(&self) -> u32 {
        self.account_base
    }

    /// The uid and gid a volume's server runs under.
    pub fn instance_account(&self, number: u32) -> u32 {
        self.account_base + 1 + number % (ACCOUNTS_PER_INSTALLATION - 1)
    }

    /// Tells this engine apart from others on the machine, also from one that
    /// runs on a copy of the data directory.
    pub fn key(&self, data_dir: &Path) -> String {
        let place =
            fs::metadata(data_dir).map(|meta| format!("{}:{}", meta.dev(), meta.ino())).unwrap_or_default();
        format!("{:08x}", fnv1a(format!("{}:{place}", self.installation).as_bytes()))
    }
}

/// FNV-1a, 32 bits: spreads ids evenly; nothing depends on its strength.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Held by the one control plane that works on a data directory; released by
/// the kernel when the process ends in any way.
#[derive(Debug)]
pub struct ControlLock {
    _file: File,
}

impl ControlLock {
    /// Takes the lock of `data_dir`; none when another process holds it.
    ///
    /// # Errors
    /// When the lock file can't be opened.
    pub fn try_take(data_dir: &Path) -> Result<Option<Self>> {
        let path = data_dir.join("control.lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(EngineError::io(format!("opening {}", path.display())))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(EngineError::io(format!("locking {}", path.display()))(error)),
        }
    }
}
