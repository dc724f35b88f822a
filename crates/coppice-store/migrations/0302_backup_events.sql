-- Whether a base that is due of a branch could not be made; told once until one is.
alter table branches add column backup_failing boolean not null default false;

create function note_base_events() returns trigger language plpgsql as $$
declare
    branch branches;
begin
    select * into branch from branches where id = new.branch_id and deleted_at is null;
    -- One that is only found has been told of, or never was complete.
    if found and new.complete_at is not null then
        perform tell_of_branch(branch, 'backup.completed');
    end if;
    return null;
end
$$;
create trigger bases_events after insert on bases for each row execute function note_base_events();

create function note_backup_failures() returns trigger language plpgsql as $$
begin
    if new.backup_failing and not old.backup_failing and new.deleted_at is null then
        perform tell_of_branch(new, 'backup.failed');
    end if;
    return null;
end
$$;
create trigger branches_backup_events after update of backup_failing on branches
    for each row execute function note_backup_failures();
