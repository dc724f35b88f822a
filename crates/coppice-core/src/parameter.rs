//! PostgreSQL parameters that the owner of a branch may set.
//!
//! Names and meanings are those of the PostgreSQL manual, chapter "Server
//! Configuration"; the bounds are ours, inside PostgreSQL's.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Error, Result};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterKind {
    /// A whole number, from and to.
    Integer(i64, i64),
    /// A number, from and to.
    Number(f64, f64),
    /// An amount of memory or storage in bytes, from and to.
    Bytes(u64, u64),
    /// As [`ParameterKind::Bytes`], or -1: PostgreSQL chooses.
    BytesOrAuto(u64, u64),
    /// A span of time in milliseconds, from and to.
    Duration(u64, u64),
    /// As [`ParameterKind::Duration`], or -1: off.
    DurationOrOff(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// On or off, in any of PostgreSQL's spellings.
    Switch,
}

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Its name in PostgreSQL.
    pub name: &'static str,
    /// What values it takes.
    pub kind: ParameterKind,
    /// Whether a change needs a restart of the server.
    pub needs_restart: bool,
    /// The library that has to be preloaded for it, if one has to.
    pub library: Option<&'static str>,
}

const fn parameter(name: &'static str, kind: ParameterKind) -> Parameter {
    Parameter { name, kind, needs_restart: false, library: None }
}

impl Parameter {
    const fn restart(self) -> Self {
        Self { needs_restart: true, ..self }
    }

    const fn of(self, library: &'static str) -> Self {
        Self { library: Some(library), ..self }
    }
}

use ParameterKind::*;

const ON_OFF: &[&str] = &["on", "off"];
const ANY_TIMEOUT: ParameterKind = Duration(0, 20 * DAY);

/// Every parameter an owner may set.
pub const PARAMETERS: &[Parameter] = &[
    parameter("max_connections", Integer(1, 5000)).restart(),
    parameter("idle_session_timeout", ANY_TIMEOUT),
    parameter("idle_in_transaction_session_timeout", ANY_TIMEOUT),
    parameter("statement_timeout", ANY_TIMEOUT),
    parameter("shared_buffers", Bytes(128 * KIB, 512 * GIB)).restart(),
    parameter("work_mem", Bytes(64 * KIB, GIB)),
    parameter("temp_buffers", Bytes(800 * KIB, GIB)),
    parameter("maintenance_work_mem", Bytes(MIB, 10 * GIB)),
    parameter("huge_pages", Word(&["on", "off", "try"])).restart(),
    parameter("track_io_timing", Word(ON_OFF)),
    parameter("track_wal_io_timing", Word(ON_OFF)),
    parameter("effective_cache_size", Bytes(8 * KIB, TIB)),
    parameter("random_page_cost", Number(0.0, 100.0)),
    parameter("seq_page_cost", Number(0.0, 100.0)),
    parameter("default_statistics_target", Integer(1, 1000)),
    parameter("io_method", Word(&["worker", "io_uring", "sync"])).restart(),
    parameter("io_workers", Integer(1, 32)),
    parameter("effective_io_concurrency", Integer(0, 1000)),
    parameter("maintenance_io_concurrency", Integer(0, 1000)),
    parameter("backend_flush_after", Bytes(0, 2 * MIB)),
    parameter("max_worker_processes", Integer(1, 1024)).restart(),
    parameter("io_combine_limit", Bytes(8 * KIB, 128 * KIB)),
    parameter("max_parallel_workers", Integer(0, 1024)),
    parameter("max_parallel_workers_per_gather", Integer(0, 1024)),
    parameter("max_parallel_maintenance_workers", Integer(0, 1024)),
    parameter("wal_buffers", BytesOrAuto(32 * KIB, 2047 * MIB)).restart(),
    parameter("max_wal_size", Bytes(32 * MIB, 100 * GIB)),
    parameter("min_wal_size", Bytes(32 * MIB, 100 * GIB)),
    parameter("checkpoint_completion_target", Number(0.0, 1.0)),
    parameter("checkpoint_timeout", Duration(30 * SECOND, 24 * HOUR)),
    parameter("pg_stat_statements.max", Integer(100, 1_000_000)).restart().of("pg_stat_statements"),
    parameter("pg_stat_statements.track", Word(&["top", "all", "none"])).of("pg_stat_statements"),
    parameter("auth_delay.milliseconds", Integer(0, 60_000)).of("auth_delay"),
    parameter("auto_explain.log_min_duration", DurationOrOff(0, 20 * DAY)).of("auto_explain"),
    parameter("pg_prewarm.autoprewarm", Switch).restart().of("pg_prewarm"),
];

/// Libraries that are preloaded unless the owner chose others.
pub const DEFAULT_PRELOAD_LIBRARIES: &[&str] = &["pg_stat_statements", "auto_explain"];

/// Libraries that an owner may preload, where the image has them. They reach
/// no file, no process and no network.
pub const PRELOAD_LIBRARIES: &[&str] = &["auth_delay", "auto_explain", "pg_prewarm", "pg_stat_statements"];

/// Checks what the owner of a branch asked for.
///
/// `known` are the parameters that the server of that version says it has, and
/// `memory_bytes` is what an instance has: a server that wants more of it for
/// its buffers would not start.
///
/// # Errors
/// `invalid_postgres_parameter` naming everything that is wrong, by name.
pub fn check_parameters(
    asked: &BTreeMap<String, String>,
    major: u32,
    preloaded: &[String],
    known: &BTreeSet<String>,
    memory_bytes: u64,
) -> Result<()> {
    let complaints: Vec<_> = asked
        .iter()
        .filter_map(|(name, value)| {
            let parameter = PARAMETERS.iter().find(|parameter| parameter.name == name);
            let exists = |parameter: &&Parameter| parameter.library.is_some() || known.contains(name);
            let why = match parameter.filter(exists) {
                Some(parameter) => parameter.check(value, preloaded, memory_bytes).err()?,
                None => format!("is no parameter that can be set in PostgreSQL {major}"),
            };
            Some(format!("{name}: {why}"))
        })
        .collect();
    if complaints.is_empty() {
        return Ok(());
    }
    Err(Error::invalid("invalid_postgres_parameter", complaints.join("; ")))
}

impl Parameter {
    fn check(&self, value: &str, preloaded: &[String], memory_bytes: u64) -> Result<(), String> {
        if let Some(library) = self.library
            && !preloaded.iter().any(|name| name == library)
        {
            return Err(format!("needs {library} among the preload libraries"));
        }
        self.kind.check(value)?;
        let takes_memory = ["shared_buffers", "wal_buffers"].contains(&self.name);
        if takes_memory && bytes(value).is_some_and(|wanted| wanted > memory_bytes / 4 * 3) {
            let most = memory_bytes / 4 * 3 / MIB;
            return Err(format!("at most {most}MB fits into the memory of this instance type"));
        }
        Ok(())
    }
}

impl ParameterKind {
    /// Whether a text is a value of this kind, and within bounds.
    ///
    /// # Errors
    /// What a value has to be.
    pub fn check(self, text: &str) -> Result<(), String> {
        let is_within = match self {
            Integer(low, high) => text.parse().is_ok_and(|number: i64| (low..=high).contains(&number)),
            Number(low, high) => {
                is_number(text) && text.parse().is_ok_and(|number: f64| (low..=high).contains(&number))
            }
            Bytes(low, high) => bytes(text).is_some_and(|amount| (low..=high).contains(&amount)),
            BytesOrAuto(low, high) => {
                return if text == "-1" { Ok(()) } else { Bytes(low, high).check(text) };
            }
            Duration(low, high) => millis(text).is_some_and(|span| (low..=high).contains(&span)),
            DurationOrOff(low, high) => {
                return if text == "-1" { Ok(()) } else { Duration(low, high).check(text) };
            }
            Word(words) => words.contains(&text),
            Switch => ["on", "off", "true", "false", "yes", "no", "1", "0"].contains(&text),
        };
        if is_within { Ok(()) } else { Err(self.wanted()) }
    }

    fn wanted(self) -> String {
        match self {
            Integer(low, high) => format!("must be a whole number from {low} to {high}"),
            Number(low, high) => format!("must be a number from {low} to {high}"),
            Bytes(low, high) | BytesOrAuto(low, high) => {
                format!("must be an amount from {} to {}, like 16MB", in_bytes(low), in_bytes(high))
            }
            Duration(low, high) | DurationOrOff(low, high) => {
                format!("must be a span of time from {} to {}, like 30s", in_time(low), in_time(high))
            }
            Word(words) => format!("must be one of {}", words.join(", ")),
            Switch => "must be on or off".to_owned(),
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// A number and its unit as a multiple of the smallest unit.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    if number == 0 && unit.is_empty() {
        return Some(0);
    }
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

fn bytes(text: &str) -> Option<u64> {
    with_unit(text, &[("B", 1), ("kB", KIB), ("MB", MIB), ("GB", GIB), ("TB", TIB)])
}

fn millis(text: &str) -> Option<u64> {
    with_unit(text, &[("ms", 1), ("s", SECOND), ("min", 60 * SECOND), ("h", HOUR), ("d", DAY)])
}

fn in_unit(amount: u64, units: &[(&str, u64)]) -> String {
    let fits = |(_, factor): &&(&str, u64)| amount >= *factor && amount.is_multiple_of(*factor);
    let (name, factor) = units.iter().find(fits).or(units.last()).copied().unwrap_or(("", 1));
    format!("{}{name}", amount / factor)
}

fn in_bytes(amount: u64) -> String {
    in_unit(amount, &[("TB", TIB), ("GB", GIB), ("MB", MIB), ("kB", KIB), ("B", 1)])
}

fn in_time(amount: u64) -> String {
    in_unit(amount, &[("d", DAY), ("h", HOUR), ("min", 60 * SECOND), ("s", SECOND), ("ms", 1)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 17 has, as far as these tests go.
    fn known() -> BTreeSet<String> {
        let newer = ["io_workers", "io_method"];
        let names = PARAMETERS.iter().map(|parameter| parameter.name.to_owned());
        names.filter(|name| !newer.contains(&name.as_str())).chain(["fsync".to_owned()]).collect()
    }

    fn complaint(name: &str, value: &str) -> Option<String> {
        let asked = [(name.to_owned(), value.to_owned())].into();
        let preloaded = DEFAULT_PRELOAD_LIBRARIES.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        check_parameters(&asked, 17, &preloaded, &known(), GIB).err().map(|error| error.to_string())
    }

    #[test]
    fn good_values_pass() {
        for (name, value) in [
            ("work_mem", "16MB"),
            ("work_mem", "1GB"),
            ("statement_timeout", "0"),
            ("statement_timeout", "20d"),
            ("random_page_cost", "1.1"),
            ("wal_buffers", "-1"),
            ("auto_explain.log_min_duration", "250ms"),
            ("track_io_timing", "off"),
        ] {
            assert_eq!(complaint(name, value), None, "{name} = {value}");
        }
    }

    #[test]
    fn bad_values_say_what_is_wanted() {
        let expected = [
            ("work_mem", "16", "work_mem: must be an amount from 64kB to 1GB, like 16MB"),
            ("work_mem", "2GB", "work_mem: must be an amount from 64kB to 1GB, like 16MB"),
            ("max_connections", "0", "max_connections: must be a whole number from 1 to 5000"),
            ("random_page_cost", "inf", "random_page_cost: must be a number from 0 to 100"),
            ("track_io_timing", "maybe", "track_io_timing: must be one of on, off"),
            (
                "checkpoint_timeout",
                "1s",
                "checkpoint_timeout: must be a span of time from 30s to 1d, like 30s",
            ),
            ("fsync", "off", "fsync: is no parameter that can be set in PostgreSQL 17"),
            ("io_workers", "2", "io_workers: is no parameter that can be set in PostgreSQL 17"),
            (
                "auth_delay.milliseconds",
                "5",
                "auth_delay.milliseconds: needs auth_delay among the preload libraries",
            ),
            (
                "shared_buffers",
                "1GB",
                "shared_buffers: at most 768MB fits into the memory of this instance type",
            ),
        ];
        for (name, value, why) in expected {
            assert_eq!(complaint(name, value).as_deref(), Some(why));
        }
    }

    #[test]
    fn all_complaints_come_at_once_by_name() {
        let asked = [("zero", "1"), ("fsync", "off")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        let error = check_parameters(&asked, 17, &[], &known(), GIB).expect_err("refused").to_string();
        assert!(error.starts_with("fsync: ") && error.contains("; zero: "), "{error}");
    }
}
