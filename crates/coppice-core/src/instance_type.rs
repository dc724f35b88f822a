//! Sizes an instance can have, and the PostgreSQL settings that follow.

use serde::{Deserialize, Serialize};

use crate::limits::CONNECTIONS_MAX;

/// A size; what it costs, a price list says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceType {
    /// For example `small`.
    pub name: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in GiB.
    pub ram_gib: u32,
    /// Share of CPU time under contention, relative to the other types.
    pub cpu_weight: u32,
}

/// The default catalogue, smallest first.
pub fn catalogue() -> Vec<InstanceType> {
    [
        ("micro", 1, 1, 50),
        ("small", 1, 2, 100),
        ("medium", 2, 4, 200),
        ("large", 2, 8, 200),
        ("xlarge", 4, 16, 400),
        ("2xlarge", 8, 32, 800),
        ("4xlarge", 16, 64, 1600),
        ("8xlarge", 32, 128, 3200),
    ]
    .into_iter()
    .map(|(name, vcpus, ram_gib, cpu_weight)| InstanceType {
        name: name.to_owned(),
        vcpus,
        ram_gib,
        cpu_weight,
    })
    .collect()
}

/// The types of the catalogue that fit on a machine; where none fits, the
/// smallest one.
pub fn types_that_fit(cpus: u32, memory_bytes: u64) -> Vec<InstanceType> {
    let all = catalogue();
    let fitting: Vec<_> = all
        .iter()
        .filter(|kind| kind.vcpus <= cpus && u64::from(kind.ram_gib) << 30 <= memory_bytes)
        .cloned()
        .collect();
    if fitting.is_empty() { all.into_iter().take(1).collect() } else { fitting }
}

impl InstanceType {
    /// PostgreSQL settings that follow from the size, by parameter name.
    pub fn settings(&self, major: u32) -> Vec<(&'static str, String)> {
        let ram_mb = u64::from(self.ram_gib) * 1024;
        let mut settings = vec![
            ("max_connections", (self.ram_gib * 100).clamp(100, CONNECTIONS_MAX).to_string()),
            ("shared_buffers", format!("{}MB", ram_mb / 4)),
            ("effective_cache_size", format!("{}MB", ram_mb * 3 / 4)),
            ("maintenance_work_mem", format!("{}MB", (ram_mb / 16).clamp(64, 2048))),
            ("work_mem", format!("{}kB", (ram_mb * 4).clamp(4096, 65536))),
            // Both are taken in whole at the start, so they are most of what an
            // idle server costs.
            ("wal_buffers", format!("{}MB", self.ram_gib.clamp(1, 16))),
            ("pg_stat_statements.max", (self.ram_gib * 1000).clamp(1000, 5000).to_string()),
            // Taken from the whole machine, and kept while a branch sits idle.
            ("huge_pages", "off".to_owned()),
            ("track_io_timing", "on".to_owned()),
            ("track_wal_io_timing", "on".to_owned()),
        ];
        if self.vcpus >= 4 {
            let helpers = (self.vcpus / 2).clamp(2, 8).to_string();
            settings.extend([
                ("max_worker_processes", (self.vcpus * 2).to_string()),
                ("max_parallel_workers", self.vcpus.to_string()),
                ("max_parallel_workers_per_gather", helpers.clone()),
                ("max_parallel_maintenance_workers", helpers),
            ]);
            if major >= 18 {
                settings.push(("io_workers", (self.vcpus / 4).clamp(3, 8).to_string()));
            }
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_types_that_fit_are_offered() {
        let names: Vec<_> = types_that_fit(2, 9 << 30).into_iter().map(|kind| kind.name).collect();
        assert_eq!(names, ["micro", "small", "medium", "large"]);
    }

    #[test]
    fn a_tiny_machine_is_offered_the_smallest_type() {
        let names: Vec<_> = types_that_fit(1, 512 << 20).into_iter().map(|kind| kind.name).collect();
        assert_eq!(names, ["micro"]);
    }
}
