-- A key of an organization may have been made with a person's own, and that with another one: people's keys have
-- lines, too.
alter table key_lines
    alter column organization_id drop not null,
    add column user_id text references users on delete cascade,
    add check ((user_id is null) <> (organization_id is null));
create index key_lines_user on key_lines (user_id);
create index key_lines_ancestor on key_lines (ancestor_id);

create or replace function note_key_line() returns trigger language plpgsql as $$
begin
    insert into key_lines (key_id, ancestor_id, organization_id, user_id)
        select new.id, new.created_by_key, new.organization_id, new.user_id
        union
        select new.id, ancestor_id, new.organization_id, new.user_id from key_lines
        where key_id = new.created_by_key;
    return null;
end
$$;
drop trigger api_keys_line on api_keys;
create trigger api_keys_line after insert on api_keys
    for each row when (new.created_by_key is not null)
    execute function note_key_line();

with recursive makers as (
    select id, created_by_key as maker from api_keys where created_by_key is not null
    union
    select key_id, ancestor_id from key_lines),
lines as (
    select id, maker as ancestor from makers
    union
    select l.id, m.maker from lines l join makers m on m.id = l.ancestor)
insert into key_lines (key_id, ancestor_id, organization_id, user_id)
    select l.id, l.ancestor, k.organization_id, k.user_id from lines l join api_keys k using (id)
    on conflict do nothing;
