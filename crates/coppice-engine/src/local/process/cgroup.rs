//! One cgroup leaf per instance: to end all its processes, to know that they
//! are gone, and to limit them.
//!
//! Grouping always uses the unified hierarchy (cgroup v2), which also hybrid
//! hosts mount: only there `cgroup.kill` ends everything at once. Limits use
//! whichever hierarchy has the controller.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{EngineError, Result};

/// How long the kernel may take to end killed processes.
const KILL_PATIENCE: Duration = Duration::from_secs(20);
const CPU_PERIOD_US: u64 = 100_000;

/// What this host offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    unified: PathBuf,
    /// Directories of version 1 controllers, where the unified one has none.
    v1_cpu: Option<PathBuf>,
    v1_memory: Option<PathBuf>,
    has_v2_limits: bool,
}

/// Limits of one leaf.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// CPUs in thousandths.
    pub cpu_millis: u32,
    /// Share under contention.
    pub cpu_weight: u32,
    /// Bytes.
    pub memory_bytes: u64,
}

/// The leaf of one instance.
#[derive(Clone, Debug)]
pub struct Leaf {
    cgroups: Cgroups,
    name: PathBuf,
}

impl Cgroups {
    /// Looks at the host; none when there is no writable unified hierarchy.
    pub fn detect() -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let unified = [root.to_owned(), root.join("unified")]
            .into_iter()
            .find(|dir| dir.join("cgroup.controllers").exists())?;
        let probe = unified.join("coppice");
        fs::create_dir_all(&probe).ok()?;
        if !probe.join("cgroup.kill").exists() {
            return None;
        }
        let controllers = fs::read_to_string(unified.join("cgroup.controllers")).unwrap_or_default();
        let has_v2_limits =
            ["cpu", "memory"].iter().all(|name| controllers.split_whitespace().any(|c| c == *name));
        let v1 = |name: &str| {
            let dir = root.join(name);
            (!has_v2_limits && dir.join("cgroup.procs").exists()).then_some(dir)
        };
        Some(Self { unified, v1_cpu: v1("cpu"), v1_memory: v1("memory"), has_v2_limits })
    }

    /// A sentence for people.
    pub fn describe(&self) -> &'static str {
        match (self.has_v2_limits, &self.v1_cpu, &self.v1_memory) {
            (true, ..) => "cgroup v2 with CPU and memory limits",
            (false, Some(_), Some(_)) => "hybrid: processes in cgroup v2, CPU and memory limits in cgroup v1",
            (false, ..) => "cgroup v2 without CPU or memory controllers: instances are not limited",
        }
    }

    /// Whether [`Leaf::limit_members`] has something to do.
    pub fn limits_later(&self) -> bool {
        self.v1_cpu.is_some() || self.v1_memory.is_some()
    }

    /// The leaf of an instance of the engine `key`.
    pub fn leaf(&self, key: &str, instance: &str) -> Leaf {
        Leaf { cgroups: self.clone(), name: Path::new("coppice").join(key).join(instance) }
    }

    /// Names of leaves of the engine `key` in which a process lives.
    pub fn populated(&self, key: &str) -> Vec<String> {
        let parent = self.unified.join("coppice").join(key);
        let Ok(entries) = fs::read_dir(parent) else { return vec![] };
        entries
            .filter_map(io::Result::ok)
            .filter(|entry| entry.path().join("cgroup.procs").exists())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| self.leaf(key, name).is_populated())
            .collect()
    }

    /// Removes the directories of an engine that has no leaf left.
    pub fn remove_parent(&self, key: &str) {
        for root in [Some(&self.unified), self.v1_cpu.as_ref(), self.v1_memory.as_ref()].into_iter().flatten()
        {
            let _ = fs::remove_dir(root.join("coppice").join(key));
        }
    }
}

impl Leaf {
    fn directories(&self) -> impl Iterator<Item = PathBuf> {
        let Cgroups { unified, v1_cpu, v1_memory, .. } = &self.cgroups;
        let roots = [Some(unified), v1_cpu.as_ref(), v1_memory.as_ref()];
        roots.into_iter().flatten().map(|root| root.join(&self.name)).collect::<Vec<_>>().into_iter()
    }

    fn unified(&self) -> PathBuf {
        self.cgroups.unified.join(&self.name)
    }

    /// Makes the leaf, in which nothing runs, and sets its limits; returns its
    /// directory in the unified hierarchy.
    ///
    /// # Errors
    /// When a directory can't be made or a limit can't be set.
    pub fn ensure(&self, limits: &Limits) -> Result<PathBuf> {
        let action = || format!("making the cgroup {}", self.name.display());
        // Some kernels (6.18 is one) end at once what is born in a
        // cgroup that was ever killed, so each start gets a new one.
        let _ = fs::remove_dir(self.unified());
        for directory in self.directories() {
            fs::create_dir_all(&directory).map_err(EngineError::io(action()))?;
        }
        let quota = u64::from(limits.cpu_millis) * CPU_PERIOD_US / 1000;
        if self.cgroups.has_v2_limits {
            self.enable_v2_controllers().map_err(EngineError::io(action()))?;
            let settings = [
                ("cpu.max", format!("{quota} {CPU_PERIOD_US}")),
                ("cpu.weight", limits.cpu_weight.clamp(1, 10_000).to_string()),
                ("memory.max", limits.memory_bytes.to_string()),
            ];
            for (file, value) in settings {
                fs::write(self.unified().join(file), value).map_err(EngineError::io(action()))?;
            }
        }
        if let Some(cpu) = &self.cgroups.v1_cpu {
            let dir = cpu.join(&self.name);
            let shares = u64::from(limits.cpu_weight) * 1024 / 100;
            fs::write(dir.join("cpu.cfs_period_us"), CPU_PERIOD_US.to_string())
                .and_then(|()| fs::write(dir.join("cpu.cfs_quota_us"), quota.to_string()))
                .and_then(|()| fs::write(dir.join("cpu.shares"), shares.max(2).to_string()))
                .map_err(EngineError::io(action()))?;
        }
        if let Some(memory) = &self.cgroups.v1_memory {
            let file = memory.join(&self.name).join("memory.limit_in_bytes");
            fs::write(file, limits.memory_bytes.to_string()).map_err(EngineError::io(action()))?;
        }
        Ok(self.unified())
    }

    /// Puts the processes of the leaf under the limits of version 1
    /// controllers, where there are any. A process can't be born there, and
    /// moving it while it starts would make its client wait; so this is done
    /// now and then, and what is forked later inherits it.
    pub fn limit_members(&self) {
        let members = |directory: &Path| {
            let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            text.lines().map(str::to_owned).collect::<HashSet<_>>()
        };
        for directory in self.directories().skip(1) {
            let (all, limited) = (members(&self.unified()), members(&directory));
            for pid in all.difference(&limited) {
                // One that has just ended needs no limit.
                let _ = fs::write(directory.join("cgroup.procs"), pid);
            }
        }
    }

    fn enable_v2_controllers(&self) -> io::Result<()> {
        let mut directory = self.cgroups.unified.clone();
        for part in self.name.parent().into_iter().flat_map(Path::components) {
            fs::write(directory.join("cgroup.subtree_control"), "+cpu +memory")?;
            directory.push(part);
        }
        fs::write(directory.join("cgroup.subtree_control"), "+cpu +memory")
    }

    /// Whether a process lives in it; one that has ended and was not waited
    /// for does not count.
    pub fn is_populated(&self) -> bool {
        fs::read_to_string(self.unified().join("cgroup.events"))
            .is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
    }

    /// Ends every process in it and returns when they are gone.
    ///
    /// # Errors
    /// When processes are still there after [`KILL_PATIENCE`].
    pub fn kill(&self) -> Result<()> {
        let started = Instant::now();
        while self.is_populated() {
            fs::write(self.unified().join("cgroup.kill"), "1")
                .map_err(EngineError::io(format!("killing the cgroup {}", self.name.display())))?;
            if started.elapsed() > KILL_PATIENCE {
                let message = format!("processes in the cgroup {} do not end", self.name.display());
                return Err(EngineError::Other(message));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    }

    /// CPU time that everything in the leaf has used since it was made. The
    /// kernel counts it with and without the controller.
    pub fn cpu_used(&self) -> Option<Duration> {
        let text = fs::read_to_string(self.unified().join("cpu.stat")).ok()?;
        let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        usage.trim().parse().ok().map(Duration::from_micros)
    }

    /// Memory that can't be taken from it without swapping; none where memory
    /// is not counted from the first process on.
    pub fn memory_bytes(&self) -> Option<u64> {
        let read = |file: &str| fs::read_to_string(self.unified().join(file)).ok();
        let all: u64 = read("memory.current")?.trim().parse().ok()?;
        let statistics = read("memory.stat")?;
        let inactive = statistics.lines().find_map(|line| line.strip_prefix("inactive_file "))?;
        Some(all.saturating_sub(inactive.trim().parse().ok()?))
    }

    /// Processes in it.
    pub fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.unified().join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Removes the empty leaf. A directory that is still busy is left for the
    /// next time.
    pub fn remove(&self) {
        for directory in self.directories() {
            let _ = fs::remove_dir(directory);
        }
    }
}
