//! Memory, what is measured and logged, and autovacuum.

use super::{AUTOVACUUM, LOGGING, ON_OFF, RESOURCE, STATISTICS, parameter};
use crate::parameter::Parameter;
use crate::parameter::ParameterKind::{Bytes, Duration, DurationOrOff, Integer, Number, Switch, Word};
use crate::parameter::Section::ResourceConsumption;
use crate::parameter::value::{DAY, GIB, HOUR, KIB, MIB, SECOND};

pub(super) const RESOURCES: &[Parameter] = &[
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
        ResourceConsumption,
        "track_functions",
        Word(&["none", "pl", "all"]),
        "none",
        STATISTICS,
        "Counts calls of functions: of those in procedural languages (pl), of those in SQL and C too (all), \
         or of none.",
    ),
    parameter(
        ResourceConsumption,
        "log_statement",
        Word(&["none", "ddl", "mod", "all"]),
        "none",
        LOGGING,
        "Which statements are logged before they run: those that define something (ddl), also those that \
         change rows (mod), or all. What they say of passwords is masked when the log is read.",
    ),
    parameter(
        ResourceConsumption,
        "log_min_duration_statement",
        DurationOrOff(0, 20 * DAY),
        "-1",
        LOGGING,
        "Logs statements that take at least this long, with how long they took. -1 logs none, 0 all.",
    ),
    parameter(
        ResourceConsumption,
        "log_min_duration_sample",
        DurationOrOff(0, 20 * DAY),
        "-1",
        LOGGING,
        "Logs a part of the statements that take at least this long, as log_statement_sample_rate says. -1 \
         logs none.",
    ),
    parameter(
        ResourceConsumption,
        "log_statement_sample_rate",
        Number(0.0, 1.0),
        "1",
        LOGGING,
        "Which part of the statements beyond log_min_duration_sample is logged, from 0 to 1.",
    ),
    parameter(
        ResourceConsumption,
        "log_transaction_sample_rate",
        Number(0.0, 1.0),
        "0",
        LOGGING,
        "Which part of the transactions is logged with all their statements, from 0 to 1.",
    ),
    parameter(
        ResourceConsumption,
        "log_duration",
        Switch,
        "off",
        LOGGING,
        "Logs how long every statement took.",
    ),
    parameter(
        ResourceConsumption,
        "autovacuum_naptime",
        Duration(SECOND, HOUR),
        "1min",
        AUTOVACUUM,
        "How long autovacuum rests between two looks at a database. Shorter wakes an idle server more often.",
    ),
    parameter(
        ResourceConsumption,
        "autovacuum_vacuum_threshold",
        Integer(0, 2_147_483_647),
        "50",
        AUTOVACUUM,
        "How many rows of a table have to be changed or deleted, beside its scale factor, before it is \
         vacuumed.",
    ),
    parameter(
        ResourceConsumption,
        "autovacuum_vacuum_scale_factor",
        Number(0.0, 100.0),
        "0.2",
        AUTOVACUUM,
        "Which part of a table has to be changed or deleted before it is vacuumed.",
    ),
    parameter(
        ResourceConsumption,
        "autovacuum_vacuum_insert_scale_factor",
        Number(0.0, 100.0),
        "0.2",
        AUTOVACUUM,
        "Which part of a table has to be inserted before it is vacuumed.",
    ),
    parameter(
        ResourceConsumption,
        "autovacuum_analyze_threshold",
        Integer(0, 2_147_483_647),
        "50",
        AUTOVACUUM,
        "How many rows of a table have to change, beside its scale factor, before it is analyzed.",
    ),
    parameter(
        ResourceConsumption,
        "autovacuum_analyze_scale_factor",
        Number(0.0, 100.0),
        "0.1",
        AUTOVACUUM,
        "Which part of a table has to change before it is analyzed.",
    ),
    parameter(
        ResourceConsumption,
        "autovacuum_vacuum_cost_delay",
        DurationOrOff(0, 100),
        "2ms",
        AUTOVACUUM,
        "How long autovacuum pauses when it has used up its cost limit. 0 never pauses, -1 does as VACUUM \
         does.",
    ),
    parameter(
        ResourceConsumption,
        "autovacuum_freeze_max_age",
        Integer(100_000, 2_000_000_000),
        "200000000",
        AUTOVACUUM,
        "How many transactions old a table may be before it is vacuumed in any case, so that their numbers \
         can be used again.",
    )
    .restart(),
];
