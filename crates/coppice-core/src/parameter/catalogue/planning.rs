//! How statements are planned, and what is done at the same time.

use super::{QUERY, RESOURCE, parameter};
use crate::parameter::Parameter;
use crate::parameter::ParameterKind::{Bytes, Integer, Number, Word};
use crate::parameter::Section::{AsyncBehavior, Planner};
use crate::parameter::value::{KIB, MIB, TIB};

pub(super) const PLANNING: &[Parameter] = &[
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
];
