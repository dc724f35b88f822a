-- What was measured of instances. A series is the history of one instance; it
-- goes with its branch, all of it at once.
create table metric_series (
    id          integer generated always as identity primary key,
    instance_id text not null unique,
    -- Not a reference: what was recorded has to be removed before this row.
    branch_id   text not null
);
create index metric_series_branch on metric_series (branch_id);

-- In every array, the place of a value says which metric it is of; null where
-- nothing was measured. Partitions are made ahead and dropped when they are
-- too old; nobody deletes rows by their age.
create table metric_samples (
    series_id integer not null,
    at        timestamptz not null,
    readings  real[] not null,
    primary key (series_id, at)
) partition by range (at);

-- The samples of a quarter of an hour, merged; `at` is when it began.
create table metric_quarters (
    series_id integer not null,
    at        timestamptz not null,
    counts    integer[] not null,
    sums      real[] not null,
    mins      real[] not null,
    maxs      real[] not null,
    primary key (series_id, at)
) partition by range (at);

-- The quarters of an hour, merged.
create table metric_hours (
    series_id integer not null,
    at        timestamptz not null,
    counts    integer[] not null,
    sums      real[] not null,
    mins      real[] not null,
    maxs      real[] not null,
    primary key (series_id, at)
) partition by range (at);

-- Everything before these times is merged.
create table metric_progress (
    only_row boolean primary key default true check (only_row),
    quarters timestamptz not null,
    hours    timestamptz not null,
    check (hours <= quarters)
);
insert into metric_progress (quarters, hours) values
    (date_bin('15 minutes', now(), 'epoch'), date_bin('1 hour', now(), 'epoch'));
