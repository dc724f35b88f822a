-- What happened in organizations, for those who want to hear of it. A row is
-- written by the statement that makes it happen, so none is of what did not.
-- Whoever publishes numbers rows afterwards, one after the other within each
-- organization: what was committed late comes late, and whoever reads on behind
-- a number misses nothing.
create table events (
    seq bigint generated always as identity primary key,
    organization_id text not null,
    project_id text,
    branch_id text,
    type text not null,
    -- Ids, and names of branches; never a secret.
    data jsonb not null,
    occurred_at timestamptz not null default now(),
    -- Both are given by whoever publishes it.
    id text,
    number bigint,
    check ((id is null) = (number is null))
);
create index events_unpublished on events (seq) where number is null;
create unique index events_number on events (organization_id, number);
create index events_age on events (occurred_at);

-- The last number of each organization.
create table event_feeds (
    organization_id text primary key,
    last_number bigint not null
);

-- Whoever publishes has this row. Its count grows whenever something was.
create table event_publications (
    only_row boolean primary key default true check (only_row),
    count bigint not null default 0
);
insert into event_publications default values;

-- What was last told of a branch, so that a server that is started again after
-- a crash is no news.
alter table branches add column told text not null default 'created'
    check (told in ('created', 'ready', 'hibernated', 'failed', 'deleted'));
update branches set told = case
    when deleted_at is not null then 'deleted'
    when state in ('creating', 'failed') then replace(state, 'creating', 'created')
    when goal = 'hibernated' then 'hibernated'
    else 'ready' end;
-- The end that its owner was warned of.
alter table branches add column expiry_told timestamptz;

create function tell_of_branch(branch branches, type text, more jsonb default '{}') returns void language sql as $$
    insert into events (organization_id, project_id, branch_id, type, data)
    select p.organization_id, p.id, branch.id, type, jsonb_build_object(
        'organization_id', p.organization_id, 'project_id', p.id, 'branch_id', branch.id, 'name', branch.name) || more
    from projects p where p.id = branch.project_id
$$;

create function event_time(moment timestamptz) returns text language sql stable as $$
    select to_char(moment at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

create function note_branch_events() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        new.told = 'created';
        perform tell_of_branch(new, 'branch.created');
        return new;
    end if;
    if new.deleted_at is not null then
        if old.deleted_at is null then
            new.told = 'deleted';
            perform tell_of_branch(new, 'branch.deleted', jsonb_strip_nulls(
                jsonb_build_object('purge_at', event_time(new.purge_at))));
        end if;
        return new;
    end if;
    if new.state = 'ready' and new.told <> 'ready' then
        perform tell_of_branch(new, case new.told when 'hibernated' then 'branch.woken' else 'branch.ready' end);
        new.told = 'ready';
    elsif new.state = 'hibernated' and new.goal = 'hibernated' and new.told <> 'hibernated' then
        perform tell_of_branch(new, 'branch.hibernated');
        new.told = 'hibernated';
    elsif new.state = 'failed' and new.told <> 'failed' then
        perform tell_of_branch(new, 'branch.failed');
        new.told = 'failed';
    end if;
    if new.managed_role_verifier <> old.managed_role_verifier then
        perform tell_of_branch(new, 'credentials.rotated');
    end if;
    if new.expiry_told is distinct from old.expiry_told and new.expiry_told is not null then
        perform tell_of_branch(new, 'branch.expiring', jsonb_build_object('expires_at', event_time(new.expiry_told)));
    end if;
    return new;
end
$$;
create trigger branches_events
    before insert or update of state, deleted_at, managed_role_verifier, expiry_told on branches
    for each row execute function note_branch_events();

create function note_member_events() returns trigger language plpgsql as $$
declare
    member members := case tg_op when 'INSERT' then new else old end;
begin
    -- With an organization that is forgotten, its members go silently.
    insert into events (organization_id, type, data)
    select o.id, case tg_op when 'INSERT' then 'member.added' else 'member.removed' end,
        jsonb_build_object('organization_id', o.id, 'user_id', member.user_id)
    from organizations o where o.id = member.organization_id and o.deleted_at is null;
    return null;
end
$$;
create trigger members_events after insert or delete on members
    for each row execute function note_member_events();

create function note_key_events() returns trigger language plpgsql as $$
declare
    key api_keys := case tg_op when 'INSERT' then new else old end;
begin
    -- A key of a user belongs to no organization.
    insert into events (organization_id, type, data)
    select o.id, case tg_op when 'INSERT' then 'key.created' else 'key.deleted' end,
        jsonb_build_object('organization_id', o.id, 'key_id', key.id)
    from organizations o where o.id = key.organization_id and o.deleted_at is null;
    return null;
end
$$;
create trigger api_keys_events after insert or delete on api_keys
    for each row execute function note_key_events();
