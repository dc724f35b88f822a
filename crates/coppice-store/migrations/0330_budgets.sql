-- What may be used in a month of UTC before branches are put to sleep.
create table budgets (
    -- The organization, or a project, branch or key of it.
    subject_id      text primary key,
    organization_id text not null references organizations on delete cascade,
    covers          text not null check (covers in ('organization', 'project', 'branch', 'key')),
    -- Those of the subject, where it is a project or a branch.
    project_id      text references projects on delete cascade,
    branch_id       text references branches on delete cascade,
    limit_amount    numeric not null check (limit_amount > 0),
    -- A currency, or instance-hours.
    unit            text not null,
    -- The month in which it is used up.
    exhausted_in    date,
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now(),
    check ((project_id is not null) = (covers in ('project', 'branch'))),
    check ((branch_id is not null) = (covers = 'branch'))
);
create index budgets_organization on budgets (organization_id);
create index budgets_project on budgets (project_id);
create index budgets_branch on budgets (branch_id);

-- Which parts of a budget, in percent, were told to be reached. It outlives the
-- budget: one that is removed and set again tells nothing twice.
create table budget_warnings (
    organization_id text not null references organizations on delete cascade,
    subject_id      text not null,
    month           date not null,
    limit_amount    numeric not null,
    unit            text not null,
    threshold       smallint not null check (threshold in (50, 80, 100)),
    warned_at       timestamptz not null default now(),
    primary key (subject_id, month, limit_amount, unit, threshold)
);
create index budget_warnings_organization on budget_warnings (organization_id);
create index budget_warnings_age on budget_warnings (warned_at);

-- The budget, of those of an organization, a project, a branch and the key that
-- it was made with, that keeps the branch asleep.
create function exhausted_budget(organization text, project text, branch text, key text) returns text
language sql stable as $$
    select subject_id from budgets
    where subject_id in (organization, project, branch, key)
      and exhausted_in = date_trunc('month', now() at time zone 'UTC')::date
    order by subject_id limit 1
$$;

-- Nothing that would sleep for a budget wakes, whoever says so: they decide by
-- what they saw before they waited for the organization, this by what is there.
create function keep_within_budget() returns trigger language plpgsql as $$
begin
    if (select exhausted_budget(p.organization_id, p.id, new.id, new.made_with)
        from projects p where p.id = new.project_id) is not null then
        return null;
    end if;
    return new;
end
$$;
create trigger branches_budget before update of goal on branches
    for each row when (new.goal = 'running' and old.goal <> 'running')
    execute function keep_within_budget();

-- Put to sleep because its organization was disabled, or a budget used up;
-- woken when neither is so any more.
alter table branches rename column resumes_with_organization to resumes_when_allowed;

alter table awake_periods
    drop constraint awake_periods_cause_check,
    add check (cause in ('creation', 'request', 'connection', 'organization', 'budget')),
    drop constraint awake_periods_end_cause_check,
    add check (end_cause in ('idle', 'request', 'organization', 'budget'));

-- The key that a metered branch was made with.
alter table usage_branches add column made_with text;
update usage_branches u set made_with = b.made_with from branches b where b.id = u.branch_id;
create index usage_branches_made_with on usage_branches (made_with);

create or replace function name_metered_branch() returns trigger language plpgsql as $$
begin
    insert into usage_branches (branch_id, branch_name, project_id, project_name, organization_id, made_with)
        select new.id, new.name, p.id, p.name, p.organization_id, new.made_with
        from projects p where p.id = new.project_id
        on conflict (branch_id) do update set branch_name = excluded.branch_name;
    return null;
end
$$;

-- Sealed hours, corrections included, added up by days of UTC: a month of an
-- organization is looked at each time its budgets are.
create table usage_days (
    branch_id     text not null,
    day           timestamptz not null,
    meter         text not null,
    instance_type text not null,
    quantity      numeric(40, 0) not null,
    primary key (branch_id, day, meter, instance_type)
);
insert into usage_days (branch_id, day, meter, instance_type, quantity)
    select branch_id, date_trunc('day', hour, 'UTC'), meter, instance_type, sum(quantity)
    from usage_hours group by 1, 2, 3, 4;

create function add_to_usage_days() returns trigger language plpgsql as $$
begin
    insert into usage_days as d (branch_id, day, meter, instance_type, quantity)
        select branch_id, date_trunc('day', hour, 'UTC'), meter, instance_type, sum(quantity)
        from added group by 1, 2, 3, 4 order by 1, 2, 3, 4
        on conflict (branch_id, day, meter, instance_type)
        do update set quantity = d.quantity + excluded.quantity;
    return null;
end
$$;
create trigger usage_hours_days after insert on usage_hours
    referencing new table as added for each statement execute function add_to_usage_days();
