//! The write-ahead log, and libraries.

use super::{WRITE_AHEAD, parameter};
use crate::parameter::Parameter;
use crate::parameter::ParameterKind::{
    Bytes, BytesOrAuto, Duration, DurationOrOff, Integer, Number, Switch, Word,
};
use crate::parameter::Section::{Extensions, Wal};
use crate::parameter::value::{DAY, GIB, HOUR, KIB, MIB, SECOND};

pub(super) const WAL: &[Parameter] = &[
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
        Wal,
        "wal_level",
        Word(&["replica", "logical"]),
        "replica",
        WRITE_AHEAD,
        "What the WAL says: with logical also what logical decoding needs. Drop logical slots before going \
         back. What a slot may hold back is limited to a quarter of the storage.",
    )
    .restart(),
    parameter(
        Wal,
        "max_replication_slots",
        Integer(10, 100),
        "10",
        "runtime-config-replication",
        "How many replication slots there can be.",
    )
    .restart(),
    parameter(
        Wal,
        "track_commit_timestamp",
        Switch,
        "off",
        "runtime-config-replication",
        "Keeps when each transaction was committed.",
    )
    .restart(),
    parameter(
        Wal,
        "wal_compression",
        Word(&["off", "on", "pglz"]),
        "off",
        WRITE_AHEAD,
        "Compresses the pages that are written into the WAL after a checkpoint: less of it, for some CPU. on \
         is pglz.",
    ),
    parameter(
        Wal,
        "commit_delay",
        Integer(0, 100_000),
        "0",
        WRITE_AHEAD,
        "For how many microseconds a commit waits for others, so that one flush is enough for all.",
    ),
    parameter(
        Wal,
        "checkpoint_warning",
        Duration(0, DAY),
        "30s",
        WRITE_AHEAD,
        "Logs when checkpoints for want of room for WAL come closer together than this. 0 never does.",
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
