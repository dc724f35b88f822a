-- The keys that a key of an organization was made with, at whatever distance. What is made with it counts for
-- their budgets, too, also when keys in between are gone.
create table key_lines (
    key_id          text not null,
    ancestor_id     text not null,
    organization_id text not null references organizations on delete cascade,
    primary key (key_id, ancestor_id)
);
create index key_lines_organization on key_lines (organization_id);

create function note_key_line() returns trigger language plpgsql as $$
begin
    insert into key_lines (key_id, ancestor_id, organization_id)
        select new.id, new.created_by_key, new.organization_id
        union
        select new.id, ancestor_id, new.organization_id from key_lines where key_id = new.created_by_key;
    return null;
end
$$;
create trigger api_keys_line after insert on api_keys
    for each row when (new.organization_id is not null and new.created_by_key is not null)
    execute function note_key_line();

with recursive lines as (
    select id, created_by_key as ancestor, organization_id from api_keys
    where organization_id is not null and created_by_key is not null
    union
    select l.id, k.created_by_key, l.organization_id from lines l
    join api_keys k on k.id = l.ancestor and k.created_by_key is not null)
insert into key_lines (key_id, ancestor_id, organization_id) select id, ancestor, organization_id from lines;

create or replace function exhausted_budget(organization text, project text, branch text, key text) returns text
language sql stable as $$
    select subject_id from budgets
    where subject_id = any (array[organization, project, branch, key]
                            || array(select ancestor_id from key_lines where key_id = key))
      and exhausted_in = date_trunc('month', now() at time zone 'UTC')::date
    order by subject_id limit 1
$$;
