-- What branches use, for showing and charging it. Nothing here refers to the
-- rows that it is about: it outlives them.

-- Who is metered, as it was last called.
create table usage_branches (
    branch_id       text primary key,
    branch_name     text not null,
    project_id      text not null,
    project_name    text not null,
    organization_id text not null
);
create index usage_branches_organization on usage_branches (organization_id);
create index usage_branches_project on usage_branches (project_id);

-- A time in which a branch was to be awake, or asleep, with instances of one
-- type. Those of one branch never overlap.
create table usage_periods (
    branch_id     text not null,
    began_at      timestamptz not null,
    -- Null while it lasts.
    ended_at      timestamptz,
    is_awake      boolean not null,
    instance_type text not null,
    instances     integer not null check (instances >= 1),
    primary key (branch_id, began_at),
    check (ended_at > began_at)
);
create unique index usage_periods_open on usage_periods (branch_id) where ended_at is null;
create index usage_periods_ended on usage_periods (ended_at);

-- A time in which a branch's files took so much.
create table usage_storage (
    branch_id text not null,
    began_at  timestamptz not null,
    ended_at  timestamptz,
    bytes     bigint not null check (bytes >= 0),
    primary key (branch_id, began_at),
    check (ended_at > began_at)
);
create unique index usage_storage_open on usage_storage (branch_id) where ended_at is null;
create index usage_storage_ended on usage_storage (ended_at);

-- What clients of a branch were sent, by the hour in which that was noted.
create table usage_egress (
    branch_id text not null,
    hour      timestamptz not null,
    bytes     bigint not null check (bytes >= 0),
    primary key (branch_id, hour)
);
create index usage_egress_hour on usage_egress (hour);

-- When a control plane was there and the clock went evenly. Other time does
-- not count.
create table usage_witnessed (
    began_at timestamptz primary key,
    until    timestamptz not null,
    check (until >= began_at)
);
create index usage_witnessed_until on usage_witnessed (until);

-- Every hour before this one is over and done with.
create table usage_meter (
    only_row     boolean primary key default true check (only_row),
    sealed_until timestamptz not null
);
insert into usage_meter (sealed_until) values (date_trunc('hour', now(), 'UTC'));

-- Hours whose usage is written down for good.
create table usage_sealed (
    hour      timestamptz primary key,
    sealed_at timestamptz not null default now()
);

-- That usage: microseconds of instances that were to be awake, microseconds
-- asleep, bytes of storage times microseconds, bytes sent to clients. What was
-- wrong is put right by a row with the difference and a greater `correction`.
create table usage_hours (
    branch_id     text not null,
    hour          timestamptz not null,
    meter         text not null check (meter in ('awake', 'asleep', 'storage', 'egress')),
    -- Of instances that are awake; empty for the rest.
    instance_type text not null,
    correction    integer not null default 0 check (correction >= 0),
    quantity      numeric(40, 0) not null,
    -- Why it was corrected.
    reason        text not null default '',
    primary key (branch_id, hour, meter, instance_type, correction),
    check (correction > 0 or (quantity >= 0 and reason = ''))
);

create function refuse_change_of_sealed_hour() returns trigger language plpgsql as $$
begin
    raise exception 'a sealed hour is corrected by a new row';
end
$$;
create trigger usage_hours_stay before update on usage_hours
    for each statement execute function refuse_change_of_sealed_hour();

-- When a change of a branch counts: now, but in no hour that is sealed, and
-- not before what is noted of it. Whoever began earlier may come later, and a
-- clock can be set back.
create function usage_moment(noted timestamptz) returns timestamptz language sql stable as $$
    select greatest(now(), sealed_until, noted) from usage_meter
$$;

-- Every statement that changes what a branch should be also meters it.
create function meter_branch() returns trigger language plpgsql as $$
declare
    of_branch text := coalesce(new.id, old.id);
    moment    timestamptz;
begin
    select usage_moment((select coalesce(ended_at, began_at) from usage_periods
                         where branch_id = of_branch order by began_at desc limit 1)) into moment;
    delete from usage_periods where branch_id = of_branch and ended_at is null and began_at >= moment;
    update usage_periods set ended_at = moment where branch_id = of_branch and ended_at is null;
    if new.goal <> 'deleted' then
        insert into usage_periods (branch_id, began_at, is_awake, instance_type, instances)
            values (of_branch, moment, new.goal = 'running', new.instance_type, new.replicas + 1);
        return null;
    end if;
    delete from usage_storage where branch_id = of_branch and ended_at is null and began_at >= moment;
    update usage_storage set ended_at = moment where branch_id = of_branch and ended_at is null;
    return null;
end
$$;
create trigger branches_begin_usage after insert on branches
    for each row when (new.goal <> 'deleted') execute function meter_branch();
create trigger branches_change_usage after update of goal, instance_type, replicas on branches
    for each row when ((old.goal, old.instance_type, old.replicas)
                       is distinct from (new.goal, new.instance_type, new.replicas))
    execute function meter_branch();
create trigger branches_end_usage after delete on branches
    for each row when (old.goal <> 'deleted') execute function meter_branch();

create function name_metered_branch() returns trigger language plpgsql as $$
begin
    insert into usage_branches (branch_id, branch_name, project_id, project_name, organization_id)
        select new.id, new.name, p.id, p.name, p.organization_id from projects p where p.id = new.project_id
        on conflict (branch_id) do update set branch_name = excluded.branch_name;
    return null;
end
$$;
create trigger branches_name_usage after insert or update of name on branches
    for each row execute function name_metered_branch();

create function name_metered_project() returns trigger language plpgsql as $$
begin
    update usage_branches set project_name = new.name where project_id = new.id;
    return null;
end
$$;
create trigger projects_name_usage after update of name on projects
    for each row when (old.name <> new.name) execute function name_metered_project();

insert into usage_branches (branch_id, branch_name, project_id, project_name, organization_id)
    select b.id, b.name, p.id, p.name, p.organization_id
    from branches b join projects p on p.id = b.project_id where b.goal <> 'deleted';
insert into usage_periods (branch_id, began_at, is_awake, instance_type, instances)
    select id, now(), goal = 'running', instance_type, replicas + 1 from branches where goal <> 'deleted';
