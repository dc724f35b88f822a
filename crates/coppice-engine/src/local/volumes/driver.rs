//! Which driver the storage under a data directory calls for.
//!
//! What counts is what works: each driver is tried on two small files before
//! it is chosen. What is there already comes first, so that volumes made
//! under other circumstances are found again.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::making::set_mode;
use super::{DriverKind, PoolMode, SHARED_DIRECTORY_MODE, StorageOptions};
use crate::local::btrfs;
use crate::local::layout::Layout;
use crate::local::pool::{self, Pool};
use crate::{EngineError, Result};

/// What was chosen and why.
pub(super) struct Choice {
    pub(super) kind: DriverKind,
    pub(super) reason: String,
    pub(super) pool: Option<Pool>,
}

/// Chooses, attaching or making the pool where it takes one, and makes the
/// directories for volumes.
pub(super) fn choose(layout: &Layout, options: &StorageOptions) -> Result<Choice> {
    make_directory(&layout.pool(), SHARED_DIRECTORY_MODE)?;
    let (pool, no_pool_because) = match plan_pool(layout, options)? {
        PoolPlan::Attach => (Some(Pool::attach(layout, options)?), None),
        PoolPlan::None(because) => (None, because),
    };
    for directory in [layout.pool(), layout.volumes(), layout.staging(), layout.trash(), layout.quarantine()]
    {
        make_directory(&directory, SHARED_DIRECTORY_MODE)?;
    }
    // Nobody passes through it but the platform.
    make_directory(&layout.histories(), PRIVATE_DIRECTORY_MODE)?;
    let able = ability(&layout.staging())?;
    let kind = match options.driver {
        Some(wanted) if is_enough(able, wanted) => wanted,
        Some(wanted) => {
            return Err(EngineError::Other(format!(
                "the driver {wanted} was asked for, but the file system under {} does not offer that",
                layout.pool().display()
            )));
        }
        None => able,
    };
    Ok(Choice { kind, reason: reason(kind, able, pool.is_some(), no_pool_because), pool })
}

const PRIVATE_DIRECTORY_MODE: u32 = 0o700;

enum PoolPlan {
    Attach,
    /// With the reason, where an operator may want to change it.
    None(Option<String>),
}

fn plan_pool(layout: &Layout, options: &StorageOptions) -> Result<PoolPlan> {
    if layout.pool_image().exists() {
        // There are volumes in it, whatever the options say now.
        return match pool::obstacle() {
            None => Ok(PoolPlan::Attach),
            Some(obstacle) => Err(EngineError::Other(format!(
                "this data directory keeps its volumes in {}, which can't be attached: {obstacle}",
                layout.pool_image().display()
            ))),
        };
    }
    let shares_blocks = options.driver != Some(DriverKind::Copy);
    if options.pool == PoolMode::Off || !shares_blocks {
        return Ok(PoolPlan::None(Some("making a pool is switched off".to_owned())));
    }
    if ability(&layout.pool())? != DriverKind::Copy {
        return Ok(PoolPlan::None(None));
    }
    if has_entries(&layout.volumes()) || has_entries(&layout.quarantine()) {
        return Ok(PoolPlan::None(Some(format!(
            "volumes made without a pool are in {}, and a pool would hide them",
            layout.volumes().display()
        ))));
    }
    match pool::obstacle() {
        None if pool::can_reserve_blocks(layout.data_dir())? => Ok(PoolPlan::Attach),
        None => Ok(PoolPlan::None(Some("this file system can't set blocks aside for a pool".to_owned()))),
        Some(obstacle) => Ok(PoolPlan::None(Some(obstacle))),
    }
}

/// The best driver that works in `directory`.
fn ability(directory: &Path) -> Result<DriverKind> {
    if btrfs::is_btrfs(directory) && rustix::process::geteuid().is_root() && subvolumes_work(directory) {
        return Ok(DriverKind::Btrfs);
    }
    if reflinks_work(directory)? { Ok(DriverKind::Reflink) } else { Ok(DriverKind::Copy) }
}

/// Whether a file system for the driver `able` can do what `wanted` needs.
fn is_enough(able: DriverKind, wanted: DriverKind) -> bool {
    match wanted {
        DriverKind::Btrfs => able == DriverKind::Btrfs,
        DriverKind::Reflink => able != DriverKind::Copy,
        DriverKind::Copy => true,
    }
}

fn subvolumes_work(directory: &Path) -> bool {
    let probe = directory.join(".probe-subvolume");
    // An earlier probe may have been interrupted.
    let _ = btrfs::delete_subvolume(&probe);
    match btrfs::create_subvolume(&probe).and_then(|()| btrfs::delete_subvolume(&probe)) {
        Ok(()) => true,
        // On a full disk nothing can be tried, and deleting must work.
        Err(error) => error.kind() == std::io::ErrorKind::StorageFull,
    }
}

fn reflinks_work(directory: &Path) -> Result<bool> {
    let paths = [directory.join(".probe-source"), directory.join(".probe-clone")];
    let clone = || -> std::io::Result<bool> {
        let open = |path: &Path| -> std::io::Result<File> {
            OpenOptions::new().create(true).truncate(true).read(true).write(true).mode(0o600).open(path)
        };
        let source = open(&paths[0])?;
        // An empty file can be cloned anywhere.
        std::io::Write::write_all(&mut &source, &[0x5a; 8192])?;
        Ok(rustix::fs::ioctl_ficlone(open(&paths[1])?, &source).is_ok())
    };
    let result = clone();
    for path in &paths {
        let _ = fs::remove_file(path);
    }
    match result {
        // A file that can't be cloned after all is copied.
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Ok(true),
        result => {
            result.map_err(EngineError::io(format!("trying to clone a file in {}", directory.display())))
        }
    }
}

fn reason(kind: DriverKind, able: DriverKind, has_pool: bool, no_pool_because: Option<String>) -> String {
    let because = no_pool_because.map(|because| format!(" ({because})")).unwrap_or_default();
    match kind {
        _ if kind != able => format!("{kind}: chosen by the operator"),
        DriverKind::Btrfs if has_pool => {
            "btrfs: the platform's own pool; a branch is one snapshot".to_owned()
        }
        DriverKind::Btrfs => "btrfs: the data directory is on btrfs; a branch is one snapshot".to_owned(),
        DriverKind::Reflink => {
            "reflink: the file system can share blocks between files; a branch clones each file".to_owned()
        }
        DriverKind::Copy => format!(
            "copy: the file system can't share blocks, so a branch copies every byte{because}; \
             use btrfs or XFS under the data directory, or run as root with btrfs-progs for a pool"
        ),
    }
}

fn has_entries(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

fn make_directory(path: &Path, mode: u32) -> Result<()> {
    let make = || {
        DirBuilder::new().recursive(true).mode(mode).create(path)?;
        set_mode(path, mode)
    };
    make().map_err(EngineError::io(format!("making {}", path.display())))
}

impl std::fmt::Display for DriverKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Btrfs => "btrfs",
            Self::Reflink => "reflink",
            Self::Copy => "copy",
        })
    }
}
