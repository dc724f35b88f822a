-- Answers of requests that carried an Idempotency-Key, kept for a day so that
-- a repetition gets the first answer. `caller` is the keyed hash of the
-- credential. Without an answer the first request is still running.
create table idempotent_requests (
    caller        text not null,
    path          text not null,
    key           text not null,
    body_hash     text not null,
    started_at    timestamptz not null default now(),
    status        integer,
    -- Sealed, because an answer may hold a key.
    answer_sealed bytea,
    primary key (caller, path, key),
    check ((status is null) = (answer_sealed is null))
);
create index idempotent_requests_age on idempotent_requests (started_at);

-- The list names every library that is preloaded, not only those beyond the usual two.
update branches set preload_libraries = '{pg_stat_statements,auto_explain}' where preload_libraries = '{}';
