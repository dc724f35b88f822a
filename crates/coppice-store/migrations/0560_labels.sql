-- What people tell branches apart by, beside their names.
alter table branches add column labels jsonb not null default '{}';

-- From which hour on what a branch uses counts for which labels: an hour counts for those that it had last in it. A
-- branch that never had any has no row. Like what is metered, it outlives the branch.
create table usage_labels (
    branch_id text not null,
    from_hour timestamptz not null,
    labels    jsonb not null,
    primary key (branch_id, from_hour)
);

-- The first hour that a change of labels counts for: this one, but none that is sealed.
create function labels_hour() returns timestamptz language sql stable as $$
    select greatest(date_trunc('hour', now(), 'UTC'), sealed_until,
                    (select max(hour) + interval '1 hour' from usage_sealed))
    from usage_meter
$$;

create function label_metered_branch() returns trigger language plpgsql as $$
declare
    changed timestamptz := labels_hour();
begin
    -- A clock that was ahead noted what is not so yet.
    delete from usage_labels where branch_id = new.id and from_hour > changed;
    insert into usage_labels (branch_id, from_hour, labels) values (new.id, changed, new.labels)
        on conflict (branch_id, from_hour) do update set labels = excluded.labels;
    return null;
end
$$;
create trigger branches_first_labels after insert on branches
    for each row when (new.labels <> '{}') execute function label_metered_branch();
create trigger branches_labels after update of labels on branches
    for each row when (old.labels <> new.labels) execute function label_metered_branch();
