//! The platform's own pool: an image file with btrfs, for hosts whose file
//! system can't share blocks.
//!
//! Two devices over one image destroy it without a trace, so attaching looks
//! before it acts, under a lock: is it mounted here, is a device there, is
//! that device mounted somewhere else. Each step may be the last before a
//! crash. A device is set up so that the kernel releases it with its last
//! user; between setting up and mounting that user is this process.
//!
//! Growing goes outside in: blocks of the host, size of the device, size of
//! the file system. Whatever is behind is caught up with on the next occasion.

use std::ffi::CStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coppice_failpoint::failpoint;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::layout::Layout;
use super::storage_options::StorageOptions;
use super::storage_usage::{StorageUsage, free_bytes};
use super::{btrfs, btrfs_room};
use crate::{EngineError, Result};
use image::ImageLock;
use loop_device::LoopDevice;
use mounts::Mount;

mod image;
mod loop_device;
mod mounts;

pub(in crate::local) use image::can_reserve_blocks;
pub(in crate::local) use mounts::has_mounts_below;

const MOUNT_FLAGS: MountFlags =
    MountFlags::NOATIME.union(MountFlags::NODEV).union(MountFlags::NOSUID).union(MountFlags::NOEXEC);
const MOUNT_OPTIONS: &CStr = c"nodiscard";
/// How long a busy pool is given to become free.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(2);
const UNMOUNT_PAUSE: Duration = Duration::from_millis(10);
/// `CAP_SYS_ADMIN` of capabilities(7).
const CAP_SYS_ADMIN: u32 = 21;

/// An attached pool.
#[derive(Debug)]
pub(in crate::local) struct Pool {
    image: PathBuf,
    mount_point: PathBuf,
    step_bytes: u64,
    host_reserve_bytes: u64,
}

impl Pool {
    /// Attaches the pool of a data directory, making its image when there is
    /// none, and finishes growing where that was interrupted.
    ///
    /// # Errors
    /// When the image is attached elsewhere, something else is mounted in its
    /// place, there is no room for it, or the kernel refuses.
    pub(in crate::local) fn attach(layout: &Layout, options: &StorageOptions) -> Result<Self> {
        // The kernel knows mounts by their true paths.
        let mount_point = layout
            .pool()
            .canonicalize()
            .map_err(EngineError::io(format!("looking for {}", layout.pool().display())))?;
        let pool = Self {
            image: layout.pool_image(),
            mount_point,
            step_bytes: options.pool_step_bytes,
            host_reserve_bytes: options.host_reserve_bytes,
        };
        let _lock = ImageLock::take(&pool.image)?;
        let image = image::open_or_create(&pool.image, options)?;
        let device = match pool.find_device(&image)? {
            Some(device) => device,
            None => pool.attach_device(&image)?,
        };
        pool.mount(&device)?;
        pool.catch_up(&image, &device)?;
        Ok(pool)
    }

    /// Grows the pool by a step when less than half a step is free in it, or little for
    /// metadata, and the host keeps its reserve. Where it would not, what was deleted in it
    /// is room by the next call but one, and metadata gets some of the room for data.
    ///
    /// # Errors
    /// When growing or committing fails; the next call tries again.
    pub(in crate::local) fn maintain(&self) -> Result<()> {
        let _lock = ImageLock::take(&self.image)?;
        let image = self.open_image()?;
        let device = self.find_device(&image)?.ok_or_else(|| {
            EngineError::Other("the pool's loop device is gone; restart to attach it".to_owned())
        })?;
        self.catch_up(&image, &device)?;
        let usage = StorageUsage::of(&self.mount_point)?;
        if usage.free_bytes >= self.step_bytes / 2 && !usage.has_little_for_metadata() {
            return Ok(());
        }
        let host = self.image.parent().unwrap_or(Path::new("."));
        if free_bytes(host)? < self.step_bytes.saturating_add(self.host_reserve_bytes) {
            tracing::warn!("the pool is short of space, and the host has none to give beyond its reserve");
            return self.make_room_inside(&usage);
        }
        let length =
            image.metadata().map_err(EngineError::io("reading the pool's image"))?.len() + self.step_bytes;
        image::reserve(&image, length)?;
        failpoint!("pool.grow.after_reserve");
        self.catch_up(&image, &device)?;
        tracing::info!(bytes = length, "the pool has grown");
        Ok(())
    }

    fn make_room_inside(&self, usage: &StorageUsage) -> Result<()> {
        btrfs::commit(&self.mount_point).map_err(EngineError::io("freeing what was deleted"))?;
        if !usage.has_little_for_metadata() {
            return Ok(());
        }
        tracing::warn!("the pool has little room for metadata");
        btrfs_room::empty_a_chunk(&self.mount_point).map_err(EngineError::io("making room for metadata"))
    }

    /// How much it can still grow by.
    ///
    /// # Errors
    /// When the host's file system can't be asked.
    pub(in crate::local) fn growable_bytes(&self) -> Result<u64> {
        let host = self.image.parent().unwrap_or(Path::new("."));
        Ok(free_bytes(host)?.saturating_sub(self.host_reserve_bytes))
    }

    /// Unmounts the pool and frees its device. What is detached already is fine.
    ///
    /// # Errors
    /// When something still uses it.
    pub(in crate::local) fn detach(&self) -> Result<()> {
        let _lock = ImageLock::take(&self.image)?;
        if self.mounted()?.is_some() {
            let action = || format!("unmounting {}", self.mount_point.display());
            // A mount namespace made meanwhile may hold the file system, and
            // then unmounting here does not flush it.
            let root = File::open(&self.mount_point).map_err(EngineError::io(action()))?;
            rustix::fs::syncfs(&root).map_err(EngineError::io(action()))?;
            drop(root);
            failpoint!("pool.detach.before_unmount");
            self.unmount().map_err(EngineError::io(action()))?;
        }
        failpoint!("pool.detach.after_unmount");
        if let Some(device) =
            LoopDevice::find(&self.open_image()?).map_err(EngineError::io("looking for loop devices"))?
        {
            device.release().map_err(EngineError::io("releasing the pool's loop device"))?;
        }
        Ok(())
    }

    /// A process that is just being started holds our descriptors until its
    /// program runs, so a busy pool may be free a moment later.
    fn unmount(&self) -> rustix::io::Result<()> {
        let deadline = Instant::now() + UNMOUNT_PATIENCE;
        loop {
            match rustix::mount::unmount(&self.mount_point, UnmountFlags::empty()) {
                Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(UNMOUNT_PAUSE),
                result => return result,
            }
        }
    }

    /// The device the image is attached to, refusing one that serves another place.
    fn find_device(&self, image: &File) -> Result<Option<LoopDevice>> {
        let Some(device) = LoopDevice::find(image).map_err(EngineError::io("looking for loop devices"))?
        else {
            return Ok(None);
        };
        let path = device.path();
        let whole = |mount: &&Mount| mount.source == path && mount.root == Path::new("/");
        let mounts = mounts::read()?;
        let places: Vec<&Mount> = mounts.iter().filter(whole).collect();
        let is_ours = |mount: &&Mount| mount.point == self.mount_point;
        match places.iter().find(|mount| !is_ours(mount)) {
            Some(other) if !places.iter().any(is_ours) => Err(EngineError::Other(format!(
                "{} is attached already, at {}: another data directory uses the same file, or this one by \
                 another path. Detach it there first",
                self.image.display(),
                other.point.display()
            ))),
            _ => Ok(Some(device)),
        }
    }

    fn attach_device(&self, image: &File) -> Result<LoopDevice> {
        failpoint!("pool.attach.before_device");
        image::refuse_sparse(image)?;
        let device = LoopDevice::attach(image, &self.image)
            .map_err(EngineError::io(format!("attaching {} to a loop device", self.image.display())))?;
        failpoint!("pool.attach.after_device");
        if !device.has_direct_io() {
            tracing::warn!("the pool has no direct I/O here: its data is cached twice");
        }
        Ok(device)
    }

    fn mount(&self, device: &LoopDevice) -> Result<()> {
        device
            .forbid_discard()
            .map_err(EngineError::io("switching off discard on the pool's loop device"))?;
        if let Some(mount) = self.mounted()? {
            if mount.kind == "btrfs" && mount.source == device.path() {
                return Ok(());
            }
            return Err(EngineError::Other(format!(
                "{} is mounted at {}, where the pool belongs; unmount it",
                mount.source.display(),
                self.mount_point.display()
            )));
        }
        failpoint!("pool.attach.before_mount");
        rustix::mount::mount(device.path(), &self.mount_point, "btrfs", MOUNT_FLAGS, MOUNT_OPTIONS)
            .map_err(EngineError::io(format!("mounting the pool at {}", self.mount_point.display())))?;
        failpoint!("pool.attach.after_mount");
        Ok(())
    }

    /// What is mounted where the pool belongs.
    fn mounted(&self) -> Result<Option<Mount>> {
        Ok(mounts::read()?.into_iter().rfind(|mount| mount.point == self.mount_point))
    }

    /// Makes the device as large as the image, and the file system as the device.
    fn catch_up(&self, image: &File, device: &LoopDevice) -> Result<()> {
        let length = image.metadata().map_err(EngineError::io("reading the pool's image"))?.len();
        let mut size =
            device.size().map_err(EngineError::io("reading the size of the pool's loop device"))?;
        if size < length {
            device.grow_to_file().map_err(EngineError::io("growing the pool's loop device"))?;
            failpoint!("pool.grow.after_device");
            size = length;
        }
        let stat = rustix::fs::statvfs(&self.mount_point)
            .map_err(EngineError::io("asking for the size of the pool"))?;
        if stat.f_blocks * stat.f_frsize + stat.f_frsize <= size {
            btrfs::resize_to_device(&self.mount_point)
                .map_err(EngineError::io("growing the pool's file system"))?;
            failpoint!("pool.grow.after_resize");
        }
        Ok(())
    }

    fn open_image(&self) -> Result<File> {
        File::options()
            .read(true)
            .write(true)
            .open(&self.image)
            .map_err(EngineError::io(format!("opening {}", self.image.display())))
    }
}

/// Why this process can't have a pool, as far as that can be known beforehand.
pub(in crate::local) fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() || !may_mount() {
        return Some("only root, with the right to mount, can attach a pool".to_owned());
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("there are no loop devices here".to_owned());
    }
    let is_installed = |directory: PathBuf| directory.join("mkfs.btrfs").exists();
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(is_installed) {
        return Some("mkfs.btrfs is missing (Debian package btrfs-progs)".to_owned());
    }
    None
}

/// Whether this process has the capability that mounting takes; root in a
/// container often has not.
fn may_mount() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .is_some_and(|capabilities| capabilities >> CAP_SYS_ADMIN & 1 == 1)
}
