//! Sessions, and how long they may wait.

use super::{ANY_TIMEOUT, CLIENT, CONNECTION, LOCKS, parameter};
use crate::limits::CONNECTIONS_MAX;
use crate::parameter::Parameter;
use crate::parameter::ParameterKind::{Duration, Integer};
use crate::parameter::Section::Connections;
use crate::parameter::value::HOUR;

pub(super) const SESSIONS: &[Parameter] = &[
    parameter(
        Connections,
        "max_connections",
        Integer(1, CONNECTIONS_MAX as i64),
        "100",
        CONNECTION,
        "How many sessions can be open at once; up to three of them stay free for the platform. Each costs memory, \
         also while it is idle.",
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
        Connections,
        "lock_timeout",
        ANY_TIMEOUT,
        "0ms",
        CLIENT,
        "Ends a statement that has waited this long for a lock. 0 lets it wait.",
    ),
    parameter(
        Connections,
        "transaction_timeout",
        ANY_TIMEOUT,
        "0ms",
        CLIENT,
        "Ends a session whose transaction takes longer, whatever it does. 0 never does.",
    )
    .from(17),
    parameter(
        Connections,
        "deadlock_timeout",
        Duration(10, HOUR),
        "1s",
        LOCKS,
        "How long a session waits for a lock before it looks whether all wait for each other, and logs that \
         it waits.",
    ),
    parameter(
        Connections,
        "max_locks_per_transaction",
        Integer(64, 1024),
        "64",
        LOCKS,
        "How many objects a transaction can lock, on average of all that there can be; all of them share one \
         table in memory.",
    )
    .restart(),
];
