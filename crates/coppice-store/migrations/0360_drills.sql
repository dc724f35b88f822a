-- The last drill of each branch: its newest base was restored for proof.
create table drills (
    branch_id   text primary key references branches on delete cascade,
    -- Since when somebody waits for one, if that is after the last one ended.
    wanted_at   timestamptz,
    base        text,
    began_at    timestamptz,
    ended_at    timestamptz,
    result      text check (result in ('passed', 'failed', 'skipped')),
    message     text not null default '',
    -- When the last one that passed ended.
    verified_at timestamptz,
    check ((result is null) = (ended_at is null))
);

create function note_drill_events() returns trigger language plpgsql as $$
declare
    branch branches;
begin
    if new.ended_at is null or new.ended_at is not distinct from old.ended_at then
        return null;
    end if;
    select * into branch from branches where id = new.branch_id and deleted_at is null;
    if found and new.result = 'passed' then
        perform tell_of_branch(branch, 'restore.verified');
    elsif found and new.result = 'failed' and old.result is distinct from 'failed' then
        perform tell_of_branch(branch, 'restore.failed');
    end if;
    return null;
end
$$;
create trigger drills_events after insert or update of ended_at on drills
    for each row execute function note_drill_events();
