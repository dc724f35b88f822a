//! The parameters that can be set, with what the PostgreSQL manual says of
//! each in our words. A test on real servers compares defaults, bounds, words
//! and the need for a restart with what `pg_settings` says.

use super::ParameterKind::{Bytes, BytesOrAuto, Duration, DurationOrOff, Integer, Number, Switch, Word};
use super::Section::{AsyncBehavior, Connections, Extensions, Planner, ResourceConsumption, Wal};
use super::value::{DAY, GIB, HOUR, KIB, MIB, SECOND, TIB};
use super::{Parameter, ParameterKind, Section};

const ON_OFF: &[&str] = &["on", "off"];
const ANY_TIMEOUT: ParameterKind = Duration(0, 20 * DAY);

const CONNECTION: &str = "runtime-config-connection";
const CLIENT: &str = "runtime-config-client";
const RESOURCE: &str = "runtime-config-resource";
const STATISTICS: &str = "runtime-config-statistics";
const QUERY: &str = "runtime-config-query";
const WRITE_AHEAD: &str = "runtime-config-wal";

/// One that every version has, with the default of PostgreSQL itself.
const fn parameter(
    section: Section,
    name: &'static str,
    kind: ParameterKind,
    default: &'static str,
    page: &'static str,
    description: &'static str,
) -> Parameter {
    Parameter {
        name,
        kind,
        section,
        description,
        needs_restart: false,
        library: None,
        page,
        first_major: 0,
        default,
        later_default: None,
    }
}

impl Parameter {
    const fn restart(self) -> Self {
        Self { needs_restart: true, ..self }
    }

    const fn of(self, library: &'static str) -> Self {
        Self { library: Some(library), ..self }
    }

    const fn from(self, first_major: u32) -> Self {
        Self { first_major, ..self }
    }

    const fn later(self, major: u32, default: &'static str) -> Self {
        Self { later_default: Some((major, default)), ..self }
    }
}

/// Every parameter an owner may set, by section.
pub const PARAMETERS: &[Parameter] = &[
    parameter(
        Connections,
        "max_connections",
        Integer(1, 5000),
        "100",
        CONNECTION,
        "How many sessions can be open at once. Each costs memory, also while it is idle.",
    )
    .restart(),
    parameter(
        Connections,
        "idle_session_timeout",
        ANY_TIMEOUT,
        "0ms",
        CLIENT,
        "Ends a session that has waited for its client this long outside a transaction. 0 never does.",
    ),
    parameter(
        Connections,
        "idle_in_transaction_session_timeout",
        ANY_TIMEOUT,
        "0ms",
        CLIENT,
        "Ends a session that has waited for its client this long inside a transaction, where it holds locks \
         and keeps dead rows from being removed. 0 never does.",
    ),
    parameter(
        Connections,
        "statement_timeout",
        ANY_TIMEOUT,
        "0ms",
        CLIENT,
        "Ends a statement that takes longer. 0 lets every statement finish.",
    ),
    parameter(
        ResourceConsumption,
        "shared_buffers",
        Bytes(128 * KIB, 512 * GIB),
        "128MB",
        RESOURCE,
        "Memory in which all sessions share the pages they read and write.",
    )
    .restart(),
    parameter(
        ResourceConsumption,
        "work_mem",
        Bytes(64 * KIB, GIB),
        "4MB",
        RESOURCE,
        "Memory that one sort or hash of a statement may use before it goes to temporary files. A statement \
         can have several of them, and every session can run one.",
    ),
    parameter(
        ResourceConsumption,
        "temp_buffers",
        Bytes(800 * KIB, GIB),
        "8MB",
        RESOURCE,
        "Memory in which a session keeps pages of its temporary tables.",
    ),
    parameter(
        ResourceConsumption,
        "maintenance_work_mem",
        Bytes(MIB, 10 * GIB),
        "64MB",
        RESOURCE,
        "Memory that a VACUUM, CREATE INDEX or new foreign key may use, each autovacuum worker included.",
    ),
    parameter(
        ResourceConsumption,
        "huge_pages",
        Word(&["on", "off", "try"]),
        "try",
        RESOURCE,
        "Whether shared memory is taken in huge pages: on refuses to start where the machine has none to \
         give, try falls back to ordinary ones.",
    )
    .restart(),
    parameter(
        ResourceConsumption,
        "track_io_timing",
        Word(ON_OFF),
        "off",
        STATISTICS,
        "Measures how long reads and writes of data take, for pg_stat_database, EXPLAIN and \
         pg_stat_statements.",
    ),
    parameter(
        ResourceConsumption,
        "track_wal_io_timing",
        Word(ON_OFF),
        "off",
        STATISTICS,
        "Measures how long writes and flushes of the WAL take.",
    ),
    parameter(
        Planner,
        "effective_cache_size",
        Bytes(8 * KIB, TIB),
        "4GB",
        QUERY,
        "How much memory the planner believes is there to cache one statement's data, shared_buffers and the \
         system's cache together. Nothing is reserved; higher values favour indexes.",
    ),
    parameter(
        Planner,
        "random_page_cost",
        Number(0.0, 100.0),
        "4",
        QUERY,
        "What the planner believes a page costs that is not read in order. Closer to seq_page_cost favours \
         indexes.",
    ),
    parameter(
        Planner,
        "seq_page_cost",
        Number(0.0, 100.0),
        "1",
        QUERY,
        "What the planner believes a page costs that is read in order; the other costs are relative to it.",
    ),
    parameter(
        Planner,
        "default_statistics_target",
        Integer(1, 1000),
        "100",
        QUERY,
        "How much ANALYZE learns about columns that have no target of their own. More makes better plans and \
         slower ANALYZE.",
    ),
    parameter(
        AsyncBehavior,
        "io_method",
        Word(&["worker", "sync"]),
        "worker",
        RESOURCE,
        "Who does asynchronous reads: worker processes, or nobody (sync). Servers may not use io_uring, which has had \
         many weaknesses.",
    )
    .restart()
    .from(18),
    parameter(
        AsyncBehavior,
        "io_workers",
        Integer(1, 32),
        "3",
        RESOURCE,
        "How many processes read for others when io_method is worker.",
    )
    .from(18),
    parameter(
        AsyncBehavior,
        "effective_io_concurrency",
        Integer(0, 1000),
        "1",
        RESOURCE,
        "How many reads one session tries to have in flight at once. 0 reads nothing ahead.",
    )
    .later(18, "16"),
    parameter(
        AsyncBehavior,
        "maintenance_io_concurrency",
        Integer(0, 1000),
        "10",
        RESOURCE,
        "As effective_io_concurrency, for maintenance that works for many sessions, such as VACUUM.",
    )
    .later(18, "16"),
    parameter(
        AsyncBehavior,
        "backend_flush_after",
        Bytes(0, 2 * MIB),
        "0B",
        RESOURCE,
        "After a session has written this much, the system is asked to send it to the disk, so that a later \
         flush is short. 0 leaves that to the system.",
    ),
    parameter(
        AsyncBehavior,
        "max_worker_processes",
        Integer(1, 1024),
        "8",
        RESOURCE,
        "How many background processes there can be, for parallel statements and extensions together.",
    )
    .restart(),
    parameter(
        AsyncBehavior,
        "io_combine_limit",
        Bytes(8 * KIB, 128 * KIB),
        "128kB",
        RESOURCE,
        "The largest read or write that neighbouring pages are put together to.",
    )
    .from(17),
    parameter(
        AsyncBehavior,
        "max_parallel_workers",
        Integer(0, 1024),
        "8",
        RESOURCE,
        "How many of the background processes can work on parallel statements at once.",
    ),
    parameter(
        AsyncBehavior,
        "max_parallel_workers_per_gather",
        Integer(0, 1024),
        "2",
        RESOURCE,
        "How many processes may help one part of a statement. 0 turns parallel queries off.",
    ),
    parameter(
        AsyncBehavior,
        "max_parallel_maintenance_workers",
        Integer(0, 1024),
        "2",
        RESOURCE,
        "How many processes may help one CREATE INDEX or VACUUM.",
    ),
    parameter(
        Wal,
        "wal_buffers",
        BytesOrAuto(32 * KIB, 2047 * MIB),
        "-1",
        WRITE_AHEAD,
        "Memory for WAL that is not on disk yet. -1 takes a share of shared_buffers.",
    )
    .restart(),
    parameter(
        Wal,
        "max_wal_size",
        Bytes(32 * MIB, 100 * GIB),
        "1GB",
        WRITE_AHEAD,
        "How much WAL may come together before a checkpoint is made ahead of its time. Not a hard limit; more \
         makes fewer checkpoints and a longer recovery after a crash.",
    ),
    parameter(
        Wal,
        "min_wal_size",
        Bytes(32 * MIB, 100 * GIB),
        "80MB",
        WRITE_AHEAD,
        "Up to this much, files of old WAL are kept to be used again.",
    ),
    parameter(
        Wal,
        "checkpoint_completion_target",
        Number(0.0, 1.0),
        "0.9",
        WRITE_AHEAD,
        "Over which part of the time between two checkpoints the writes of one are spread.",
    ),
    parameter(
        Wal,
        "checkpoint_timeout",
        Duration(30 * SECOND, 24 * HOUR),
        "5min",
        WRITE_AHEAD,
        "The longest time between two checkpoints. Longer writes less and recovers slower after a crash.",
    ),
    parameter(
        Extensions,
        "pg_stat_statements.max",
        Integer(100, 1_000_000),
        "5000",
        "pgstatstatements",
        "How many different statements pg_stat_statements remembers; then the rarest are forgotten.",
    )
    .restart()
    .of("pg_stat_statements"),
    parameter(
        Extensions,
        "pg_stat_statements.track",
        Word(&["top", "all", "none"]),
        "top",
        "pgstatstatements",
        "Which statements pg_stat_statements counts: those that clients send, also those inside functions, or \
         none.",
    )
    .of("pg_stat_statements"),
    parameter(
        Extensions,
        "auth_delay.milliseconds",
        Integer(0, 60_000),
        "0",
        "auth-delay",
        "For how many milliseconds the server pauses before it reports a failed sign-in.",
    )
    .of("auth_delay"),
    parameter(
        Extensions,
        "auto_explain.log_min_duration",
        DurationOrOff(0, 20 * DAY),
        "-1",
        "auto-explain",
        "Writes the plans of statements to the log that take at least this long. -1 writes none, 0 all.",
    )
    .of("auto_explain"),
    parameter(
        Extensions,
        "pg_prewarm.autoprewarm",
        Switch,
        "on",
        "pgprewarm",
        "Whether a background process notes which pages are cached, and reads them again after a restart.",
    )
    .restart()
    .of("pg_prewarm"),
];

/// Libraries that are preloaded unless the owner chose others.
pub const DEFAULT_PRELOAD_LIBRARIES: &[&str] = &["pg_stat_statements", "auto_explain"];

/// Libraries that an owner may preload, where the image has them. They reach
/// no file, no process and no network.
pub const PRELOAD_LIBRARIES: &[&str] = &["auth_delay", "auto_explain", "pg_prewarm", "pg_stat_statements"];
