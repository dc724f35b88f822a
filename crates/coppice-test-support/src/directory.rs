//! Where tests keep their files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

/// A file system in memory, which every Linux has.
const MEMORY: &str = "/dev/shm";
/// What has to be free there, and of memory: several platforms run at a time.
const FREE_MIN: u64 = 8 << 30;

/// A new directory that begins with `prefix` and is removed when this is dropped.
///
/// It is in memory where there is plenty of it, since each platform makes and
/// removes thousands of files and waits until they are safe; otherwise it is
/// where `TMPDIR` says.
pub fn directory(prefix: &str) -> TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix);
    let directory = if is_roomy() { builder.tempdir_in(MEMORY) } else { builder.tempdir() };
    directory.expect("a temporary directory")
}

/// A new directory for a platform, with a file system of its own where that can be had.
///
/// Such a one takes memory in pages of two megabytes where a file is that long,
/// so that reserving and removing a pool of a gigabyte costs next to nothing.
#[derive(Debug)]
pub(crate) struct PlatformDirectory {
    directory: TempDir,
    is_mounted: bool,
}

impl PlatformDirectory {
    pub(crate) fn new() -> Self {
        let directory = directory("coppice-test-");
        let is_in_memory = directory.path().starts_with(MEMORY);
        let is_mounted = is_in_memory && mount_large_pages(directory.path()).is_ok();
        // Servers that run beside it, as other accounts, may have their files here.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o711)).expect("a mode");
        Self { directory, is_mounted }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for PlatformDirectory {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = unmount(self.path(), UnmountFlags::DETACH);
        }
    }
}

/// Takes privileges, and a kernel with transparent huge pages.
fn mount_large_pages(place: &Path) -> rustix::io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("coppice-test", place, "tmpfs", flags, Some(c"huge=within_size"))
}

fn is_roomy() -> bool {
    let file_system = rustix::fs::statvfs(MEMORY);
    let free = file_system.map(|found| found.f_bavail * found.f_frsize).unwrap_or_default();
    free >= FREE_MIN && memory_available() >= FREE_MIN
}

/// What programs can have without others being swapped out, in bytes (proc(5)).
fn memory_available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or_default() << 10
}
