//! What the kernel can limit, and what the files of a cgroup are told for that,
//! in the unified hierarchy and in version 1.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

const CPU_PERIOD_US: u64 = 100_000;
/// How long files in memory may take to be written out where its limit is to
/// become smaller than they are.
const RECLAIM_PATIENCE: Duration = Duration::from_secs(30);
/// How often that is tried.
const RECLAIM_POLL: Duration = Duration::from_millis(10);

/// Something of which the kernel can give a cgroup a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    Cpu,
    Memory,
    Processes,
    Io,
}

impl Controller {
    pub(super) const ALL: [Self; 4] = [Self::Cpu, Self::Memory, Self::Processes, Self::Io];

    /// Its name in the unified hierarchy.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Io => "io",
        }
    }

    /// Its name in version 1.
    pub(super) fn v1_name(self) -> &'static str {
        match self {
            Self::Io => "blkio",
            _ => self.name(),
        }
    }

    /// Whether what it counts is held until whoever took it gives it back. What was
    /// taken elsewhere is never counted, so processes have to be there from the
    /// first one on.
    pub(super) fn is_held(self) -> bool {
        matches!(self, Self::Memory | Self::Processes)
    }

    /// What it limits, for people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Io => "I/O weight",
        }
    }
}

/// A file of a cgroup and what is written to it.
pub(super) struct Setting {
    pub(super) file: &'static str,
    value: String,
    /// Whether a kernel may lack it: without swap, or without a scheduler that
    /// knows weights.
    is_optional: bool,
}

impl Setting {
    fn must(file: &'static str, value: impl ToString) -> Self {
        Self { file, value: value.to_string(), is_optional: false }
    }

    fn may(file: &'static str, value: impl ToString) -> Self {
        Self { file, value: value.to_string(), is_optional: true }
    }

    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let started = Instant::now();
        let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        loop {
            match fs::write(directory.join(self.file), &self.value) {
                Err(_) if self.is_optional => return Ok(()),
                Err(error) if is_busy(&error) && started.elapsed() < RECLAIM_PATIENCE => {
                    std::thread::sleep(RECLAIM_POLL);
                }
                written => return written,
            }
        }
    }
}

/// Limits of one instance.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// CPUs in thousandths.
    pub cpu_millis: u32,
    /// Share under contention.
    pub cpu_weight: u32,
    /// Bytes, without swapping.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub processes_max: u32,
}

impl Limits {
    fn cpu_quota(&self) -> u64 {
        u64::from(self.cpu_millis) * CPU_PERIOD_US / 1000
    }

    /// What a controller of the unified hierarchy is told.
    pub(super) fn v2(&self, controller: Controller) -> Vec<Setting> {
        let weight = self.cpu_weight.clamp(1, 10_000);
        match controller {
            Controller::Cpu => vec![
                Setting::must("cpu.max", format!("{} {CPU_PERIOD_US}", self.cpu_quota())),
                Setting::must("cpu.weight", weight),
            ],
            // Out of memory ends one process and not all of them, which is what
            // PostgreSQL recovers from by itself.
            Controller::Memory => vec![
                Setting::must("memory.max", self.memory_bytes),
                Setting::may("memory.swap.max", 0),
                Setting::may("memory.oom.group", 0),
            ],
            Controller::Processes => vec![Setting::must("pids.max", self.processes_max)],
            Controller::Io => vec![
                Setting::may("io.weight", format!("default {weight}")),
                Setting::may("io.bfq.weight", format!("default {}", weight.min(1000))),
            ],
        }
    }

    /// What a controller of version 1 is told.
    pub(super) fn v1(&self, controller: Controller) -> Vec<Setting> {
        match controller {
            Controller::Cpu => vec![
                Setting::must("cpu.cfs_period_us", CPU_PERIOD_US),
                Setting::must("cpu.cfs_quota_us", self.cpu_quota()),
                Setting::must("cpu.shares", (u64::from(self.cpu_weight) * 1024 / 100).max(2)),
            ],
            // The limit with swap can't be below the one without, so it makes
            // room first.
            Controller::Memory => vec![
                Setting::may("memory.memsw.limit_in_bytes", -1),
                Setting::must("memory.limit_in_bytes", self.memory_bytes),
                Setting::may("memory.memsw.limit_in_bytes", self.memory_bytes),
            ],
            Controller::Processes => vec![Setting::must("pids.max", self.processes_max)],
            Controller::Io => {
                let weight = self.cpu_weight.clamp(10, 1000);
                vec![Setting::may("blkio.weight", weight), Setting::may("blkio.bfq.weight", weight)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { cpu_millis: 1500, cpu_weight: 50, memory_bytes: 1 << 30, processes_max: 90 };

    fn text(settings: Vec<Setting>) -> Vec<String> {
        settings.into_iter().map(|setting| format!("{}={}", setting.file, setting.value)).collect()
    }

    #[test]
    fn both_versions_are_told_the_same_limits() {
        assert_eq!(text(LIMITS.v2(Controller::Cpu)), ["cpu.max=150000 100000", "cpu.weight=50"]);
        let v1 = ["cpu.cfs_period_us=100000", "cpu.cfs_quota_us=150000", "cpu.shares=512"];
        assert_eq!(text(LIMITS.v1(Controller::Cpu)), v1);
        let v2 = ["memory.max=1073741824", "memory.swap.max=0", "memory.oom.group=0"];
        assert_eq!(text(LIMITS.v2(Controller::Memory)), v2);
        let v1 = text(LIMITS.v1(Controller::Memory));
        assert_eq!(v1[1..], ["memory.limit_in_bytes=1073741824", "memory.memsw.limit_in_bytes=1073741824"]);
        for told in [LIMITS.v1(Controller::Processes), LIMITS.v2(Controller::Processes)] {
            assert_eq!(text(told), ["pids.max=90"]);
        }
        assert_eq!(text(LIMITS.v2(Controller::Io))[0], "io.weight=default 50");
    }
}
