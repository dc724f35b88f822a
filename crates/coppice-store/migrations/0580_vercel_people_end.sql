-- Whoever came from Vercel comes in by Vercel alone: with a password they would come back when they may not.
update users set password = null where password is not null and id in (select user_id from vercel_people);

-- With an installation its people end, and keys of the organization that they made or, where nobody else is there to look
-- after them, all of its keys.
create or replace function end_vercel_people() returns trigger language plpgsql as $$
begin
    delete from api_keys k where k.organization_id = new.organization_id
        and (coalesce(k.created_by, k.maker) in (select v.user_id from vercel_people v where v.installation_id = new.id)
             or not exists (select from members m where m.organization_id = new.organization_id
                            and m.user_id not in (select v.user_id from vercel_people v)));
    delete from vercel_people where installation_id = new.id;
    return null;
end
$$;
