//! What the kernel says about this process, under the names that Prometheus'
//! own libraries use.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::exposition::Text;

/// Adds what can be read; what can't is left out.
pub(super) fn write(text: &mut Text) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(stat) = Stat::parse(&stat) {
        text.counter("process_cpu_seconds_total", "Time of processors that was used, in seconds.");
        text.sample("process_cpu_seconds_total", &[], stat.cpu_seconds);
        text.gauge("process_resident_memory_bytes", "Memory in use.");
        text.sample("process_resident_memory_bytes", &[], stat.resident_bytes);
        text.gauge("process_threads", "Threads.");
        text.sample("process_threads", &[], stat.threads);
        if let Some(boot) = boot_time() {
            text.gauge("process_start_time_seconds", "When the process was started, in Unix time.");
            text.sample("process_start_time_seconds", &[], boot + stat.started_after_boot_seconds);
        }
    }
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        text.gauge("process_open_fds", "Open file descriptors.");
        // One of them is for counting.
        text.sample("process_open_fds", &[], entries.count().saturating_sub(1) as f64);
    }
    if let Some(soft) = getrlimit(Resource::Nofile).current {
        text.gauge("process_max_fds", "File descriptors that may be open.");
        text.sample("process_max_fds", &[], soft as f64);
    }
}

/// Fields of `/proc/<pid>/stat` (proc(5)).
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    resident_bytes: f64,
    threads: f64,
    started_after_boot_seconds: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name of the program stands in brackets and may have any in it.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<f64> =
            rest.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
        // Numbered from 1 in the manual, and the first three are cut off.
        let field = |number: usize| fields.get(number - 4).copied();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / ticks,
            resident_bytes: field(24)? * rustix::param::page_size() as f64,
            threads: field(20)?,
            started_after_boot_seconds: field(22)? / ticks,
        })
    }
}

/// When the machine was started, in Unix time.
fn boot_time() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reads_itself() {
        let text = fs::read_to_string("/proc/self/stat").expect("it is there");
        let stat = Stat::parse(&text).expect("is understood");
        let now = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs_f64();
        let started = boot_time().expect("a time") + stat.started_after_boot_seconds;
        assert!(stat.resident_bytes > 100_000.0 && stat.threads >= 1.0, "{stat:?}");
        // The boot is told in whole seconds.
        assert!((started - 2.0..started + 3600.0).contains(&now), "{started} is not just before {now}");
    }

    #[test]
    fn a_name_with_blanks_and_brackets_shifts_nothing() {
        let fields = "R 1 2 3 4 5 6 7 8 9 10 700 300 13 14 15 16 4 18 5000 20 50 22";
        let stat = Stat::parse(&format!("1 (a b) c) {fields}")).expect("is understood");
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!((stat.threads, stat.cpu_seconds), (4.0, 1000.0 / ticks));
        assert_eq!(stat.resident_bytes, 50.0 * rustix::param::page_size() as f64);
    }
}
