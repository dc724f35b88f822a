//! What else a parameter could be set to, and why.
//!
//! Each rule compares what is configured with what the server counted, and is
//! silent unless it saw enough. docs/configuration.md lists the rules with
//! where in the PostgreSQL manual each comes from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::value::{GIB, KIB, MIB, bytes, in_bytes, in_time, millis};
use super::{Parameter, ParameterKind};
use crate::limits::CONNECTIONS_MAX;

/// Fewer accesses than this say nothing about a cache.
const ACCESSES_MIN: u64 = 1_000_000;
/// Fewer temporary files and bytes than this are no reason to do anything.
const TEMP_FILES_MIN: u64 = 10;
const TEMP_BYTES_MIN: u64 = 64 * MIB;
/// Fewer checkpoints than this say nothing about their cause.
const CHECKPOINTS_MIN: u64 = 10;
/// Fewer writes because of full buffers than this are chance.
const FULL_BUFFERS_MIN: u64 = 100;
/// Fewer planned parallel workers than this are chance.
const PARALLEL_WORKERS_MIN: u64 = 100;
/// A transaction in which nothing happens for longer is forgotten, not slow.
const FORGOTTEN_SECONDS: u64 = 3600;

/// What a server counted since its statistics began, and what was seen of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Observed {
    /// Pages that were found in shared memory.
    pub blocks_hit: u64,
    /// Pages that were not.
    pub blocks_read: u64,
    /// Temporary files of sorts and hashes.
    pub temp_files: u64,
    /// Their size.
    pub temp_bytes: u64,
    /// Checkpoints whose time had come.
    pub checkpoints_timed: u64,
    /// Checkpoints that were made ahead of their time.
    pub checkpoints_requested: u64,
    /// WAL written.
    pub wal_bytes: u64,
    /// How often WAL was written because its buffers were full.
    pub wal_buffers_full: u64,
    /// The most sessions of clients seen at once.
    pub connections_peak: u64,
    /// For how long a session has been idle inside a transaction.
    pub idle_in_transaction_seconds: u64,
    /// How often a vacuum that was seen running had gone through the indexes.
    pub vacuum_passes: u64,
    /// Parallel workers that statements were planned with (18 and newer).
    pub parallel_workers_planned: u64,
    /// Parallel workers that they got.
    pub parallel_workers_launched: u64,
}

impl Observed {
    /// This, remembering what was seen before and is not there to see now.
    #[must_use]
    pub fn after(self, earlier: Option<&Self>) -> Self {
        let earlier_peak = earlier.map_or(0, |earlier| earlier.connections_peak);
        Self { connections_peak: self.connections_peak.max(earlier_peak), ..self }
    }

    fn accesses(&self) -> u64 {
        self.blocks_hit + self.blocks_read
    }

    /// Pages that were not in shared memory, in thousandths of all.
    fn misses_per_mille(&self) -> Option<u64> {
        (self.accesses() >= ACCESSES_MIN).then(|| self.blocks_read * 1000 / self.accesses())
    }
}

/// The values in force, as numbers: counts, bytes, milliseconds.
#[derive(Debug)]
pub(super) struct Settings {
    memory_bytes: u64,
    numbers: BTreeMap<&'static str, f64>,
}

impl Settings {
    pub(super) fn new(memory_bytes: u64) -> Self {
        Self { memory_bytes, numbers: BTreeMap::new() }
    }

    pub(super) fn insert(&mut self, parameter: &Parameter, value: &str) {
        let number = match parameter.kind {
            ParameterKind::Integer(..) | ParameterKind::Number(..) => value.parse().ok(),
            ParameterKind::Bytes(..) | ParameterKind::BytesOrAuto(..) => bytes(value).map(|n| n as f64),
            ParameterKind::Duration(..) | ParameterKind::DurationOrOff(..) => millis(value).map(|n| n as f64),
            ParameterKind::Word(_) | ParameterKind::Switch => None,
        };
        if let Some(number) = number {
            self.numbers.insert(parameter.name, number);
        }
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }

    fn whole(&self, name: &str) -> Option<u64> {
        self.number(name).map(|number| number as u64)
    }
}

/// Another value for a parameter with the reason for it, if there is one.
pub(super) fn recommend(name: &str, settings: &Settings, observed: Option<&Observed>) -> Option<String> {
    let nothing = Observed::default();
    let seen = observed.unwrap_or(&nothing);
    match name {
        "max_connections" => max_connections(settings, seen),
        "idle_in_transaction_session_timeout" => idle_in_transaction(settings, seen),
        "shared_buffers" => shared_buffers(settings, seen),
        "work_mem" => work_mem(settings, seen),
        "maintenance_work_mem" => maintenance_work_mem(settings, seen),
        "effective_cache_size" => effective_cache_size(settings),
        "random_page_cost" => random_page_cost(settings, seen),
        "max_parallel_workers" => max_parallel_workers(settings, seen),
        "max_parallel_workers_per_gather" | "max_parallel_maintenance_workers" => {
            no_more_than(settings, name, "max_parallel_workers")
        }
        "wal_buffers" => wal_buffers(settings, seen),
        "max_wal_size" => max_wal_size(settings, seen),
        "checkpoint_completion_target" => checkpoint_completion_target(settings),
        _ => None,
    }
}

fn max_connections(settings: &Settings, seen: &Observed) -> Option<String> {
    let most = settings.whole("max_connections")?;
    let peak = seen.connections_peak;
    let wanted = (peak * 3 / 2).next_multiple_of(50).min(CONNECTIONS_MAX.into());
    (peak * 5 >= most * 4 && wanted > most)
        .then(|| format!("{wanted}: {peak} of {most} possible sessions were open at once"))
}

fn idle_in_transaction(settings: &Settings, seen: &Observed) -> Option<String> {
    let is_off = settings.whole("idle_in_transaction_session_timeout")? == 0;
    let idle = seen.idle_in_transaction_seconds;
    (is_off && idle >= FORGOTTEN_SECONDS).then(|| {
        let hours = idle / 3600;
        format!(
            "{}: a session did nothing for {hours} h inside a transaction, which keeps dead rows from being removed",
            in_time(600_000)
        )
    })
}

fn shared_buffers(settings: &Settings, seen: &Observed) -> Option<String> {
    let now = settings.whole("shared_buffers")?;
    let most = settings.memory_bytes * 2 / 5 / MIB * MIB;
    if now > most {
        let why = "more than 40 % of the memory leaves too little for the system's cache";
        return Some(format!("{}: {why}", in_bytes(most)));
    }
    let misses = seen.misses_per_mille()?;
    (misses > 100 && now < most / 8 * 7).then(|| {
        format!("{}: {} % of the pages that were asked for were not in it", in_bytes(most), misses / 10)
    })
}

fn work_mem(settings: &Settings, seen: &Observed) -> Option<String> {
    if seen.temp_files < TEMP_FILES_MIN || seen.temp_bytes < TEMP_BYTES_MIN {
        return None;
    }
    let now = settings.whole("work_mem")?;
    let average = seen.temp_bytes / seen.temp_files;
    // Rows in memory take more room than in a file; and all sessions at once
    // must not take more than half of what the buffers leave.
    let wanted = (average * 2).next_power_of_two();
    let room = settings.memory_bytes.saturating_sub(settings.whole("shared_buffers")?) / 2;
    let affordable = previous_power_of_two(room / seen.connections_peak.max(4)).min(GIB);
    let better = wanted.min(affordable);
    (better > now).then(|| {
        let size = in_bytes(average / KIB * KIB);
        format!(
            "{}: {} sorts or hashes went to temporary files, {size} each on average",
            in_bytes(better),
            seen.temp_files
        )
    })
}

fn previous_power_of_two(number: u64) -> u64 {
    if number == 0 { 0 } else { 1 << number.ilog2() }
}

fn maintenance_work_mem(settings: &Settings, seen: &Observed) -> Option<String> {
    let now = settings.whole("maintenance_work_mem")?;
    let better = (now * 2).min(settings.memory_bytes / 4).min(10 * GIB) / MIB * MIB;
    (seen.vacuum_passes >= 1 && better > now)
        .then(|| format!("{}: a VACUUM had to go through the indexes more than once", in_bytes(better)))
}

fn effective_cache_size(settings: &Settings) -> Option<String> {
    let now = settings.whole("effective_cache_size")?;
    let usual = in_bytes(settings.memory_bytes / 4 * 3);
    if now > settings.memory_bytes {
        return Some(format!("{usual}: the instance has {} of memory", in_bytes(settings.memory_bytes)));
    }
    (now < settings.whole("shared_buffers")?).then(|| format!("{usual}: shared_buffers alone is more"))
}

fn random_page_cost(settings: &Settings, seen: &Observed) -> Option<String> {
    let (random, sequential) = (settings.number("random_page_cost")?, settings.number("seq_page_cost")?);
    let misses = seen.misses_per_mille()?;
    (misses <= 10 && random >= sequential * 2.0 && sequential > 0.0).then(|| {
        let better = sequential * 1.1;
        let hits = 1000 - misses;
        format!(
            "{better:.1}: {}.{} % of the pages that were asked for were in memory, where their order costs nothing",
            hits / 10,
            hits % 10
        )
    })
}

fn no_more_than(settings: &Settings, name: &str, limit: &str) -> Option<String> {
    let (now, most) = (settings.whole(name)?, settings.whole(limit)?);
    (now > most).then(|| format!("{most}: {limit} allows no more"))
}

fn max_parallel_workers(settings: &Settings, seen: &Observed) -> Option<String> {
    if let Some(too_many) = no_more_than(settings, "max_parallel_workers", "max_worker_processes") {
        return Some(too_many);
    }
    let (now, most) = (settings.whole("max_parallel_workers")?, settings.whole("max_worker_processes")?);
    let (planned, launched) = (seen.parallel_workers_planned, seen.parallel_workers_launched);
    (planned >= PARALLEL_WORKERS_MIN && launched * 5 < planned * 4 && now < most).then(|| {
        format!("{most}: statements got {launched} of the {planned} parallel workers they were planned with")
    })
}

fn wal_buffers(settings: &Settings, seen: &Observed) -> Option<String> {
    let now = settings.whole("wal_buffers")?;
    let better = (now * 2).min(64 * MIB);
    let written_full = seen.wal_buffers_full.saturating_mul(now);
    let is_cause = seen.wal_buffers_full >= FULL_BUFFERS_MIN && written_full >= seen.wal_bytes / 2;
    (is_cause && better > now).then(|| {
        format!(
            "{}: WAL was written {} times because its buffers were full",
            in_bytes(better),
            seen.wal_buffers_full
        )
    })
}

fn max_wal_size(settings: &Settings, seen: &Observed) -> Option<String> {
    let now = settings.whole("max_wal_size")?;
    let all = seen.checkpoints_timed + seen.checkpoints_requested;
    let better = (now * 2).min(100 * GIB);
    // Checkpoints are also asked for by whoever makes a copy or a backup; those
    // don't come with this much WAL.
    let is_cause = all >= CHECKPOINTS_MIN
        && seen.checkpoints_requested * 2 >= all
        && seen.wal_bytes / all >= now / 5 * 2;
    (is_cause && better > now).then(|| {
        format!(
            "{}: {} of {all} checkpoints were made ahead of their time because so much was written",
            in_bytes(better),
            seen.checkpoints_requested
        )
    })
}

fn checkpoint_completion_target(settings: &Settings) -> Option<String> {
    (settings.number("checkpoint_completion_target")? < 0.9)
        .then(|| "0.9: less makes the writes of a checkpoint come in a shorter burst".to_owned())
}
