-- One that is only found has been told of; when it was complete may be known all the same.
create or replace function note_base_events() returns trigger language plpgsql as $$
declare
    branch branches;
begin
    select * into branch from branches where id = new.branch_id and deleted_at is null;
    if found and new.complete_at is not null and new.seen_at > 'epoch' then
        perform tell_of_branch(branch, 'backup.completed');
    end if;
    return null;
end
$$;
