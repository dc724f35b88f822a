-- The event branch.failed says why, in the words that the branch shows.
create or replace function note_branch_events() returns trigger language plpgsql as $$
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
        perform tell_of_branch(new, 'branch.failed', jsonb_strip_nulls(
            jsonb_build_object('reason', nullif(left(new.message, 1000), ''))));
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
