//! Keeping all processes of a cgroup as they are for a moment.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long processes may take to be frozen.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often it is asked whether they are.
const POLL: Duration = Duration::from_millis(1);
/// Of a cgroup of the unified hierarchy: whether it is to be frozen.
const FREEZE: &str = "cgroup.freeze";

/// A cgroup whose processes do nothing until this is dropped. They can be moved
/// and killed.
pub(super) struct Frozen(PathBuf);

impl Frozen {
    /// Returns when they do nothing any more, or after [`PATIENCE`]. One that
    /// waits for a disk is frozen when it goes on, and forks nothing until then.
    pub(super) fn begin(directory: PathBuf) -> Self {
        let started = Instant::now();
        let is_told = fs::write(directory.join(FREEZE), "1").is_ok();
        let frozen = Self(directory);
        while is_told && !has_event(&frozen.0, "frozen 1") && started.elapsed() < PATIENCE {
            std::thread::sleep(POLL);
        }
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        thaw(&self.0);
    }
}

/// Lets processes go on that a process of the platform has frozen which then ended.
pub(super) fn end_left_behind(directory: &Path) {
    if fs::read_to_string(directory.join(FREEZE)).is_ok_and(|text| text.trim() == "1") {
        thaw(directory);
    }
}

/// Whether the kernel says this of a cgroup.
pub(super) fn has_event(directory: &Path, event: &str) -> bool {
    fs::read_to_string(directory.join("cgroup.events"))
        .is_ok_and(|events| events.lines().any(|line| line == event))
}

fn thaw(directory: &Path) {
    // In one that is gone nothing is left to go on.
    let _ = fs::write(directory.join(FREEZE), "0");
}
