//! Where tests keep their files.

use std::fs;
use std::path::Path;

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

fn is_roomy() -> bool {
    let file_system = nix::sys::statvfs::statvfs(Path::new(MEMORY));
    let free = file_system.map(|free| free.blocks_available() * free.fragment_size()).unwrap_or_default();
    free >= FREE_MIN && memory_available() >= FREE_MIN
}

/// What programs can have without others being swapped out, in bytes (proc(5)).
fn memory_available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or_default() << 10
}
