-- When a branch was awake, and why: from what began it to the sleep that ended it.
create table awake_periods (
    branch_id  text not null references branches on delete cascade,
    began_at   timestamptz not null default now(),
    cause      text not null check (cause in ('creation', 'request', 'connection', 'organization')),
    -- Who or what woke it, for people.
    woken_by   text not null default '',
    ended_at   timestamptz,
    end_cause  text check (end_cause in ('idle', 'request', 'organization')),
    primary key (branch_id, began_at),
    check ((ended_at is null) = (end_cause is null))
);
create unique index awake_periods_open on awake_periods (branch_id) where ended_at is null;
create index awake_periods_age on awake_periods (ended_at);

-- How each application used a branch in such a time.
create table awake_uses (
    branch_id    text not null,
    began_at     timestamptz not null,
    application  text not null,
    sessions     integer not null check (sessions >= 0),
    -- While at least one session was open.
    open_seconds double precision not null check (open_seconds >= 0),
    last_used    timestamptz not null default now(),
    primary key (branch_id, began_at, application),
    foreign key (branch_id, began_at) references awake_periods on delete cascade
);

insert into awake_periods (branch_id, began_at, cause, woken_by)
    select id, coalesce(woken_at, created_at), case when woken_at is null then 'creation' else 'request' end,
           woken_by
    from branches where goal = 'running';
alter table branches drop column woken_at, drop column woken_by;

-- Put to sleep because its organization was disabled; woken when it is enabled.
alter table branches
    add column resumes_with_organization boolean not null default false,
    add check (not resumes_with_organization or goal <> 'running');
