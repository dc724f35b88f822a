-- When the server of a branch was found to have ended by itself, and was started again.
create table awake_crashes (
    branch_id text not null references branches on delete cascade,
    found_at  timestamptz not null default now(),
    primary key (branch_id, found_at)
);
create index awake_crashes_age on awake_crashes (found_at);

-- What the things a line is about were called then: when it is read they may be gone.
alter table audit_log add column names text[] not null default '{}';
